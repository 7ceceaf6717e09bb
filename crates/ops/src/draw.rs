use crate::CANDIDATES;

/// How a token is drawn from a row of logits ([`crate::Ops::draw`]). Neutral values switch a filter
/// off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// 0 takes the likeliest.
    pub temperature: f32,
    /// Keep the `top_k` likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens while the mass before them is below `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least `min_p` times the largest probability; 0 keeps all.
    pub min_p: f32,
    /// Seed of the noise.
    pub seed: u64,
    /// Position of the token in its text, or [`Draw::BEHIND_ROW`].
    pub position: u64,
}

impl Draw {
    /// The position behind that of the row in the pass before, whose trees only the device knows
    /// ([`crate::Ops::plant`]).
    pub const BEHIND_ROW: u64 = u64::MAX;

    /// Takes the likeliest.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
        position: 0,
    };

    /// Whether the candidates of a row are all that the draw looks at, whatever the row.
    pub fn of_candidates(&self) -> bool {
        self.temperature == 0.0 || (1..=CANDIDATES as u32).contains(&self.top_k)
    }
}

/// What tokens are drawn from: rows of all ranks side by side.
#[derive(Clone, Copy, Debug)]
pub struct DrawFrom<'a, B> {
    /// Rows of [`crate::Ops::top`].
    pub tops: &'a B,
    /// The logits themselves, f32; its row 0 belongs to row `first` of the others. Without it every
    /// draw has to be one [`Draw::of_candidates`].
    pub whole: Option<&'a B>,
    /// Tokens from this one on are not drawn.
    pub allowed: u32,
    /// Row of `tops`, and of what comes out, that the first draw belongs to.
    pub first: usize,
}

/// What a draw changes in its row first ([`crate::Ops::draw_edited`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Logits of single tokens, each of which is named at most once.
    pub changes: Vec<Change>,
    /// Tokens that may be drawn: bit `id % 32` of word `id / 32`; none behind the last word. All of them
    /// without it.
    pub mask: Option<Vec<u32>>,
}

impl Edit {
    /// Whether the row stays as it is.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.mask.is_none()
    }

    /// Whether the mask, if there is one, lets a token be drawn.
    pub fn lets(&self, token: u32) -> bool {
        self.mask.as_ref().is_none_or(|words| {
            let word = words.get(token as usize / 32).copied();
            word.unwrap_or(0) >> (token % 32) & 1 == 1
        })
    }
}

/// Bias and penalties of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The token.
    pub token: u32,
    /// Added first; negative infinity rules the token out.
    pub bias: f32,
    /// Divides what is positive then and multiplies the rest; above 0.
    pub scale: f32,
    /// Subtracted last.
    pub penalty: f32,
}

impl Change {
    /// The logit that it makes of a logit; every step is rounded to f32.
    pub fn of(&self, logit: f32) -> f32 {
        let biased = logit + self.bias;
        let scaled = match biased > 0.0 {
            true => biased / self.scale,
            false => biased * self.scale,
        };
        scaled - self.penalty
    }
}

/// What tokens are drawn from after changes: as many rows as there are draws.
#[derive(Debug)]
pub struct EditedRows<'a, B> {
    /// Whole rows of logits, f32, which are changed in place.
    pub whole: &'a mut B,
    /// Room for their candidates, f32, [`crate::TOP_WIDTH`] wide.
    pub tops: &'a mut B,
    /// Tokens from this one on are not drawn.
    pub allowed: u32,
    /// Row of what comes out that the first draw belongs to.
    pub first: usize,
}

/// Width of a row of drawn tokens: the id (exact in f32 below 2^24) and its logit.
pub const DRAWN_WIDTH: usize = 2;

/// An id with this bit stands for a token that only the device knows: the one in the row of the other
/// bits ([`crate::Ops::embed_drawn`]).
pub const DRAWN: u32 = 1 << 31;
