/// What counts as runaway repetition: an end of the output that repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepetitionRule {
    /// Longest text repeated, in tokens.
    pub max_period: usize,
    /// Least number of times that it stands there.
    pub min_repeats: usize,
    /// Least number of tokens of all of them together.
    pub min_tokens: usize,
}

impl Default for RepetitionRule {
    /// Far beyond what tables, lists and code repeat.
    fn default() -> Self {
        Self {
            max_period: 128,
            min_repeats: 8,
            min_tokens: 512,
        }
    }
}

impl RepetitionRule {
    /// Outputs are looked at when their length is a multiple of this, so that the outcome does not
    /// depend on how many tokens a step brings.
    pub(crate) const INTERVAL: usize = 32;

    /// Whether the end of `tokens` repeats itself.
    pub(crate) fn applies(&self, tokens: &[u32]) -> bool {
        self.applies_with(tokens, 0)
    }

    /// Whether it may once so many tokens at most have come, by the rule looked at behind some of them.
    pub(crate) fn may_apply(&self, tokens: &[u32], more: usize) -> bool {
        let until = Self::INTERVAL - tokens.len() % Self::INTERVAL;
        // What is repeated then is repeated now, unless most of it is yet to come.
        let shows = self.min_tokens >= more + self.max_period;
        until <= more && (!shows || self.applies_with(tokens, more))
    }

    /// Whether the end of `tokens`, with as many as could come, repeats itself.
    fn applies_with(&self, tokens: &[u32], more: usize) -> bool {
        let window = self.min_tokens.max(self.max_period * self.min_repeats);
        let tail: Vec<u32> = tokens.iter().rev().take(window).copied().collect();
        // borders[i] is the longest proper prefix of tail[..=i] that is also its suffix; the
        // shortest period of that part is what is left over.
        let mut borders = vec![0; tail.len()];
        let mut border = 0;
        for end in 1..tail.len() {
            while border > 0 && tail[end] != tail[border] {
                border = borders[border - 1];
            }
            border += usize::from(tail[end] == tail[border]);
            borders[end] = border;
            let (len, period) = (end + 1, end + 1 - border);
            if period <= self.max_period
                && len + more >= self.min_tokens
                && len + more >= period * self.min_repeats
            {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RepetitionRule = RepetitionRule {
        max_period: 10,
        min_repeats: 4,
        min_tokens: 24,
    };

    fn repeated(period: u32, tokens: usize) -> Vec<u32> {
        let start = [900, 901, 900, 902];
        let cycle = (0..period).cycle().take(tokens);
        start.into_iter().chain(cycle).collect()
    }

    #[test]
    fn a_repeated_end_is_found_from_its_least_length_on() {
        for period in 1..=10 {
            let least = 24.max(period as usize * 4);
            assert!(!RULE.applies(&repeated(period, least - 1)), "{period}");
            assert!(RULE.applies(&repeated(period, least)), "{period}");
            assert!(RULE.applies(&repeated(period, 500)), "{period}");
        }
    }

    #[test]
    fn what_varies_is_let_be() {
        assert!(!RULE.applies(&[]));
        assert!(!RULE.applies(&(0..1000).collect::<Vec<u32>>()));
        assert!(!RULE.applies(&repeated(11, 500)));
        let mut broken = repeated(3, 400);
        broken.push(77);
        assert!(!RULE.applies(&broken));
        // Numbers that count up in lines of the same shape.
        let lines: Vec<u32> = (0..200).flat_map(|n| [5, 6, 1000 + n, 7]).collect();
        assert!(!RULE.applies(&lines));
    }

    /// Whatever comes, also where the rule's tokens are fewer than those to come.
    #[test]
    fn what_may_come_to_repeat_itself_is_foreseen() {
        let long = RepetitionRule {
            min_tokens: 60,
            ..RULE
        };
        let mut foreseen = [0; 2];
        for rule in [RULE, long] {
            for period in [1, 3, 10, 11, 40] {
                for len in 0..130 {
                    let text = repeated(period, len);
                    for more in [1, 5, 16, 40] {
                        let may = rule.may_apply(&text, more);
                        foreseen[usize::from(may)] += 1;
                        let next = (0..period).cycle().skip(len);
                        let random = (0..).map(|i: u32| (i * 7 + len as u32) % 5);
                        let same = std::iter::repeat(text[text.len() - 1]);
                        let all: [Vec<u32>; 3] = [
                            next.take(more).collect(),
                            random.take(more).collect(),
                            same.take(more).collect(),
                        ];
                        let becomes = all.iter().any(|next| {
                            let whole = [&text[..], next].concat();
                            let mut ends = text.len() + 1..=whole.len();
                            ends.any(|end| {
                                end.is_multiple_of(RepetitionRule::INTERVAL)
                                    && rule.applies(&whole[..end])
                            })
                        });
                        assert!(may || !becomes, "{rule:?} {period} {len} {more}");
                    }
                }
            }
        }
        assert!(foreseen.iter().all(|&n| n > 500), "{foreseen:?}");
    }
}
