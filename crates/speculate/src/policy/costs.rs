use std::collections::BTreeMap;

use super::curve::Curve;
use crate::DraftPlan;

/// Expected times of steps.
///
/// What steps cost in relation to each other was timed at the start. Requests teach what is
/// different with them, as factors: one for all steps (the context is longer, the machine does
/// other things), which follows fast and changes no choice; one for the kind of step and one for
/// its size, which follow slowly. So a kind that was not tried for a while does not look cheap
/// because times were good when it was, and a size that was timed wrong is found out when used.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// Milliseconds of a step that drafts nothing, by rows.
    verify: Curve,
    /// Milliseconds of DFlash blocks, by sequences.
    block: Curve,
    /// What a tree of one takes besides, by its rows: to make it, and what verifying it takes more than copies.
    tree: Curve,
    /// Milliseconds of one draft of the MTP head, by sequences.
    head: Curve,
    /// Logarithms of the factors.
    pace: f64,
    kinds: [f64; StepKind::COUNT],
    sizes: BTreeMap<Size, f64>,
}

/// Steps of about the same cost: kind, sequences and rows.
type Size = (usize, usize, usize);

/// What a step drafts with, as far as time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Nothing that takes time.
    Plain,
    /// A chain of the DFlash drafter.
    Block,
    /// A tree of the DFlash drafter.
    Tree,
    /// So many passes of the MTP head.
    Mtp(usize),
}

impl StepKind {
    const COUNT: usize = 4;

    /// How a step of this plan drafts.
    pub fn of(plan: &DraftPlan) -> Self {
        match plan {
            DraftPlan::None | DraftPlan::Given(_) => Self::Plain,
            DraftPlan::Chain { .. } => Self::Block,
            DraftPlan::Tree(_) => Self::Tree,
            DraftPlan::Mtp { depth } => Self::Mtp(*depth),
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Block => 1,
            Self::Tree => 2,
            Self::Mtp(_) => 3,
        }
    }
}

impl Costs {
    /// Takes in a step of `sequences`, with `rows` rows in total, timed before there were requests;
    /// plain ones first, then chains.
    pub fn calibrate(&mut self, kind: StepKind, sequences: usize, rows: usize, ms: f64) {
        let beyond = (ms - self.verify.at(rows).unwrap_or(0.0)).max(0.0);
        match kind {
            StepKind::Plain => self.verify.set(rows, ms),
            StepKind::Block => self.block.set(sequences, beyond),
            // Of several only what the rows take is known to grow.
            StepKind::Tree if sequences > 1 => {}
            StepKind::Tree => {
                let known = [self.verify.at(rows), self.block.at(1)];
                let known: f64 = known.into_iter().flatten().sum();
                self.tree.set(rows, ms - known);
            }
            StepKind::Mtp(0) => {}
            StepKind::Mtp(drafts) => self.head.set(sequences, beyond / drafts as f64),
        }
    }

    /// Takes in a step of requests: `sequences` of them, all of one kind, with `rows` rows in
    /// total.
    pub fn take(&mut self, kind: StepKind, sequences: usize, rows: usize, ms: f64) {
        // Shares of a surprise that go to each factor.
        const PACE: f64 = 0.2;
        const KIND: f64 = 0.04;
        const SIZE: f64 = 0.04;
        /// Other work on the machine makes single steps slow by any factor.
        const MOST: f64 = 2.0;
        let surprise = (ms / self.step_ms(kind, sequences, rows)).ln();
        if !surprise.is_finite() {
            return;
        }
        // Without any times from the start the first step sets the pace.
        let unknown = self.verify.is_empty() && self.sizes.is_empty();
        let (pace, surprise) = match unknown {
            true => (1.0, surprise),
            false => (PACE, surprise.clamp(-MOST.ln(), MOST.ln())),
        };
        self.pace += pace * surprise;
        self.kinds[kind.index()] += KIND * surprise;
        *self.sizes.entry(size(kind, sequences, rows)).or_default() += SIZE * surprise;
    }

    /// Expected milliseconds of such a step. Before anything is measured a target pass counts as
    /// 1, however many rows it has, and a draft as a tenth of it.
    pub fn step_ms(&self, kind: StepKind, sequences: usize, rows: usize) -> f64 {
        const TENTH: f64 = 0.1;
        let verify = self.verify.at(rows).unwrap_or(1.0);
        let tenth = || TENTH * self.verify.at(rows / sequences.max(1)).unwrap_or(1.0);
        let block = || {
            let block = self.drafting(&self.block, sequences, BLOCK);
            block.unwrap_or_else(|| tenth() * self.grown(BLOCK, 1, sequences))
        };
        let draft = match kind {
            StepKind::Plain => 0.0,
            StepKind::Block => block(),
            StepKind::Tree => {
                let besides = self.tree.at(rows / sequences.max(1)).unwrap_or(0.0);
                block() + besides * self.grown(BLOCK, 1, sequences)
            }
            StepKind::Mtp(drafts) => {
                let head = self.drafting(&self.head, sequences, 1);
                let head = head.unwrap_or_else(|| tenth() * self.grown(1, 1, sequences));
                drafts as f64 * head
            }
        };
        let factors = self.pace + self.kinds[kind.index()] + self.of_size(kind, sequences, rows);
        ((verify + draft) * factors.exp()).max(f64::MIN_POSITIVE)
    }

    /// The factor of a size, or of the next one that was used: what is different with requests is much
    /// the same for both, and a size should not look cheap for not being used.
    fn of_size(&self, kind: StepKind, sequences: usize, rows: usize) -> f64 {
        let (kind, sequences, rows) = size(kind, sequences, rows);
        let of = |rows| (kind, sequences, rows);
        let above = self.sizes.range(of(rows)..=of(usize::MAX)).next();
        let below = self.sizes.range(of(0)..of(rows)).next_back();
        let far = |((.., other), _): &(&Size, &f64)| other.abs_diff(rows);
        let nearest = above.into_iter().chain(below).min_by_key(far);
        nearest.map_or(0.0, |(_, &factor)| factor)
    }

    /// Drafting for so many sequences, of `rows` rows each: as measured, and for more sequences
    /// dearer as a pass of the target is.
    fn drafting(&self, measured: &Curve, sequences: usize, rows: usize) -> Option<f64> {
        let timed = sequences.min(measured.last()?);
        let ms = measured.at(timed)?;
        Some(ms * self.grown(rows, timed, sequences))
    }

    /// How much dearer a pass of the target is for `more` sequences of `rows` rows than for `few`.
    fn grown(&self, rows: usize, few: usize, more: usize) -> f64 {
        let verify = |sequences| self.verify.at(rows * sequences).unwrap_or(1.0);
        match few == more {
            true => 1.0,
            false => verify(more) / verify(few),
        }
    }
}

/// Rows of a drafter's block, about.
const BLOCK: usize = 16;

fn size(kind: StepKind, sequences: usize, rows: usize) -> Size {
    (kind.index(), bucket(sequences), bucket(rows))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn timed() -> Costs {
        let mut costs = Costs::default();
        for (kind, rows, ms) in [
            (StepKind::Plain, 1, 10.0),
            (StepKind::Plain, 16, 12.0),
            (StepKind::Block, 16, 14.0),
            (StepKind::Mtp(3), 4, 13.4),
        ] {
            costs.calibrate(kind, 1, rows, ms);
        }
        costs
    }

    #[track_caller]
    fn near(costs: &Costs, kind: StepKind, rows: usize, ms: f64) {
        let got = costs.step_ms(kind, 1, rows);
        assert!(
            (got / ms - 1.0).abs() < 0.01,
            "{kind:?} {rows}: {got}, not {ms}"
        );
    }

    #[test]
    fn costs_are_told_apart() {
        assert_eq!(Costs::default().step_ms(StepKind::Plain, 1, 16), 1.0);
        let mut costs = timed();
        near(&costs, StepKind::Plain, 1, 10.0);
        near(&costs, StepKind::Plain, 16, 12.0);
        near(&costs, StepKind::Plain, 8, 10.93);
        near(&costs, StepKind::Plain, 31, 14.0);
        near(&costs, StepKind::Block, 1, 12.0);
        near(&costs, StepKind::Block, 16, 14.0);
        near(&costs, StepKind::Mtp(1), 4, 11.4);
        // A tree costs what a chain does until one was timed.
        near(&costs, StepKind::Tree, 16, 14.0);
        costs.calibrate(StepKind::Tree, 1, 16, 15.0);
        near(&costs, StepKind::Tree, 16, 15.0);
        near(&costs, StepKind::Block, 16, 14.0);
        // Each size as it was timed, whatever copies of as many rows took.
        costs.calibrate(StepKind::Plain, 1, 32, 20.0);
        costs.calibrate(StepKind::Tree, 1, 32, 17.0);
        near(&costs, StepKind::Tree, 32, 17.0);
        near(&costs, StepKind::Tree, 24, 16.0);
        near(&costs, StepKind::Tree, 16, 15.0);
        // Two blocks are dearer than one as 32 rows are than 16.
        costs.calibrate(StepKind::Plain, 1, 32, 14.0);
        let two = costs.step_ms(StepKind::Block, 2, 32);
        let rows_32 = costs.step_ms(StepKind::Plain, 1, 32);
        assert!((two - (rows_32 + 2.0 * rows_32 / 12.0)).abs() < 1e-9);
    }

    #[test]
    fn a_slow_spell_changes_little_of_what_kinds_are_to_each_other() {
        let mut costs = timed();
        let ratio = |costs: &Costs| {
            costs.step_ms(StepKind::Block, 1, 16) / costs.step_ms(StepKind::Plain, 1, 16)
        };
        // A long context makes chains take half as long again, and nothing else is tried.
        (0..200).for_each(|_| costs.take(StepKind::Block, 1, 16, 21.0));
        near(&costs, StepKind::Block, 16, 21.0);
        assert!((1.16..1.4).contains(&ratio(&costs)), "{}", ratio(&costs));
        // Chains that are dearer by themselves are noticed as soon as others are tried.
        for _ in 0..100 {
            costs.take(StepKind::Block, 1, 16, 21.0);
            costs.take(StepKind::Plain, 1, 16, 12.0);
        }
        assert!((1.7..1.8).contains(&ratio(&costs)), "{}", ratio(&costs));
    }

    #[test]
    fn a_size_that_was_timed_wrong_is_found_out() {
        let mut costs = timed();
        costs.calibrate(StepKind::Plain, 1, 8, 4.0);
        for _ in 0..100 {
            costs.take(StepKind::Plain, 1, 8, 11.0);
            costs.take(StepKind::Block, 1, 16, 14.0);
        }
        near(&costs, StepKind::Plain, 8, 11.0);
        near(&costs, StepKind::Block, 16, 14.0);
    }

    #[test]
    fn a_size_that_is_not_used_does_not_look_cheap_for_it() {
        let mut costs = timed();
        let ratio = |costs: &Costs| {
            costs.step_ms(StepKind::Block, 1, 14) / costs.step_ms(StepKind::Block, 1, 16)
        };
        let before = ratio(&costs);
        for _ in 0..100 {
            costs.take(StepKind::Block, 1, 16, 18.0);
            costs.take(StepKind::Plain, 1, 1, 10.0);
        }
        assert!((ratio(&costs) / before - 1.0).abs() < 1e-9);
    }

    #[test]
    fn single_slow_steps_count_little() {
        let mut costs = timed();
        costs.take(StepKind::Plain, 1, 16, 1e6);
        assert!(costs.step_ms(StepKind::Plain, 1, 16) < 12.0 * 1.3);
        for odd in [0.0, f64::NAN, f64::INFINITY] {
            costs.take(StepKind::Plain, 1, 16, odd);
        }
        assert!(costs.step_ms(StepKind::Plain, 1, 16) < 12.0 * 1.3);
    }

    #[test]
    fn an_engine_that_timed_nothing_learns_from_its_requests() {
        let mut costs = Costs::default();
        for _ in 0..100 {
            costs.take(StepKind::Plain, 1, 1, 30.0);
            costs.take(StepKind::Block, 1, 16, 60.0);
        }
        near(&costs, StepKind::Plain, 1, 30.0);
        near(&costs, StepKind::Block, 16, 60.0);
    }

    #[test]
    fn buckets_are_an_eighth_wide() {
        assert_eq!(
            [1, 15, 16, 17, 32, 33, 64, 65].map(bucket),
            [1, 15, 16, 18, 32, 36, 64, 72]
        );
    }
}
