use std::collections::BTreeMap;

/// Measured times of steps: of the target's pass by rows, and of drafting.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// Milliseconds of verification, commit and all that surrounds them, by rows.
    verify: Curve,
    /// Milliseconds of a DFlash block, by sequences.
    block: Curve,
    /// Milliseconds of one draft of the MTP head, by sequences.
    head: Curve,
}

/// What a step drafts with, as far as time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Nothing that takes time.
    Plain,
    /// A block of the DFlash drafter.
    Block,
    /// So many passes of the MTP head.
    Mtp(usize),
}

impl Costs {
    /// Takes in a step of `sequences` sequences, all of one kind, with `rows` rows in total.
    pub fn take(&mut self, kind: StepKind, sequences: usize, rows: usize, ms: f64) {
        match kind {
            StepKind::Plain => self.verify.add(bucket(rows), ms),
            StepKind::Block => {
                if let Some(verify) = self.verify.at(rows) {
                    self.block.add(sequences, (ms - verify).max(0.0));
                }
            }
            StepKind::Mtp(0) => {}
            StepKind::Mtp(drafts) => {
                if let Some(verify) = self.verify.at(rows) {
                    self.head
                        .add(sequences, (ms - verify).max(0.0) / drafts as f64);
                }
            }
        }
    }

    /// Expected milliseconds of such a step. Before anything is measured a target pass counts as
    /// 1, however many rows it has, and a draft as a tenth of it.
    pub fn step_ms(&self, kind: StepKind, sequences: usize, rows: usize) -> f64 {
        const TENTH: f64 = 0.1;
        let verify = self.verify.at(rows).unwrap_or(1.0);
        let draft = match kind {
            StepKind::Plain => 0.0,
            StepKind::Block => self.block.at(sequences).unwrap_or(verify * TENTH),
            StepKind::Mtp(drafts) => {
                drafts as f64 * self.head.at(sequences).unwrap_or(verify * TENTH)
            }
        };
        (verify + draft).max(f64::MIN_POSITIVE)
    }
}

/// Rows that cost about the same: all up to 16, then steps of an eighth.
fn bucket(rows: usize) -> usize {
    match rows {
        0..=16 => rows,
        _ => {
            let step = (rows.next_power_of_two() / 16).max(1);
            rows.div_ceil(step) * step
        }
    }
}

/// Moving means at some sizes, with straight lines in between.
#[derive(Clone, Debug, Default)]
struct Curve {
    means: BTreeMap<usize, Mean>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: f64,
    samples: u32,
}

impl Curve {
    fn add(&mut self, size: usize, value: f64) {
        const MEMORY: u32 = 12;
        const OUTLIER: f64 = 2.0;
        let mean = self.means.entry(size).or_default();
        mean.samples = (mean.samples + 1).min(MEMORY);
        // Other work on the machine makes single steps slow, never fast.
        let value = match mean.samples {
            1 => value,
            _ => value.min(OUTLIER * mean.value + 0.1),
        };
        mean.value += (value - mean.value) / f64::from(mean.samples);
    }

    fn at(&self, size: usize) -> Option<f64> {
        let below = self.means.range(..=size).next_back();
        let above = self.means.range(size..).next();
        let line = |(x0, y0): (&usize, &Mean), (x1, y1): (&usize, &Mean)| {
            let share = (size as f64 - *x0 as f64) / (*x1 as f64 - *x0 as f64);
            y0.value + share * (y1.value - y0.value)
        };
        match (below, above) {
            (Some(below), Some(above)) if below.0 != above.0 => Some(line(below, above)),
            (Some(exact), Some(_)) => Some(exact.1.value),
            (None, Some(above)) => Some(above.1.value),
            // Behind the largest size the cost goes on as it rose on the whole, but never falls.
            (Some(last), None) => match self.means.iter().next() {
                Some(first) if first.0 != last.0 => Some(line(first, last).max(last.1.value)),
                _ => Some(last.1.value),
            },
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_told_apart() {
        let mut costs = Costs::default();
        assert_eq!(costs.step_ms(StepKind::Plain, 1, 16), 1.0);
        for _ in 0..20 {
            costs.take(StepKind::Plain, 1, 1, 10.0);
            costs.take(StepKind::Plain, 1, 16, 12.0);
            costs.take(StepKind::Block, 1, 16, 14.0);
            costs.take(StepKind::Mtp(3), 1, 4, 13.4);
        }
        let near = |kind, rows, ms: f64| {
            let got = costs.step_ms(kind, 1, rows);
            assert!((got - ms).abs() < 0.01, "{kind:?} {rows}: {got}, not {ms}");
        };
        near(StepKind::Plain, 1, 10.0);
        near(StepKind::Plain, 16, 12.0);
        near(StepKind::Plain, 8, 10.93);
        near(StepKind::Plain, 31, 14.0);
        near(StepKind::Block, 1, 12.0);
        near(StepKind::Block, 16, 14.0);
        near(StepKind::Mtp(1), 4, 11.4);
    }

    #[test]
    fn means_follow_and_single_slow_steps_count_little() {
        let mut curve = Curve::default();
        for _ in 0..50 {
            curve.add(4, 10.0);
        }
        curve.add(4, 1000.0);
        assert!(curve.at(4).unwrap() < 11.0);
        for _ in 0..60 {
            curve.add(4, 14.0);
        }
        assert!((curve.at(4).unwrap() - 14.0).abs() < 0.1);
    }

    #[test]
    fn buckets_are_an_eighth_wide() {
        assert_eq!(
            [1, 15, 16, 17, 32, 33, 64, 65].map(bucket),
            [1, 15, 16, 18, 32, 36, 64, 72]
        );
    }
}
