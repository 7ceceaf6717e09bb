/// How a token is drawn from a row of candidates ([`crate::Ops::draw`]). Neutral values switch a
/// filter off.
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

/// An id with this bit stands for a token that only the device knows: the one in the row of the other
/// bits ([`crate::Ops::embed_drawn`]).
pub const DRAWN: u32 = 1 << 31;
