//! Steps of a rank without threads or scheduler, on the tiny golden pair.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use volley_model::Checkpoint;
use volley_ops::{DRAWN, Ops};
use volley_ops_candle::CandleOps;
use volley_speculate::{
    DraftPlan, Drafting, Method, Proposal, Proposer, SamplingParams, TreeOrder, TreeShape,
};

use super::RankWorker;
use crate::layout::Layout;
use crate::proposers::TargetRank;
use crate::sequence::Sequence;
use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepPlan};
use crate::{
    Control, EngineError, EngineOptions, Request, Sources, SpeculateOptions, Speculation, Stop,
    engine,
};

const SLOTS: usize = 2;
/// Blocks of each slot's table.
const BLOCKS: u32 = 10;

fn worker() -> RankWorker<CandleOps> {
    worker_with(TreeOrder::Perturbed, 32)
}

/// With so many kept prefixes.
fn worker_with(tree_order: TreeOrder, checkpoints: usize) -> RankWorker<CandleOps> {
    worker_on(cpu().ahead(), tree_order, checkpoints)
}

fn cpu() -> CandleOps {
    CandleOps::single(candle_core::Device::Cpu)
}

fn worker_on(ops: CandleOps, tree_order: TreeOrder, checkpoints: usize) -> RankWorker<CandleOps> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden");
    let open = |name| Checkpoint::open(&golden.join(name)).unwrap();
    let sources = Sources {
        target: open("target"),
        drafter: Some(open("drafter")),
    };
    let options = EngineOptions {
        max_model_len: Some(288),
        max_running: SLOTS,
        checkpoints,
        speculation: Speculation {
            max_drafts: 15,
            mtp: true,
            tree_order,
            ..Speculation::of(Method::Auto)
        },
        ..EngineOptions::default()
    };
    let layout = Layout::new(&options, &sources, ops.block_size()).unwrap();
    assert_eq!(layout.target.blocks, SLOTS * BLOCKS as usize);
    engine::load(ops, &sources, &layout).unwrap()
}

/// The models are nearly flat at this temperature, and drafts are accepted though weights are
/// random: drafter and target share their noise.
fn request(prompt: &[u32]) -> Request {
    Request {
        prompt: prompt.to_vec(),
        sampling: SamplingParams {
            temperature: 40.0,
            seed: 5,
            ..SamplingParams::default()
        },
        max_tokens: 200,
        min_tokens: 0,
        stop_ids: Vec::new(),
        speculate: SpeculateOptions::default(),
        checkpoints: Vec::new(),
        priority: 0,
        cache_salt: "".into(),
        control: Control::default(),
    }
}

fn blocks(slot: usize) -> Vec<u32> {
    let first = slot as u32 * BLOCKS;
    (first..first + BLOCKS).rev().collect()
}

fn enter(slot: usize, prompt: &[u32]) -> StepPlan {
    StepPlan {
        enter: vec![Entry {
            slot,
            request: Some(request(prompt)),
            from: None,
            method: None,
        }],
        prefill: vec![PrefillChunk {
            slot,
            past: 0,
            len: prompt.len(),
            blocks: blocks(slot),
        }],
        ..StepPlan::default()
    }
}

fn decode(slot: usize, past: usize, depth: usize) -> StepPlan {
    decode_by(slot, past, DraftPlan::Chain { depth })
}

fn decode_by(slot: usize, past: usize, draft: DraftPlan) -> StepPlan {
    StepPlan {
        decode: vec![DecodeStep {
            slot,
            past,
            draft,
            blocks: blocks(slot),
        }],
        ..StepPlan::default()
    }
}

fn step(worker: &mut RankWorker<CandleOps>, plan: StepPlan) -> SlotUpdate {
    let mut updates = worker.step(&plan).unwrap().updates;
    assert_eq!(updates.len(), 1);
    updates.remove(0)
}

/// What steps draft with, and the drafts that are compared after each.
fn plans() -> Vec<DraftPlan> {
    let tree = |budget, depth, seeded| {
        DraftPlan::Tree(TreeShape {
            budget,
            depth,
            seeded,
        })
    };
    vec![
        DraftPlan::None,
        DraftPlan::Chain { depth: 15 },
        tree(31, 15, true),
        DraftPlan::Mtp { depth: 3 },
        DraftPlan::Chain { depth: 3 },
        tree(15, 15, false),
        DraftPlan::None,
        DraftPlan::Mtp { depth: 7 },
        tree(4, 2, false),
        DraftPlan::Given(vec![3, 4, 5]),
    ]
}

/// Drafts depend on the text alone, not on how it came about: rows of rejected drafts are not
/// seen, whatever shape they had, and rows of steps that drafted otherwise are not missing.
#[test]
fn proposers_hold_what_the_target_has_committed() {
    let mut worker = worker();
    let prompt: Vec<u32> = (0..60).map(|i| i * 37 % 500).collect();
    let mut tokens = step(&mut worker, enter(0, &prompt)).tokens;
    let mut past = prompt.len();
    let mut accepted = [0; 3];
    for plan in plans().into_iter().cycle().take(20) {
        let update = step(&mut worker, decode_by(0, past, plan.clone()));
        assert_eq!(update.committed, update.tokens.len());
        past += update.committed;
        match plan {
            DraftPlan::Chain { .. } => accepted[0] += update.accepted,
            DraftPlan::Tree(_) => accepted[1] += update.accepted,
            DraftPlan::Mtp { .. } => accepted[2] += update.accepted,
            _ => {}
        }
        tokens.extend(update.tokens);
        assert_eq!(worker.proposer.context(0), Some(past));

        // The same text as a prompt, in the other slot.
        let (&anchor, output) = tokens.split_last().unwrap();
        let text = [&prompt, output].concat();
        assert_eq!(step(&mut worker, enter(1, &text)).tokens, [anchor]);
        assert_eq!(worker.proposer.context(1), Some(past));
        for wanted in plans() {
            let fresh = worker.propose_for(1, &wanted);
            assert_eq!(worker.propose_for(0, &wanted), fresh, "after {plan:?}");
            assert_eq!(fresh.tokens.len(), wanted.most_drafts());
        }
    }
    assert!(
        accepted.iter().all(|&n| n > 3),
        "{accepted:?} drafts accepted"
    );
}

impl RankWorker<CandleOps> {
    /// Drafts behind the text of a slot, chosen by the host: those that the device draws cannot be seen yet,
    /// and of a block the noise of a high temperature would hide what they come from.
    fn propose_for(&mut self, slot: usize, plan: &DraftPlan) -> Proposal {
        let cool = SamplingParams {
            temperature: 0.5,
            seed: 5,
            ..SamplingParams::default()
        };
        let sequence = self.sequences[slot].as_mut().unwrap();
        let mut drafting = [Drafting {
            slot,
            past: sequence.committed,
            blocks: &blocks(slot),
            anchor: sequence.anchor,
            plan,
            sampling: match plan {
                DraftPlan::Mtp { .. } => &sequence.request.sampling,
                _ => &cool,
            },
            free: false,
            history: &mut sequence.history,
        }];
        let proposals = self.proposer.propose(&mut self.rank, &mut drafting);
        let proposal = proposals.unwrap().remove(0);
        assert!(proposal.tokens.iter().all(|token| token & DRAWN == 0));
        proposal
    }
}

/// Steps come to the same and leave the same behind whether the device goes down the drafts or the host, also
/// where they end.
#[test]
fn the_device_walks_where_the_host_would() {
    let prompt: Vec<u32> = (0..40).map(|i| i * 53 % 500).collect();
    let (mut kept, mut ends) = ([0; 5], [0; 2]);
    for case in 0..24 {
        let mut request = request(&prompt);
        request.sampling = [
            SamplingParams::default(),
            sampled(40.0, 0, 1.0, 0.0, case),
            sampled(40.0, 50, 0.9, 0.0, case),
            sampled(40.0, 300, 0.8, 0.1, case),
        ][case as usize % 4]
            .clone();
        request.max_tokens = 30 + case as usize;
        if case % 3 == 0 {
            request.stop_ids = (0..500).step_by(31).collect();
        }
        // Trees that the device grows, or that the host builds along the noise.
        let order = [TreeOrder::Marginal, TreeOrder::Perturbed][case as usize % 5 / 3];
        let mut workers = [cpu(), cpu().ahead()].map(|ops| {
            let mut worker = worker_on(ops, order, 32);
            let mut plan = enter(0, &prompt);
            plan.enter[0].request = Some(request.clone());
            step(&mut worker, plan);
            worker
        });
        let mut past = prompt.len();
        for (i, plan) in plans().into_iter().cycle().skip(case as usize).enumerate() {
            let [host, device] = &mut workers;
            let step_of = |worker: &RankWorker<CandleOps>| {
                let sequences = [Sequence {
                    history: worker.sequences[0].as_ref().unwrap().history.clone(),
                    ..Sequence::new(0, &request)
                }];
                worker.walks(&decode_by(0, past, plan.clone()).decode, &sequences)
            };
            assert!(step_of(device) && !step_of(host), "case {case}, step {i}");
            let expected = step(host, decode_by(0, past, plan.clone()));
            let update = step(device, decode_by(0, past, plan.clone()));
            assert_eq!(update, expected, "case {case}, step {i}, {plan:?}");
            past += update.committed;
            let kind = match plan {
                DraftPlan::None => 0,
                DraftPlan::Given(_) => 1,
                DraftPlan::Mtp { .. } => 2,
                DraftPlan::Chain { .. } => 3,
                DraftPlan::Tree(_) => 4,
            };
            kept[kind] += update.committed - 1;
            for wanted in [DraftPlan::Chain { depth: 15 }, DraftPlan::Mtp { depth: 3 }] {
                let drafts = host.propose_for(0, &wanted);
                assert_eq!(device.propose_for(0, &wanted), drafts, "behind {plan:?}");
            }
            if let Some(stop) = update.stop {
                ends[usize::from(stop == Stop::Length)] += 1;
                break;
            }
        }
    }
    assert!(kept[2..].iter().all(|&n| n > 5), "{kept:?} drafts kept");
    assert!(ends[0] > 3 && ends[1] > 3, "{ends:?}");
}

/// Copies that are right are not taken in until somebody asks, and then nothing is missing: behind a few
/// of them, behind more than are kept, and behind one that was wrong.
#[test]
fn what_was_copied_is_there_when_a_block_is_wanted() {
    let prompt: Vec<u32> = (0..40).map(|i| i * 37 % 500).collect();
    let mut plain = worker();
    let mut text = step(&mut plain, enter(0, &prompt)).tokens;
    while text.len() < 130 {
        let past = prompt.len() + text.len() - 1;
        text.extend(step(&mut plain, decode_by(0, past, DraftPlan::None)).tokens);
    }
    let wanted = [DraftPlan::Chain { depth: 15 }, DraftPlan::Mtp { depth: 3 }];
    for (copies, wrong) in [(1, false), (3, true), (12, false), (12, true)] {
        let mut worker = worker();
        step(&mut worker, enter(0, &prompt));
        let mut said = 1;
        let past = |said| prompt.len() + said - 1;
        for copy in 0..copies {
            let drafts = text[said..said + 2 + copy % 5].to_vec();
            let right = drafts.len() + 1;
            let update = step(
                &mut worker,
                decode_by(0, past(said), DraftPlan::Given(drafts)),
            );
            assert_eq!(update.tokens, text[said..said + right]);
            said += right;
            assert_eq!(worker.proposer.context(0), Some(past(said)));
        }
        if wrong {
            let drafts = vec![text[said], text[said + 1] ^ 1, 3, 4];
            let update = step(
                &mut worker,
                decode_by(0, past(said), DraftPlan::Given(drafts)),
            );
            assert_eq!(update.accepted, 1);
            said += 2;
        }
        // The same text as a prompt, in the other slot.
        let whole = [&prompt, &text[..said - 1]].concat();
        assert_eq!(step(&mut worker, enter(1, &whole)).tokens, [text[said - 1]]);
        for wanted in &wanted {
            let fresh = worker.propose_for(1, wanted);
            assert_eq!(worker.propose_for(0, wanted), fresh, "{copies} {wrong}");
        }
    }
}

/// What nobody goes on with is not taken in, and the next sequence of the slot does not miss it.
#[test]
fn what_was_said_last_is_of_no_use_without_a_prefix_cache() {
    let mut worker = worker_with(TreeOrder::Perturbed, 0);
    let (mut first, mut drafts) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut plan = enter(0, &[7, 8, 9]);
        plan.enter[0].request.as_mut().unwrap().max_tokens = 4;
        first.push(step(&mut worker, plan).tokens);
        drafts.push(worker.propose_for(0, &DraftPlan::Chain { depth: 15 }));
        let update = step(&mut worker, decode(0, 3, 15));
        let update = match update.stop {
            Some(_) => update,
            None => step(&mut worker, decode(0, 3 + update.committed, 15)),
        };
        assert!(update.stop.is_some(), "{update:?}");
        worker.settle().unwrap();
    }
    assert_eq!((&first[0], &drafts[0]), (&first[1], &drafts[1]));
}

/// As where all of a step is cut off because it repeats what was said.
#[test]
fn a_step_may_keep_no_row() {
    let mut worker = worker();
    let mut plan = enter(0, &[7, 8, 9]);
    plan.enter[0].request.as_mut().unwrap().max_tokens = 2;
    step(&mut worker, plan);
    let update = step(&mut worker, decode(0, 3, 0));
    assert!(update.stop.is_some(), "{update:?}");
    let update = step(&mut worker, decode(0, 4, 15));
    assert_eq!((update.committed, update.stop.is_some()), (0, true));
    worker.settle().unwrap();
    assert_eq!(worker.proposer.context(0), Some(4));
}

/// A sequence that has ended, and one that runs.
#[test]
fn what_was_copied_goes_along_with_a_slot() {
    let prompt: Vec<u32> = (0..40).map(|i| i * 37 % 500).collect();
    let mut plain = worker();
    let mut text = step(&mut plain, enter(0, &prompt)).tokens;
    text.extend(step(&mut plain, decode_by(0, 40, DraftPlan::None)).tokens);
    for _ in 0..4 {
        let past = prompt.len() + text.len() - 1;
        text.extend(step(&mut plain, decode_by(0, past, DraftPlan::None)).tokens);
    }
    for ends in [false, true] {
        let mut worker = worker();
        let mut plan = enter(0, &prompt);
        plan.enter[0].request.as_mut().unwrap().max_tokens = if ends { 5 } else { 200 };
        step(&mut worker, plan);
        let copy = DraftPlan::Given(text[1..4].to_vec());
        let update = step(&mut worker, decode_by(0, 40, copy));
        assert_eq!((update.accepted, update.stop.is_some()), (3, ends));
        if ends {
            worker.settle().unwrap();
        }
        worker.copy_slot(0, 1).unwrap();
        assert_eq!(worker.proposer.context(1), Some(44));
        for (from, to) in blocks(0).into_iter().zip(blocks(1)) {
            worker
                .proposer
                .copy_block(&mut worker.rank, from, to)
                .unwrap();
        }
        let mut copied = Sequence::new(1, &request(&prompt));
        text[..5]
            .iter()
            .for_each(|&token| copied.history.push(token));
        (copied.committed, copied.anchor) = (44, text[4]);
        worker.sequences[1] = Some(copied);
        let drafts = worker.propose_for(1, &DraftPlan::Chain { depth: 15 });
        // The same text as a prompt.
        let whole = [&prompt, &text[..4]].concat();
        assert_eq!(step(&mut worker, enter(0, &whole)).tokens, [text[4]]);
        let fresh = worker.propose_for(0, &DraftPlan::Chain { depth: 15 });
        assert_eq!(drafts, fresh, "ends: {ends}");
    }
}

impl RankWorker<CandleOps> {
    /// The drafts behind the text of slot 0, as host or device choose them.
    fn drafts_by(&mut self, device: bool, plan: &DraftPlan) -> Proposal {
        let sequence = self.sequences[0].as_mut().unwrap();
        let (anchor, past, blocks) = (sequence.anchor, sequence.committed, blocks(0));
        let mut drafting = [Drafting {
            slot: 0,
            past,
            blocks: &blocks,
            anchor,
            plan,
            sampling: &sequence.request.sampling,
            free: device,
            history: &mut sequence.history,
        }];
        let proposals = self.proposer.propose(&mut self.rank, &mut drafting);
        let mut proposals = proposals.unwrap();
        let proposal = &proposals[0];
        let unknown = |id: &u32| id & DRAWN != 0;
        assert_eq!(proposal.tokens.iter().all(unknown), device);
        assert_eq!(proposal.tokens.iter().any(unknown), device);
        let mut pass = super::Pass::default();
        let ids = [&[anchor], &proposal.tokens[..]].concat();
        let parents = proposal.parents.as_deref().map(super::segment_parents);
        pass.add(self.sequences[0].as_ref().unwrap(), &ids, &blocks, parents);
        let TargetRank { ops, target, .. } = &mut self.rank;
        target.verify(ops, &ids, &pass.batch).unwrap();
        let outcome = target.outcome(ops, &[0], self.sampling.allowed, &[], &[]);
        pass.know(&mut proposals, &outcome.unwrap().drafts);
        assert!(!pass.ids.iter().any(unknown) && !pass.batch.is_grown());
        assert_eq!(pass.ids[1..], proposals[0].tokens);
        proposals.remove(0)
    }
}

fn sampled(temperature: f32, top_k: usize, top_p: f32, min_p: f32, seed: u64) -> SamplingParams {
    SamplingParams {
        temperature,
        top_k,
        top_p,
        min_p,
        seed,
        ..SamplingParams::default()
    }
}

/// A worker behind a prompt of this number.
fn behind(order: TreeOrder, prompt: usize, sampling: &SamplingParams) -> RankWorker<CandleOps> {
    let mut worker = worker_with(order, 32);
    let prompt: Vec<u32> = (0..40).map(|i| (i * 37 + prompt as u32) % 500).collect();
    let mut plan = enter(0, &prompt);
    plan.enter[0].request.as_mut().unwrap().sampling = sampling.clone();
    step(&mut worker, plan);
    worker
}

/// Whoever chooses them, drafts are the same, whether candidates decide them or not.
#[test]
fn the_device_draws_what_the_host_would() {
    let mut distinct = std::collections::BTreeSet::new();
    for (prompt, sampling) in [
        SamplingParams::default(),
        sampled(40.0, 64, 1.0, 0.0, 1),
        sampled(40.0, 50, 0.7, 0.0, 2),
        sampled(1.0, 20, 0.95, 0.0, 3),
        sampled(0.7, 20, 0.8, 0.05, u64::MAX),
        sampled(2.0, 64, 1.0, 0.9, 5),
        sampled(1.0, 0, 1.0, 0.0, 6),
        sampled(40.0, 0, 0.8, 0.0, 7),
        sampled(40.0, 300, 0.9, 0.1, 8),
    ]
    .iter()
    .enumerate()
    {
        let mut worker = behind(TreeOrder::Perturbed, prompt, sampling);
        for plan in [DraftPlan::Chain { depth: 15 }, DraftPlan::Mtp { depth: 7 }] {
            let drafts = worker.drafts_by(true, &plan);
            assert_eq!(drafts.tokens.len(), plan.most_drafts());
            assert_eq!(drafts, worker.drafts_by(false, &plan), "{sampling:?}");
            distinct.insert(drafts.tokens);
        }
    }
    assert_eq!(distinct.len(), 18);
}

/// The device's tree is the host's, tokens and parents.
#[test]
fn the_device_grows_what_the_host_would() {
    let mut distinct = std::collections::BTreeSet::new();
    let greedy = SamplingParams::default();
    for (prompt, (order, sampling)) in [
        (TreeOrder::Marginal, greedy.clone()),
        (TreeOrder::Perturbed, greedy),
        (TreeOrder::Marginal, sampled(0.0, 1, 0.5, 0.5, 1)),
        (TreeOrder::Marginal, sampled(1.0, 20, 1.0, 0.0, 2)),
        (TreeOrder::Marginal, sampled(0.3, 64, 1.0, 0.0, 3)),
        (TreeOrder::Marginal, sampled(1.0, 0, 1.0, 0.0, 4)),
    ]
    .iter()
    .enumerate()
    {
        let mut worker = behind(*order, prompt, sampling);
        for (budget, depth, seeded) in [
            (31, 15, true),
            (63, 15, true),
            (15, 15, false),
            (7, 3, true),
        ] {
            let plan = DraftPlan::Tree(TreeShape {
                budget,
                depth,
                seeded,
            });
            let tree = worker.drafts_by(true, &plan);
            assert_eq!(tree.tokens.len(), budget);
            assert_eq!(tree.parents.as_ref().map(Vec::len), Some(budget));
            assert_eq!(tree, worker.drafts_by(false, &plan), "{sampling:?}");
            distinct.insert(tree.tokens);
        }
    }
    assert_eq!(distinct.len(), 24);
}

/// Trees whose size or order depends on what only the host knows.
#[test]
fn other_trees_are_the_hosts() {
    let penalised = SamplingParams {
        presence_penalty: 0.5,
        ..SamplingParams::default()
    };
    for (prompt, (order, sampling)) in [
        (TreeOrder::Perturbed, sampled(1.0, 20, 1.0, 0.0, 1)),
        (TreeOrder::Marginal, sampled(1.0, 20, 0.9, 0.0, 2)),
        (TreeOrder::Marginal, sampled(1.0, 20, 1.0, 0.1, 3)),
        // A chain is all that one candidate gives.
        (TreeOrder::Marginal, sampled(1.0, 1, 1.0, 0.0, 6)),
        (TreeOrder::Marginal, penalised),
    ]
    .iter()
    .enumerate()
    {
        let mut worker = behind(*order, prompt, sampling);
        let plan = DraftPlan::Tree(TreeShape {
            budget: 31,
            depth: 15,
            seeded: true,
        });
        let tree = worker.propose_for(0, &plan);
        assert!(!tree.tokens.is_empty());
        assert!(
            tree.tokens.iter().all(|token| token & DRAWN == 0),
            "{sampling:?}"
        );
        assert!(!worker.rank.target.has_drafted());
    }
}

/// Trees and chains of several sequences in one step, drawn and grown together, give what they give alone.
#[test]
fn chains_and_trees_are_drafted_together() {
    let greedy = |slot: usize, prompt: &[u32]| {
        let mut plan = enter(slot, prompt);
        plan.enter[0].request.as_mut().unwrap().sampling = SamplingParams::default();
        plan
    };
    let (a, b) = ([7, 8, 9], [400, 3, 77, 12, 90]);
    let tree = |budget| {
        DraftPlan::Tree(TreeShape {
            budget,
            depth: 15,
            seeded: true,
        })
    };
    let pairs = [
        [DraftPlan::Chain { depth: 9 }, tree(31)],
        [tree(20), DraftPlan::Chain { depth: 15 }],
        [tree(31), tree(15)],
        [DraftPlan::None, tree(6)],
    ];
    for [first, second] in pairs {
        let mut alone = worker();
        step(&mut alone, greedy(0, &a));
        step(&mut alone, greedy(1, &b));
        let expected = [
            step(&mut alone, decode_by(0, 3, first.clone())),
            step(&mut alone, decode_by(1, 5, second.clone())),
        ];
        let mut together = worker();
        step(&mut together, greedy(0, &a));
        step(&mut together, greedy(1, &b));
        let mut pair = decode_by(0, 3, first);
        pair.decode.extend(decode_by(1, 5, second).decode);
        assert_eq!(together.step(&pair).unwrap().updates, expected);
    }
}

/// Says that it has seen everything but the last token.
struct Behind {
    contexts: Vec<usize>,
}

impl Proposer<TargetRank<CandleOps>> for Behind {
    type Error = EngineError;

    fn reset(
        &mut self,
        _: &mut TargetRank<CandleOps>,
        slot: usize,
        _: Option<Method>,
    ) -> Result<(), EngineError> {
        self.contexts[slot] = 0;
        Ok(())
    }

    fn copy_slot(
        &mut self,
        _: &mut TargetRank<CandleOps>,
        from: usize,
        to: usize,
    ) -> Result<(), EngineError> {
        self.contexts[to] = self.contexts[from];
        Ok(())
    }

    fn copy_block(
        &mut self,
        _: &mut TargetRank<CandleOps>,
        _: u32,
        _: u32,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    fn observe(
        &mut self,
        rank: &mut TargetRank<CandleOps>,
        keep: &[Vec<u32>],
        _: &[u32],
        _: &[bool],
    ) -> Result<(), EngineError> {
        for (segment, kept) in rank.batch.segments.iter().zip(keep) {
            self.contexts[segment.slot] += kept.len().min(5);
        }
        Ok(())
    }

    fn propose(
        &mut self,
        _: &mut TargetRank<CandleOps>,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, EngineError> {
        Ok(vec![Proposal::default(); sequences.len()])
    }

    fn context(&self, slot: usize) -> Option<usize> {
        Some(self.contexts[slot])
    }
}

#[test]
fn a_drafter_that_falls_behind_is_an_error() {
    let mut worker = worker();
    worker.proposer = Box::new(Behind {
        contexts: vec![0; SLOTS],
    });
    assert_eq!(
        step(&mut worker, enter(0, &[1, 2, 3, 4, 5])).tokens.len(),
        1
    );
    let error = worker.step(&enter(0, &[1, 2, 3, 4, 5, 6])).unwrap_err();
    assert!(matches!(
        error,
        EngineError::DraftContext {
            slot: 0,
            context: 5,
            committed: 6
        }
    ));
}

/// Prompts and blocks of several sequences in one step give what they give alone.
#[test]
fn mixed_steps_give_what_single_ones_give() {
    let (a, b) = ([7, 8, 9], [400, 3, 77, 12, 90]);
    let mut alone = worker();
    let first = step(&mut alone, enter(0, &a));
    let second = step(&mut alone, decode(0, 3, 15));
    let other = step(&mut alone, enter(1, &b));

    let mut together = worker();
    assert_eq!(step(&mut together, enter(0, &a)), first);
    let mut mixed = enter(1, &b);
    mixed.decode = decode(0, 3, 15).decode;
    let updates = together.step(&mixed).unwrap().updates;
    assert_eq!(updates, [other, second]);

    let mut pair = decode(0, 3 + updates[1].committed, 15);
    pair.decode.extend(decode(1, 5, 4).decode);
    let updates = together.step(&pair).unwrap().updates;
    assert_eq!(
        updates[0],
        step(
            &mut alone,
            StepPlan {
                decode: vec![pair.decode[0].clone()],
                ..StepPlan::default()
            }
        )
    );
    assert_eq!(updates[1], step(&mut alone, decode(1, 5, 4)));
    assert_eq!(updates[1].drafted, 4);
}
