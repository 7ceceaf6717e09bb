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

/// `y += a x`.
#[inline(always)]
pub fn add_scaled<S: Simd>(simd: S, a: f32, x: &[f32], y: &mut [f32]) {
    let (x, x_tail) = S::as_simd_f32s(x);
    let (y, y_tail) = S::as_mut_simd_f32s(y);
    let by = simd.splat_f32s(a);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = simd.mul_add_e_f32s(by, x, *y);
    }
    for (y, x) in y_tail.iter_mut().zip(x_tail) {
        *y += a * x;
    }
}
