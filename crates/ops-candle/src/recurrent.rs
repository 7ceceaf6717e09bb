use volley_ops::GdnDims;

/// Inputs of [`recurrent`], one token after another, laid out as in [`volley_ops::GdnRows`].
#[derive(Clone, Copy, Debug)]
pub struct RecurrentInput<'a> {
    /// `[n, key_heads * key_dim]`.
    pub q: &'a [f64],
    /// `[n, key_heads * key_dim]`.
    pub k: &'a [f64],
    /// `[n, value_heads * value_dim]`.
    pub v: &'a [f64],
    /// `[n, value_heads]`.
    pub g: &'a [f64],
    /// `[n, value_heads]`.
    pub beta: &'a [f64],
}

/// The gated delta rule as it is defined, token by token in f64: the reference
/// of every faster form. Advances `state` (`[value_heads, key_dim, value_dim]`) and returns the
/// outputs `[n, value_heads * value_dim]`. Slices shorter than `dims` says are a panic.
pub fn recurrent(dims: GdnDims, input: RecurrentInput, state: &mut [f64]) -> Vec<f64> {
    let (heads, width) = (dims.value_heads, dims.value_dim);
    let n = input.g.len() / heads;
    let mut out = vec![0.0; n * dims.value_width()];
    for token in 0..n {
        for head in 0..heads {
            let key_head = head / (heads / dims.key_heads);
            let keys = (token * dims.key_heads + key_head) * dims.key_dim;
            let q = &input.q[keys..][..dims.key_dim];
            let k = &input.k[keys..][..dims.key_dim];
            let at = token * dims.value_width() + head * width;
            let v = &input.v[at..][..width];
            let out = &mut out[at..][..width];
            let state = &mut state[head * dims.key_dim * width..][..dims.key_dim * width];

            let decay = input.g[token * heads + head].exp();
            state.iter_mut().for_each(|s| *s *= decay);
            let mut correction = v.to_vec();
            for (row, k) in state.chunks_exact(width).zip(k) {
                correction
                    .iter_mut()
                    .zip(row)
                    .for_each(|(c, s)| *c -= k * s);
            }
            let beta = input.beta[token * heads + head];
            correction.iter_mut().for_each(|c| *c *= beta);
            for (row, (k, q)) in state.chunks_exact_mut(width).zip(k.iter().zip(q)) {
                for ((s, c), o) in row.iter_mut().zip(&correction).zip(&mut *out) {
                    *s += k * c;
                    *o += q * *s;
                }
            }
        }
    }
    out
}
