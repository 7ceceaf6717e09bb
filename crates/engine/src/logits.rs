use volley_model::{Drawn, Target, TopRows};
use volley_ops::{Change, Draw, Edit, Ops};
use volley_speculate::{Allowed, Candidates, Choice, Error, Logits, Row, SamplingParams, changes};

/// Rows of logits on a rank: candidates on the host, whole rows on the device. All ranks hold the same
/// candidates, so all of them ask the device for the same, or none does.
pub(crate) struct RankLogits<'a, O: Ops> {
    ops: &'a O,
    target: &'a mut Target<O>,
    /// Of all rows that the device holds.
    top: &'a TopRows,
    /// What it has drawn from them already.
    ahead: Ahead<'a>,
    /// Row of the device that is row 0 here.
    first: usize,
    /// Ids at or above are out.
    allowed: usize,
    /// What it was asked to draw since, by row.
    asked: Vec<(usize, Drawn)>,
}

impl<'a, O: Ops> RankLogits<'a, O> {
    pub fn new(
        ops: &'a O,
        target: &'a mut Target<O>,
        top: &'a TopRows,
        ahead: Ahead<'a>,
        first: usize,
        allowed: usize,
    ) -> Self {
        Self {
            ops,
            target,
            top,
            ahead,
            first,
            allowed,
            asked: Vec::new(),
        }
    }

    fn ask(&mut self, row: usize, draw: &Draw, edit: &Edit) -> Result<Drawn, Error> {
        let (ops, at) = (self.ops, self.first + row);
        let drawn = self.target.draw_one(ops, at, self.allowed, draw, edit);
        let drawn = drawn.map_err(|error| Error::Unread {
            row,
            reason: error.to_string(),
        })?;
        self.asked.push((row, drawn));
        Ok(drawn)
    }
}

impl<O: Ops> Logits for RankLogits<'_, O> {
    fn row(&self, row: usize) -> Result<Row<'_>, Error> {
        let top = self.top.get(self.first + row);
        let top = top.ok_or_else(|| Error::Unread {
            row,
            reason: "the pass has fewer".to_string(),
        })?;
        Ok(Row::Likeliest(Candidates {
            ids: &top.ids,
            logits: &top.logits,
            log_sum_exp: top.log_sum_exp,
            complete: top.complete(),
        }))
    }

    fn draw(&mut self, row: usize, choice: &Choice<'_>) -> Result<u32, Error> {
        let drawn = match self.ahead.answer(self.first + row, choice) {
            Some(drawn) => drawn,
            None => {
                let draw = draw_at(choice.params, choice.position);
                self.ask(row, &draw, &edit(choice))?
            }
        };
        drawn_token(drawn, choice.allowed)
    }

    fn logit(&mut self, row: usize, token: u32) -> Result<f32, Error> {
        let asked = self.asked.iter().filter(|(at, _)| *at == row);
        let drawn = self.ahead.get(self.first + row).into_iter();
        let mut known = asked.map(|(_, drawn)| drawn).chain(drawn);
        if let Some(drawn) = known.find(|drawn| drawn.token == token) {
            return Ok(drawn.logit);
        }
        // Of one token alone there is only one to draw.
        let mut words = vec![0; token as usize / 32 + 1];
        words[token as usize / 32] = 1 << (token % 32);
        let alone = Edit {
            mask: Some(words),
            ..Edit::default()
        };
        Ok(self.ask(row, &Draw::GREEDY, &alone)?.logit)
    }
}

/// What the device has drawn ahead of any question.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<'a> {
    drawn: &'a [Drawn],
    asks: &'a Asks,
    /// Length of the output behind which the draws did not know it; all of it where none.
    known: Option<usize>,
}

impl<'a> Ahead<'a> {
    /// What came of some asks.
    pub fn of(asks: &'a Asks, drawn: &'a [Drawn]) -> Self {
        Self {
            drawn,
            asks,
            known: None,
        }
    }

    /// Where outputs have become longer since they were asked for: tokens behind this length are new.
    pub fn knowing(self, output: usize) -> Self {
        Self {
            known: Some(output),
            ..self
        }
    }

    fn get(&self, row: usize) -> Option<&'a Drawn> {
        let asked = self.asks.among.get(row)?.is_some();
        self.drawn.get(row).filter(|_| asked)
    }

    /// The token of a choice, if it was drawn among the same tokens, and no token that is new since may have
    /// changed it.
    fn answer(&self, row: usize, choice: &Choice<'_>) -> Option<Drawn> {
        let drawn = self.get(row)?;
        let same = self.asks.among[row].as_ref() == Some(choice.next);
        let output = choice.history.output();
        let new = &output[self.known.unwrap_or(output.len()).min(output.len())..];
        let params = choice.params;
        let untouched = new.is_empty()
            || params.leaves_logits()
            || params.only_lowers() && !new.contains(&drawn.token);
        (same && untouched).then_some(*drawn)
    }
}

/// What the device is asked to draw from rows ahead, one after the other: what candidates may not decide.
#[derive(Default)]
pub(crate) struct Asks {
    draws: Vec<Draw>,
    edits: Vec<Edit>,
    /// Among which tokens; none where nothing is asked.
    among: Vec<Option<Allowed>>,
    /// Whether it is asked for what candidates decide, too.
    all: bool,
}

impl Asks {
    /// For a device that goes on by what it draws, every token of sequences that sample is drawn there.
    pub fn of_all<'a>(params: impl IntoIterator<Item = &'a SamplingParams>) -> Self {
        let samples = |params: &SamplingParams| params.temperature > 0.0;
        Self {
            all: params.into_iter().any(samples),
            ..Self::default()
        }
    }

    /// Asks for a choice from the next row, or for nothing.
    pub fn add(&mut self, choice: Option<&Choice<'_>>) {
        let wanted = choice.map(|choice| (choice, draw_at(choice.params, choice.position)));
        let (draw, edit, among) = match wanted {
            Some((choice, draw)) if self.all || !draw.of_candidates() => {
                (draw, edit(choice), Some(choice.next.clone()))
            }
            _ => (Draw::GREEDY, Edit::default(), None),
        };
        self.draws.push(draw);
        self.edits.push(edit);
        self.among.push(among);
    }

    /// One for each row; none where nothing is asked.
    pub fn draws(&self) -> &[Draw] {
        match self.among.iter().any(Option::is_some) {
            true => &self.draws,
            false => &[],
        }
    }

    /// One for each row; none where no row is changed.
    pub fn edits(&self) -> &[Edit] {
        match self.edits.iter().all(Edit::is_empty) {
            true => &[],
            false => &self.edits,
        }
    }
}

/// The token, if there was one to draw.
fn drawn_token(drawn: Drawn, allowed: usize) -> Result<u32, Error> {
    let Drawn { token, logit } = drawn;
    match logit {
        f32::NEG_INFINITY => Err(Error::NoCandidate {
            allowed,
            logits: allowed,
        }),
        logit if logit.is_finite() => Ok(token),
        value => Err(Error::Logit { token, value }),
    }
}

/// How [`volley_speculate::sample`] takes the token at a position from what a row is changed to.
pub(crate) fn draw_at(params: &SamplingParams, position: usize) -> Draw {
    Draw {
        temperature: params.temperature,
        top_k: u32::try_from(params.top_k).unwrap_or(u32::MAX),
        top_p: params.top_p,
        min_p: params.min_p,
        seed: params.seed,
        position: position as u64,
    }
}

/// What a choice changes in its row.
fn edit(choice: &Choice<'_>) -> Edit {
    let Choice {
        params,
        history,
        allowed,
        next,
        ..
    } = *choice;
    let changes = changes(params, history, next).into_iter();
    let changes = changes.filter(|change| (change.token as usize) < allowed);
    Edit {
        changes: changes
            .map(|change| Change {
                token: change.token,
                bias: change.bias,
                scale: change.scale,
                penalty: change.penalty,
            })
            .collect(),
        mask: match next {
            Allowed::Mask(words) => Some(words.clone()),
            Allowed::All | Allowed::Token(_) | Allowed::Except(_) => None,
        },
    }
}
