//! Chains, trees and walks: the device comes to what the host would.

use super::*;

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
        let mut pass = super::super::Pass::default();
        let ids = [&[anchor], &proposal.tokens[..]].concat();
        let parents = proposal
            .parents
            .as_deref()
            .map(super::super::segment_parents);
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
