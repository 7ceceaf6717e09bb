//! What was copied is taken in when a block is wanted.

use super::*;

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
