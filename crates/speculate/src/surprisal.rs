/// Units of a bit.
const BIT: u32 = 1 << 16;
/// Most bits that a token is behind the likeliest one.
const MOST_BITS: u32 = 60;
/// A weight of 1.
const ONE: u64 = 1 << 30;

/// Surprisals `-log2 p` of a row's candidates, likeliest first, under the softmax over these at a temperature
/// above 0: whole numbers of 2^-16 bits, right to some thousandths of a bit. They are made of whole numbers,
/// so that every device comes to the same ones (`volley_ops::Ops::grow`), and any order to the same sum.
pub fn surprisals(logits: &[f32], temperature: f32) -> Vec<u32> {
    let scale = (f64::from(BIT) * std::f64::consts::LOG2_E / f64::from(temperature)) as f32;
    let largest = logits.first().copied().unwrap_or(0.0);
    let behind = logits.iter().map(|logit| behind(largest, *logit, scale));
    let behind: Vec<u32> = behind.collect();
    let total = log2(behind.iter().copied().map(weight).sum());
    behind.into_iter().map(|bits| bits + total).collect()
}

/// How far a logit is behind the largest; what is no number is as far as can be.
fn behind(largest: f32, logit: f32, scale: f32) -> u32 {
    let units = (largest - logit) * scale;
    match units < (MOST_BITS * BIT) as f32 {
        true => units as u32,
        false => MOST_BITS * BIT,
    }
}

/// `2^-bits`, by a polynomial between whole bits.
fn weight(bits: u32) -> u64 {
    let (part, unit) = (u64::from(bits % BIT), u64::from(BIT));
    let inner = 248_207_216 - part * 42_480_028 / unit;
    let outer = 742_598_100 - part * inner / unit;
    (ONE - part * outer / unit) >> (bits / BIT)
}

/// Units of `log2(sum)`, of a sum in units of [`ONE`]; 0 below it.
fn log2(sum: u64) -> u32 {
    let sum = sum.max(ONE);
    let whole = sum.ilog2();
    let part = (sum >> (whole - 16)) as u32 % BIT;
    let bend = part * (BIT - part) / BIT * (27_582 - part * 10_249 / BIT) / BIT;
    (whole - 30) * BIT + part + bend
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surprisals_are_those_of_the_softmax() {
        for temperature in [0.1, 0.7, 1.0, 4.0] {
            for spread in [0.0, 0.3, 2.0, 9.0] {
                let logits: Vec<f32> = (0..64).map(|i| 5.0 - spread * (i as f32).sqrt()).collect();
                let weight = |logit: f32| (f64::from(logit) / f64::from(temperature)).exp();
                let total: f64 = logits.iter().copied().map(weight).sum();
                let found = surprisals(&logits, temperature);
                for (&logit, units) in logits.iter().zip(found) {
                    let expected = -(weight(logit) / total).log2();
                    let found = f64::from(units) / f64::from(BIT);
                    assert!(
                        (found - expected).abs() < 3e-3 || expected > 60.0 && found >= 60.0,
                        "{found} for {expected} at {temperature}"
                    );
                }
            }
        }
    }

    /// What a tree is made of is the same everywhere, to the last unit.
    #[test]
    fn surprisals_are_exact() {
        let logits = [2.0, 1.5, 1.25, -3.0, f32::NEG_INFINITY];
        let units = surprisals(&logits, 1.0);
        assert_eq!(surprisals(&[f32::NAN; 2], 1.0), [MOST_BITS * BIT; 2]);
        assert_eq!(surprisals(&[1.0], 0.3), [0]);
        assert_eq!(surprisals(&[1.0; 4], 0.3), [2 * BIT; 4]);
        assert_eq!(units, [69_456, 116_730, 140_367, 542_198, 4_001_616]);
    }
}
