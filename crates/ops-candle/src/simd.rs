//! Vector loops for the widest registers of the machine, chosen at run time. Which they are is a
//! property of the machine, so equal inputs give equal bits.

use pulp::{Arch, Simd, WithSimd};

/// Runs a kernel in the best form this machine supports. Its `with_simd` must be
/// `#[inline(always)]`, with all it calls.
pub fn dispatch<K: WithSimd>(kernel: K) -> K::Output {
    Arch::new().dispatch(kernel)
}

/// Dot product of equally long slices, in an order that depends on their length only.
#[inline(always)]
pub fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    const CHAINS: usize = 4;
    let (a, a_tail) = S::as_simd_f32s(a);
    let (b, b_tail) = S::as_simd_f32s(b);
    let mut sums = [simd.splat_f32s(0.0); CHAINS];
    let (a_fours, a_rest) = pulp::as_arrays::<CHAINS, _>(a);
    let (b_fours, b_rest) = pulp::as_arrays::<CHAINS, _>(b);
    for (a, b) in a_fours.iter().zip(b_fours) {
        for i in 0..CHAINS {
            sums[i] = simd.mul_add_e_f32s(a[i], b[i], sums[i]);
        }
    }
    for (&a, &b) in a_rest.iter().zip(b_rest) {
        sums[0] = simd.mul_add_e_f32s(a, b, sums[0]);
    }
    let sum = simd.add_f32s(
        simd.add_f32s(sums[0], sums[1]),
        simd.add_f32s(sums[2], sums[3]),
    );
    let tail = a_tail.iter().zip(b_tail);
    tail.fold(simd.reduce_sum_f32s(sum), |sum, (a, b)| sum + a * b)
}

/// `y += sum_j weights[j] row(j)`, added one after another; all rows are as long as `y`.
#[inline(always)]
pub fn add_weighted<'a, S: Simd>(
    simd: S,
    weights: &[f32],
    row: impl Fn(usize) -> &'a [f32],
    y: &mut [f32],
) {
    /// Vectors of sums held in registers.
    const VECTORS: usize = 8;
    let mut first = 0;
    while first + VECTORS * S::F32_LANES <= y.len() {
        let part = first..first + VECTORS * S::F32_LANES;
        let (sums, _) = S::as_mut_simd_f32s(&mut y[part.clone()]);
        let mut held: [S::f32s; VECTORS] = [simd.splat_f32s(0.0); VECTORS];
        held.copy_from_slice(sums);
        for (j, &weight) in weights.iter().enumerate() {
            let (x, _) = S::as_simd_f32s(&row(j)[part.clone()]);
            let weight = simd.splat_f32s(weight);
            for v in 0..VECTORS {
                held[v] = simd.mul_add_e_f32s(weight, x[v], held[v]);
            }
        }
        sums.copy_from_slice(&held);
        first += VECTORS * S::F32_LANES;
    }
    if first < y.len() {
        for (j, &weight) in weights.iter().enumerate() {
            for (y, x) in y[first..].iter_mut().zip(&row(j)[first..]) {
                *y += weight * x;
            }
        }
    }
}
