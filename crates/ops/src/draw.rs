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
    /// Position of the token in its text.
    pub position: u64,
}

impl Draw {
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

/// Width of a row of drawn tokens: the id (exact in f32 below 2^24) and its logit.
pub const DRAWN_WIDTH: usize = 2;

/// An id with this bit stands for a token that only the device knows: the one in the row of the other
/// bits ([`crate::Ops::embed_drawn`]).
pub const DRAWN: u32 = 1 << 31;
