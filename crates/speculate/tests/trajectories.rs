//! The policy on recorded answers of the demo pair, at the step costs of some machines, against the
//! best fixed way to draft.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use volley_speculate::policy::{BUDGETS, Choices, LOOKUPS, Policy, SequencePolicy, StepKind};
use volley_speculate::{DraftPlan, Lookup, Trajectory, TreeShape};

/// A line of what `volley bench simulate models/demo/eval/methods.jsonl --trajectories` writes.
#[derive(Deserialize)]
struct Line {
    kind: String,
    prompt: Vec<u32>,
    output: Vec<u32>,
    depth: usize,
    chain: Vec<usize>,
    trees: BTreeMap<usize, Vec<usize>>,
}

fn trajectories() -> Vec<(String, Trajectory)> {
    let lines = include_str!("trajectories.jsonl").lines().map(|line| {
        let line: Line = serde_json::from_str(line).unwrap();
        let trajectory = Trajectory {
            prompt: line.prompt,
            output: line.output,
            depth: line.depth,
            chain: line.chain,
            trees: line.trees,
        };
        (line.kind, trajectory)
    });
    lines.collect()
}

/// What steps of one sequence cost.
#[derive(Debug)]
struct Machine {
    /// Milliseconds without drafts, by rows.
    plain: &'static [(usize, f64)],
    /// Of a DFlash block besides.
    block: f64,
    /// Of making a tree besides.
    tree: f64,
    /// Deviation of a step's time, as a share.
    noise: f64,
}

/// The demo pair on two cores (methods-cpu.json).
const TWO_CORES: Machine = Machine {
    plain: &[
        (1, 2.0),
        (8, 3.3),
        (16, 5.2),
        (23, 6.7),
        (32, 8.6),
        (64, 15.5),
    ],
    block: 2.4,
    tree: 0.1,
    noise: 0.05,
};
/// The same where it has to share them: a row more is no longer cheap.
const SHARED_CORES: Machine = Machine {
    plain: &[
        (1, 4.4),
        (4, 4.4),
        (8, 6.6),
        (16, 9.5),
        (23, 13.0),
        (32, 17.5),
        (64, 37.9),
    ],
    block: 5.1,
    tree: 0.1,
    noise: 0.1,
};
/// The same on one H200: medians of served steps by rows.
const H200: Machine = Machine {
    plain: &[
        (1, 0.195),
        (16, 0.245),
        (20, 0.30),
        (32, 0.33),
        (36, 0.40),
        (64, 0.44),
    ],
    block: 0.08,
    tree: 0.1,
    noise: 0.03,
};
/// The same where many rows are dear.
const DEAR_ROWS: Machine = Machine {
    plain: &[(1, 0.195), (16, 0.262), (64, 0.6)],
    block: 0.08,
    tree: 0.1,
    noise: 0.03,
};
/// As if its answers came from Qwen3.6-27B on one H200 (step-27b-methods-h200.json).
const LARGE: Machine = Machine {
    plain: &[(1, 13.4), (16, 14.0), (32, 14.4), (64, 15.6)],
    block: 1.7,
    tree: 0.4,
    noise: 0.02,
};

impl Machine {
    fn ms(&self, kind: StepKind, rows: usize) -> f64 {
        let pair = self
            .plain
            .windows(2)
            .find(|pair| rows <= pair[1].0)
            .unwrap();
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let plain = y0 + (y1 - y0) * (rows as f64 - x0 as f64) / (x1 as f64 - x0 as f64);
        plain
            + match kind {
                StepKind::Block => self.block,
                StepKind::Tree => self.block + self.tree,
                StepKind::Plain | StepKind::Mtp(_) => 0.0,
            }
    }

    /// What an engine on it knows at its start: medians of five steps of each size.
    fn policy(&self, noise: &mut Noise) -> Policy {
        let mut policy = Policy::default();
        let rows = LOOKUPS.into_iter().chain(BUDGETS).map(|drafts| 1 + drafts);
        let plain = rows.chain([1]).map(|rows| (StepKind::Plain, rows));
        let trees = BUDGETS.map(|budget| (StepKind::Tree, 1 + budget));
        for (kind, rows) in plain.chain([(StepKind::Block, 16)]).chain(trees) {
            let mut times: Vec<f64> = (0..5).map(|_| self.ms(kind, rows) * noise.next()).collect();
            times.sort_by(f64::total_cmp);
            policy.costs.calibrate(kind, 1, rows, times[2]);
        }
        policy
    }

    /// What a fixed way takes.
    fn fixed(&self, trajectory: &Trajectory, plan: impl Fn(&Lookup) -> DraftPlan) -> f64 {
        let mut walk = trajectory.walk();
        let mut ms = 0.0;
        while !walk.ended() {
            let plan = plan(walk.lookup());
            walk.step(&plan);
            ms += self.ms(StepKind::of(&plan), 1 + plan.most_drafts());
        }
        ms
    }
}

/// Factors about 1, the same for the same seed.
struct Noise {
    state: u64,
    deviation: f64,
}

impl Noise {
    fn next(&mut self) -> f64 {
        let mut uniform = || {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005);
            self.state = self.state.wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        let sum: f64 = (0..4).map(|_| uniform()).sum();
        (self.deviation * sum * 3f64.sqrt()).exp()
    }
}

const CHOICES: Choices = Choices {
    chain: 15,
    tree_budget: 63,
    seeded: true,
    mtp: 0,
    lookup: 63,
};

type Fixed = (&'static str, fn(&Lookup) -> DraftPlan);

const FIXED: [Fixed; 7] = [
    ("none", |_| DraftPlan::None),
    ("lookup", |lookup| match lookup.repeat() {
        Some(repeat) if repeat.len >= 3 => DraftPlan::Given(lookup.continuation(repeat, 15)),
        _ => DraftPlan::None,
    }),
    ("chain of 7", |_| DraftPlan::Chain { depth: 7 }),
    ("chain of 15", |_| DraftPlan::Chain { depth: 15 }),
    ("tree of 22", |_| tree(22)),
    ("tree of 31", |_| tree(31)),
    ("tree of 63", |_| tree(63)),
];

fn tree(budget: usize) -> DraftPlan {
    DraftPlan::Tree(TreeShape {
        budget,
        depth: 15,
        seeded: true,
    })
}

/// Milliseconds of `auto` and of each fixed way by set, one engine answering all: set by set, or mixed.
fn times(machine: &Machine, seed: u64, mixed: bool) -> BTreeMap<String, (f64, [f64; FIXED.len()])> {
    let mut noise = Noise {
        state: seed,
        deviation: machine.noise,
    };
    let mut policy = machine.policy(&mut noise);
    let mut times: BTreeMap<String, (f64, [f64; FIXED.len()])> = BTreeMap::new();
    let mut all = trajectories();
    if mixed {
        all.sort_by_cached_key(|_| (1e6 * noise.next()) as u64);
    }
    for (kind, trajectory) in all {
        let (auto, fixed) = times.entry(kind).or_default();
        let noisy = |kind, rows| machine.ms(kind, rows) * noise.next();
        // Which steps it took is what is judged, not the noise of this run.
        let steps = trajectory.replay(&mut policy, CHOICES, noisy);
        let ms = |plan: &DraftPlan| machine.ms(StepKind::of(plan), 1 + plan.most_drafts());
        *auto += steps.iter().map(|(plan, _)| ms(plan)).sum::<f64>();
        for (ms, (_, plan)) in fixed.iter_mut().zip(FIXED) {
            *ms += machine.fixed(&trajectory, plan);
        }
    }
    times
}

fn least(times: &[f64]) -> (usize, f64) {
    let times = times.iter().copied().enumerate();
    times.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

#[test]
fn auto_is_as_fast_as_the_best_fixed_way_on_every_set() {
    let machines = [TWO_CORES, SHARED_CORES, H200, DEAR_ROWS];
    for machine in machines {
        let mut gains: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for seed in 1..=8 {
            for (kind, (auto, fixed)) in times(&machine, seed, seed % 2 == 0) {
                let (index, best) = least(&fixed);
                let name = FIXED[index].0;
                // One step of 80 is a lookup that was not right, in some runs.
                assert!(
                    auto < 1.01 * best,
                    "{kind}: {auto} ms, {name} {best} ({machine:?}, {seed})"
                );
                if kind == "copy" {
                    assert!(
                        auto < fixed[0] / 2.0,
                        "{auto} ms, without drafts {}",
                        fixed[0]
                    );
                }
                gains.entry(kind).or_default().push(best / auto - 1.0);
            }
        }
        for (kind, gains) in gains {
            let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = gains.iter().sum::<f64>() / gains.len() as f64;
            println!(
                "{kind}: {:+.1} %, {:+.1} % at least",
                100.0 * mean,
                100.0 * least
            );
            assert!(mean > -0.006, "{kind}: {gains:?} ({machine:?})");
        }
    }
}

/// Once lookup is believed, a copy to the end of an answer is not cut where rows are dear: the rest would take a
/// step of its own.
#[test]
fn copies_are_as_fast_as_by_lookups_of_all_rows() {
    let whole = |lookup: &Lookup| match lookup.repeat() {
        Some(repeat) if repeat.len >= 3 => DraftPlan::Given(lookup.continuation(repeat, 63)),
        _ => DraftPlan::None,
    };
    for machine in [TWO_CORES, SHARED_CORES, H200, DEAR_ROWS, LARGE] {
        let mut noise = Noise {
            state: 1,
            deviation: machine.noise,
        };
        let mut policy = machine.policy(&mut noise);
        let copies = trajectories()
            .into_iter()
            .filter(|(kind, _)| kind == "copy");
        let copies: Vec<Trajectory> = copies.map(|(_, copy)| copy).collect();
        let mut auto = [0.0; 2];
        let mut fixed = 0.0;
        for (copy, pass) in copies.iter().zip([0; 24]).chain(copies.iter().zip([1; 24])) {
            let noisy = |kind, rows| machine.ms(kind, rows) * noise.next();
            for (plan, _) in copy.replay(&mut policy, CHOICES, noisy) {
                auto[pass] += machine.ms(StepKind::of(&plan), 1 + plan.most_drafts());
            }
            fixed += machine.fixed(copy, whole) / 2.0;
        }
        println!("{auto:?} ms, by lookup {fixed}");
        assert!(auto[1] < 1.02 * fixed, "{auto:?} {fixed} ({machine:?})");
    }
}

/// Where trees pay, which of them is best differs by luck from set to set; over all sets none
/// may be far ahead.
#[test]
fn trees_are_chosen_where_rows_cost_little() {
    let (mut auto, mut fixed) = (0.0, [0.0; FIXED.len()]);
    for (kind, times) in times(&LARGE, 1, false) {
        if kind != "copy" {
            auto += times.0;
            fixed
                .iter_mut()
                .zip(times.1)
                .for_each(|(sum, ms)| *sum += ms);
        }
    }
    let (index, best) = least(&fixed);
    println!(
        "{:+.1} % against {}",
        100.0 * (best / auto - 1.0),
        FIXED[index].0
    );
    assert!(index >= 4 && auto < 1.03 * best, "{auto} ms, {fixed:?}");
    assert!(auto < fixed[3], "{auto} ms, chain {}", fixed[3]);
}

/// For people: what a choice takes between two steps of a device whose steps are short, and beside them.
#[test]
#[ignore = "a measurement: cargo test --release -p volley-speculate --test trajectories -- --ignored --nocapture"]
fn time_of_a_choice() {
    let mut noise = Noise {
        state: 1,
        deviation: 0.01,
    };
    let mut policy = H200.policy(&mut noise);
    let all = trajectories();
    // The quickest of some rounds: what else the machine does makes them slower.
    let mut least = [f64::INFINITY; 3];
    for _ in 0..20 {
        let mut spent = [Duration::ZERO; 3];
        let mut steps = 0;
        for (_, trajectory) in &all {
            let mut walk = trajectory.walk();
            let mut lookup = walk.lookup().clone();
            let mut sequence = SequencePolicy::default();
            sequence.settle(&mut policy);
            while !walk.ended() {
                let [plan, took] = [0, 1].map(|_| Instant::now());
                let empty = took - plan;
                let plan = sequence.plan(&mut policy, CHOICES, 1, &lookup);
                let planned = took.elapsed().saturating_sub(empty);
                let outcome = walk.step(&plan);
                let begun = Instant::now();
                lookup.settle();
                sequence.settle(&mut policy);
                let settled = begun.elapsed().saturating_sub(empty);
                let begun = Instant::now();
                sequence.take(&mut policy, &plan, &outcome);
                lookup.append(outcome.tokens);
                if lookup.has_left(&plan) {
                    lookup.settle();
                }
                let taken = begun.elapsed().saturating_sub(empty);
                let parts = [planned, taken, settled];
                spent
                    .iter_mut()
                    .zip(parts)
                    .for_each(|(sum, part)| *sum += part);
                steps += 1;
            }
        }
        for (least, spent) in least.iter_mut().zip(spent) {
            *least = least.min(spent.as_secs_f64() * 1e6 / f64::from(steps));
        }
    }
    let [plan, take, settle] = least;
    println!(
        "microseconds a step: {plan:.2} to choose, {take:.2} to take in, {settle:.2} beside the step"
    );
}
