/// Rotary embedding at one position (NeoX halves: pair `i` with `i + rotary_dim / 2`).
pub struct Rotation<'a> {
    inv_freq: &'a [f32],
    scale: f32,
    position: Option<usize>,
    /// (cos, sin) per pair.
    turns: Vec<(f32, f32)>,
}

impl<'a> Rotation<'a> {
    pub fn new(inv_freq: &'a [f32], scale: f32) -> Self {
        Self {
            inv_freq,
            scale,
            position: None,
            turns: vec![(1.0, 0.0); inv_freq.len()],
        }
    }

    /// Angles are f32 products, as in the references that checkpoints were trained with.
    pub fn turn_to(&mut self, position: usize) {
        if self.position == Some(position) {
            return;
        }
        self.position = Some(position);
        for (turn, &frequency) in self.turns.iter_mut().zip(self.inv_freq) {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            *turn = (cos * self.scale, sin * self.scale);
        }
    }

    /// Rotates the leading dimensions of a head.
    pub fn apply(&self, head: &mut [f32]) {
        let (first, second) = head[..2 * self.turns.len()].split_at_mut(self.turns.len());
        for ((a, b), &(cos, sin)) in first.iter_mut().zip(second).zip(&self.turns) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}
