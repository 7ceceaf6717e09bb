//! Steps of a rank without threads or scheduler, on the tiny golden pair.
#![allow(clippy::unwrap_used)]

mod copies;
mod device;

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
