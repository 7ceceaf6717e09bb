use crate::history::Occurrences;
use crate::{Allowed, History, SamplingParams};

/// What bias and penalties make of the logit of one token, in vLLM's order and with its meaning; every step is
/// rounded to f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The token.
    pub token: u32,
    /// Added first; negative infinity rules the token out.
    pub bias: f32,
    /// Divides what is positive then and multiplies the rest.
    pub scale: f32,
    /// Subtracted last.
    pub penalty: f32,
}

impl Change {
    pub(crate) fn new(token: u32, count: Occurrences, params: &SamplingParams) -> Self {
        let seen = count != Occurrences::default();
        Self {
            token,
            bias: params.logit_bias.get(&token).copied().unwrap_or(0.0),
            scale: if seen { params.repetition_penalty } else { 1.0 },
            penalty: match count.output {
                0 => 0.0,
                n => params.frequency_penalty * n as f32 + params.presence_penalty,
            },
        }
    }

    fn out(token: u32) -> Self {
        Self {
            token,
            bias: f32::NEG_INFINITY,
            scale: 1.0,
            penalty: 0.0,
        }
    }

    /// The logit that it makes of a logit.
    pub fn of(&self, logit: f32) -> f32 {
        let biased = logit + self.bias;
        let scaled = match biased > 0.0 {
            true => biased / self.scale,
            false => biased * self.scale,
        };
        scaled - self.penalty
    }

    fn changes(&self) -> bool {
        self.bias != 0.0 || self.scale != 1.0 || self.penalty != 0.0
    }
}

/// All changes of a row behind `history` whose next token is one of `next`, but for its mask: each token once.
pub fn changes(params: &SamplingParams, history: &History, next: &Allowed) -> Vec<Change> {
    let mut all = Vec::new();
    let out: &[u32] = match next {
        Allowed::Except(tokens) => tokens,
        _ => &[],
    };
    for (index, token) in out.iter().enumerate() {
        if !out[..index].contains(token) {
            all.push(Change::out(*token));
        }
    }
    if params.leaves_logits() {
        return all;
    }
    let stays = |token: &u32| !out.contains(token);
    let only_biased = params.logit_bias.keys().copied();
    let only_biased = only_biased.filter(|token| history.count(*token) == Occurrences::default());
    let seen = history.occurrences().map(|(token, _)| token);
    for token in only_biased.chain(seen).filter(stays) {
        let change = Change::new(token, history.count(token), params);
        if change.changes() {
            all.push(change);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_changed_once() {
        let mut history = History::new(&[3, 5, 3]);
        [5, 9, 9].into_iter().for_each(|token| history.push(token));
        let params = SamplingParams {
            repetition_penalty: 1.5,
            frequency_penalty: 0.25,
            presence_penalty: 1.0,
            logit_bias: [(5, 2.0), (7, -1.0), (8, 4.0)].into(),
            ..SamplingParams::default()
        };
        let change = |token, bias, scale, penalty| Change {
            token,
            bias,
            scale,
            penalty,
        };
        let mut found = changes(&params, &history, &Allowed::Except(vec![8, 2, 8]));
        found.sort_by_key(|change| change.token);
        let expected = [
            Change::out(2),
            change(3, 0.0, 1.5, 0.0),
            change(5, 2.0, 1.5, 1.25),
            change(7, -1.0, 1.0, 0.0),
            Change::out(8),
            change(9, 0.0, 1.5, 1.5),
        ];
        assert_eq!(found, expected);
        let plain = SamplingParams {
            presence_penalty: 1.0,
            ..SamplingParams::default()
        };
        let found = changes(&plain, &history, &Allowed::All);
        assert_eq!(found.len(), 2, "tokens of the prompt stay: {found:?}");
    }

    #[test]
    fn signs_decide_how_repetition_counts() {
        let change = Change {
            token: 0,
            bias: 1.0,
            scale: 2.0,
            penalty: 0.5,
        };
        assert_eq!([3.0, -3.0, -1.0].map(|x| change.of(x)), [1.5, -4.5, -0.5]);
        assert_eq!(Change::out(1).of(9.0), f32::NEG_INFINITY);
    }
}
