use std::collections::BTreeMap;

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
    /// Milliseconds of a DFlash block for one sequence.
    block: Option<f64>,
    /// The same and making a tree of it.
    tree: Option<f64>,
    /// Milliseconds of one draft of the MTP head for one sequence.
    head: Option<f64>,
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
    /// Takes in a step of one sequence, timed before there were requests; plain ones first.
    pub fn calibrate(&mut self, kind: StepKind, rows: usize, ms: f64) {
        let beyond = (ms - self.verify.at(rows).unwrap_or(0.0)).max(0.0);
        match kind {
            StepKind::Plain => self.verify.set(rows, ms),
            StepKind::Block => self.block = Some(beyond),
            StepKind::Tree => self.tree = Some(beyond),
            StepKind::Mtp(0) => {}
            StepKind::Mtp(drafts) => self.head = Some(beyond / drafts as f64),
        }
    }

    /// Takes in a step of requests: `sequences` of them, all of one kind, with `rows` rows in
    /// total.
    pub fn take(&mut self, kind: StepKind, sequences: usize, rows: usize, ms: f64) {
        // Shares of a surprise that go to each factor.
        const PACE: f64 = 0.2;
        const KIND: f64 = 0.05;
        const SIZE: f64 = 0.05;
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
        let verify = |rows| self.verify.at(rows).unwrap_or(1.0);
        // A draft of several sequences is dearer than of one as a pass of the target is.
        let grown = |rows| verify(rows * sequences) / verify(rows);
        let block = || self.block.unwrap_or(TENTH * verify(rows));
        let draft = match kind {
            StepKind::Plain => 0.0,
            StepKind::Block => block() * grown(BLOCK),
            StepKind::Tree => self.tree.unwrap_or_else(block) * grown(BLOCK),
            StepKind::Mtp(drafts) => {
                let head = self.head.unwrap_or(TENTH * verify(rows));
                drafts as f64 * head * grown(1)
            }
        };
        let size = self.sizes.get(&size(kind, sequences, rows));
        let factors = self.pace + self.kinds[kind.index()] + size.copied().unwrap_or(0.0);
        ((verify(rows) + draft) * factors.exp()).max(f64::MIN_POSITIVE)
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

/// Values at some sizes, with straight lines in between.
#[derive(Clone, Debug, Default)]
struct Curve {
    values: BTreeMap<usize, f64>,
}

impl Curve {
    fn set(&mut self, size: usize, value: f64) {
        self.values.insert(size, value);
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn at(&self, size: usize) -> Option<f64> {
        let below = self.values.range(..=size).next_back();
        let above = self.values.range(size..).next();
        let line = |(x0, y0): (&usize, &f64), (x1, y1): (&usize, &f64)| {
            let share = (size as f64 - *x0 as f64) / (*x1 as f64 - *x0 as f64);
            y0 + share * (y1 - y0)
        };
        match (below, above) {
            (Some(below), Some(above)) if below.0 != above.0 => Some(line(below, above)),
            (Some(exact), Some(_)) => Some(*exact.1),
            (None, Some(above)) => Some(*above.1),
            // Behind the largest size the cost goes on as it rose on the whole, but never falls.
            (Some(last), None) => match self.values.iter().next() {
                Some(first) if first.0 != last.0 => Some(line(first, last).max(*last.1)),
                _ => Some(*last.1),
            },
            (None, None) => None,
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
            costs.calibrate(kind, rows, ms);
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
        costs.calibrate(StepKind::Tree, 16, 15.0);
        near(&costs, StepKind::Tree, 16, 15.0);
        near(&costs, StepKind::Block, 16, 14.0);
        // Two blocks are dearer than one as 32 rows are than 16.
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
        costs.calibrate(StepKind::Plain, 8, 4.0);
        for _ in 0..100 {
            costs.take(StepKind::Plain, 1, 8, 11.0);
            costs.take(StepKind::Block, 1, 16, 14.0);
        }
        near(&costs, StepKind::Plain, 8, 11.0);
        near(&costs, StepKind::Block, 16, 14.0);
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
