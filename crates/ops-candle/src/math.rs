//! Functions of single values, and of many at once.

use pulp::{Simd, WithSimd};

use crate::simd::{dispatch, dot};

/// Logistic function.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`, which is `x` beyond 20 in f32.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `e^x` to about one unit in the last place, in operations that a compiler turns into vectors.
/// Results below the smallest normal number become that number, above the largest the largest.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Added to a small float, it rounds it to an integer in the low mantissa bits.
    const TO_INTEGER: f32 = 12_582_912.0;
    /// ln 2 in two parts; products of an exponent with the first are exact.
    const LN_2: (f32, f32) = (355.0 / 512.0, -2.121_944_4e-4);
    // From the last to the first: 1/7!, 1/6!, ... 1/0!.
    const FACTORS: [f32; 8] = [
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let x = x.clamp(-87.3, 88.7);
    let shifted = x * std::f32::consts::LOG2_E + TO_INTEGER;
    let exponent = shifted - TO_INTEGER;
    let rest = x - exponent * LN_2.0 - exponent * LN_2.1;
    let mut power = FACTORS[0];
    for factor in &FACTORS[1..] {
        power = power * rest + factor;
    }
    f32::from_bits(power.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// `x * sigmoid(x)` of each value.
pub fn silu_all(x: &mut [f32]) {
    dispatch(Silu(x));
}

struct Silu<'a>(&'a mut [f32]);

impl WithSimd for Silu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for x in self.0 {
            *x /= 1.0 + exp(-*x);
        }
    }
}

/// `out = silu(gate) * by`.
pub fn silu_times(gate: &[f32], by: &[f32], out: &mut [f32]) {
    dispatch(SiluTimes { gate, by, out });
}

struct SiluTimes<'a> {
    gate: &'a [f32],
    by: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for SiluTimes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((out, &gate), &by) in self.out.iter_mut().zip(self.gate).zip(self.by) {
            *out = gate / (1.0 + exp(-gate)) * by;
        }
    }
}

/// Sum of squares, in an order that depends on the length only.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    dispatch(SumOfSquares(x))
}

struct SumOfSquares<'a>(&'a [f32]);

impl WithSimd for SumOfSquares<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        dot(simd, self.0, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in -870_000..887_000 {
            let x = i as f32 * 1e-4;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn exp_of_extremes_is_finite_and_of_nan_is_nan() {
        assert!(exp(-1e30) > 0.0 && exp(-1e30) < 1.3e-38);
        assert!(exp(1e30) > 3e38 && exp(1e30).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn silu_follows_the_definition_in_every_form() {
        let x: Vec<f32> = (-400..400).map(|i| i as f32 * 0.3).collect();
        let by: Vec<f32> = x.iter().map(|x| x.cos()).collect();
        let (mut all, mut times) = (x.clone(), vec![0.0; x.len()]);
        silu_all(&mut all);
        silu_times(&x, &by, &mut times);
        for (i, &x) in x.iter().enumerate() {
            let want = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            let near =
                |got: f32, want: f64| (f64::from(got) - want).abs() <= 5e-7 * want.abs() + 1e-35;
            assert!(near(all[i], want), "silu({x}) = {}", all[i]);
            assert!(near(times[i], want * f64::from(by[i])), "{x}");
        }
    }
}
