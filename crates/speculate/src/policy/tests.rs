use super::*;

const CHOICES: Choices = Choices {
    chain: 15,
    tree_budget: 31,
    seeded: true,
    mtp: 0,
    lookup: 15,
};

/// Costs of a device: a pass of `base + row * rows` ms, a block of `block` ms per step.
fn policy(base: f64, row: f64, block: f64) -> Policy {
    let mut policy = Policy::default();
    for rows in [1, 2, 4, 8, 16, 32, 64] {
        let ms = base + row * rows as f64;
        policy.costs.calibrate(StepKind::Plain, 1, rows, ms);
    }
    let ms = policy.costs.step_ms(StepKind::Plain, 1, 16);
    policy.costs.calibrate(StepKind::Block, 1, 16, ms + block);
    policy
}

/// Runs steps whose chains have `accepted` right drafts, trees one more, and gives the choices.
fn steps(policy: &mut Policy, accepted: usize, gain: usize, running: usize) -> Vec<DraftPlan> {
    let mut sequence = SequencePolicy::default();
    let lookup = Lookup::default();
    let mut plans = Vec::new();
    for _ in 0..150 {
        let plan = sequence.plan(policy, CHOICES, running, &lookup);
        let (depth, spine, accepted) = match &plan {
            DraftPlan::Chain { depth } => (*depth, accepted.min(*depth), accepted.min(*depth)),
            DraftPlan::Tree(shape) => {
                let spine = accepted.min(shape.depth);
                (shape.depth, spine, (spine + gain).min(shape.depth))
            }
            _ => (0, 0, 0),
        };
        let outcome = Outcome {
            depth,
            accepted,
            spine,
            ..Outcome::default()
        };
        sequence.take(policy, &plan, &outcome);
        sequence.settle(policy);
        plans.push(plan);
    }
    plans.split_off(100)
}

#[test]
fn rows_that_cost_nothing_are_used() {
    let plans = steps(&mut policy(20.0, 0.01, 1.0), 15, 0, 1);
    let deep = |plan: &&DraftPlan| plan.most_drafts() >= 15;
    assert!(plans.iter().filter(deep).count() > 45, "{plans:?}");
}

#[test]
fn the_chain_is_as_long_as_drafts_are_right() {
    let plans = steps(&mut policy(1.0, 0.5, 0.1), 4, 0, 1);
    let fits = |plan: &&DraftPlan| matches!(plan, DraftPlan::Chain { depth: 3..=5 });
    assert!(plans.iter().filter(fits).count() > 45, "{plans:?}");
}

#[test]
fn a_tree_that_gains_is_kept_and_one_that_does_not_is_left() {
    let tree = |plan: &&DraftPlan| matches!(plan, DraftPlan::Tree(_));
    let plans = steps(&mut policy(20.0, 0.05, 1.0), 4, 2, 1);
    assert!(plans.iter().filter(tree).count() > 40, "{plans:?}");
    let plans = steps(&mut policy(20.0, 0.05, 1.0), 4, 0, 1);
    assert!(plans.iter().filter(tree).count() < 10, "{plans:?}");
}

#[test]
fn speculation_that_costs_is_off_but_for_a_try_now_and_then() {
    // Drafts are never right.
    let plans = steps(&mut policy(5.0, 1.0, 3.0), 0, 0, 1);
    let drafting = plans.iter().filter(|plan| plan.most_drafts() > 0).count();
    assert!((0..=3).contains(&drafting), "{drafting}");
    // Good drafts, but every row costs as much as a step of its own.
    let plans = steps(&mut policy(0.0, 1.0, 3.0), 2, 0, 8);
    let drafting = plans.iter().filter(|plan| plan.most_drafts() > 0).count();
    assert!(drafting <= 3, "{drafting}");
}

/// A text of 60 tokens, and the first 30 again: as a question, or as said in answer to another one.
fn repeating(asked: bool) -> Lookup {
    let mut lookup = Lookup::default();
    lookup.extend(&(0..60).collect::<Vec<u32>>());
    if !asked {
        lookup.begin_answer();
    }
    lookup.extend(&(0..30).collect::<Vec<u32>>());
    if asked {
        lookup.begin_answer();
    }
    lookup
}

#[test]
fn an_answer_of_before_goes_before_the_drafter() {
    let mut policy = policy(10.0, 0.1, 3.0);
    match SequencePolicy::default().plan(&mut policy, CHOICES, 1, &repeating(true)) {
        DraftPlan::Given(drafts) => assert_eq!(drafts[..3], [30, 31, 32]),
        other => panic!("{other:?}"),
    }
    // One token alone is no repeat to trust.
    let mut lookup = Lookup::default();
    lookup.extend(&[5, 6, 7, 5]);
    assert!(matches!(
        SequencePolicy::default().plan(&mut policy, CHOICES, 1, &lookup),
        DraftPlan::Chain { .. } | DraftPlan::Tree(_)
    ));
}

/// It may end at any token, where the drafter is right as often.
#[test]
fn a_phrase_goes_before_the_drafter_where_that_is_dear_or_phrases_have_gone_on() {
    let lookup = repeating(false);
    let plan = |policy: &mut Policy| SequencePolicy::default().plan(policy, CHOICES, 1, &lookup);
    let given = |plan: &DraftPlan| matches!(plan, DraftPlan::Given(_));
    assert!(!given(&plan(&mut policy(10.0, 0.1, 3.0))));
    assert!(given(&plan(&mut policy(10.0, 0.1, 9.0))));
    // The drafter is wrong as often as it was, and the text is a copy.
    let mut learned = policy(10.0, 0.1, 3.0);
    for _ in 0..40 {
        let chain = Outcome {
            depth: 15,
            accepted: 8,
            spine: 8,
            ..Outcome::default()
        };
        learned.acceptance.take_chain(None, &chain);
        let phrase = Repeated {
            len: 30,
            again: false,
        };
        let text: Vec<u32> = (0..15).collect();
        learned.acceptance.take_repeat(None, phrase, &text, &text);
    }
    assert!(given(&plan(&mut learned)));
}

/// Answers that were given before teach nothing about phrases, nor these about answers.
#[test]
fn answers_of_before_do_not_speak_for_phrases() {
    let text: Vec<u32> = (0..15).collect();
    let mut all = Acceptance::new(Scope::Engine);
    let own = Acceptance::default();
    let [phrase, again] = [false, true].map(|again| Repeated { len: 40, again });
    for _ in 0..100 {
        all.take_repeat(None, again, &text, &text);
        all.take_repeat(None, phrase, &text, &[0, 1, 99]);
    }
    let right = |repeated| own.surety(&all).reach(repeated, 15).sum::<f64>();
    assert!(right(again) > 14.0, "{}", right(again));
    assert!(right(phrase) < 3.0, "{}", right(phrase));
}

/// Times of single sizes that are 2 % off, and drafts that are right as a whole chain's last ones are: a
/// step less is worth more than the rows.
#[test]
fn the_whole_chain_is_kept_where_one_of_nearly_as_many_drafts_seems_no_worse() {
    for off in [0.98, 1.0, 1.02] {
        let mut policy = Policy::default();
        for (rows, ms) in [(1, 2.0), (8, 3.3 * off), (16, 5.2 / off)] {
            policy.costs.calibrate(StepKind::Plain, 1, rows, ms);
        }
        policy.costs.calibrate(StepKind::Block, 1, 16, 7.6);
        for step in 0..2000 {
            let right = (0..15)
                .take_while(|draft| hashed(16 * step + draft) < 0.955)
                .count();
            let outcome = Outcome {
                depth: 15,
                accepted: right,
                spine: right,
                ..Outcome::default()
            };
            policy.acceptance.take_chain(None, &outcome);
        }
        let lookup = Lookup::default();
        let plan = SequencePolicy::default().plan(&mut policy, CHOICES, 1, &lookup);
        assert_eq!(plan, DraftPlan::Chain { depth: 15 }, "{off}");
    }
}

#[test]
fn no_block_is_drafted_for_the_last_tokens_of_a_copy() {
    let mut policy = policy(2.0, 0.2, 2.5);
    let text: Vec<u32> = (0..60).collect();
    let end = 59;
    for left in 1..=4 {
        let mut lookup = Lookup::ending_with(&[end]);
        lookup.extend(&text);
        lookup.extend(&text[..60 - left]);
        let plan = SequencePolicy::default().plan(&mut policy, CHOICES, 1, &lookup);
        // The last one comes by itself.
        let drafts = match left {
            1 => DraftPlan::None,
            _ => DraftPlan::Given(text[60 - left..59].to_vec()),
        };
        assert_eq!(plan, drafts);
    }
}

/// Milliseconds of steps of Qwen3.6-27B on one H200 by streams, without drafts and with 15
/// (benches/results/streams-27b-h200.json).
const STREAMS: [(usize, f64, f64); 6] = [
    (1, 13.5, 16.0),
    (4, 14.0, 18.4),
    (8, 14.5, 22.4),
    (16, 15.9, 34.0),
    (32, 18.7, 60.4),
    (64, 23.7, 112.4),
];

/// The choice for each number of streams, when a draft behind right ones is right that often.
fn depths(acceptance: f64) -> Vec<(usize, DraftPlan, f64)> {
    let mut policy = Policy::default();
    for (streams, plain, _) in STREAMS {
        policy
            .costs
            .calibrate(StepKind::Plain, streams, streams, plain);
    }
    for (streams, _, drafted) in STREAMS {
        // The drafter has a tenth of the work.
        let rows = 16 * streams;
        policy
            .costs
            .calibrate(StepKind::Plain, streams, rows, 0.9 * drafted);
        policy
            .costs
            .calibrate(StepKind::Block, streams, rows, drafted);
    }
    for step in 0..2000 {
        let right = (0..15).take_while(|draft| hashed(16 * step + draft) < acceptance);
        let right = right.count();
        let outcome = Outcome {
            depth: 15,
            accepted: right,
            spine: right,
            ..Outcome::default()
        };
        policy.acceptance.take_chain(None, &outcome);
    }
    let choices = Choices {
        tree_budget: 0,
        ..CHOICES
    };
    let tokens = |depth: usize| (0..=depth).map(|n| acceptance.powi(n as i32)).sum::<f64>();
    let of = |&(streams, plain, drafted): &(usize, f64, f64)| {
        let mut sequence = SequencePolicy::default();
        let plan = sequence.plan(&mut policy.clone(), choices, streams, &Lookup::default());
        let depth = plan.most_drafts();
        let rows = streams * (1 + depth);
        let ms = policy.costs.step_ms(StepKind::of(&plan), streams, rows);
        let best_fixed = (1.0 / plain).max(tokens(15) / drafted);
        (depth, plan, tokens(depth) / ms / best_fixed)
    };
    STREAMS.iter().map(of).collect()
}

/// A number between 0 and 1, the same each time.
fn hashed(value: u64) -> f64 {
    let mixed = (value + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn chains_get_shorter_the_more_streams_share_a_step() {
    let depths = depths(0.8);
    assert!(depths[0].0 >= 12, "{depths:?}");
    assert!(
        depths.windows(2).all(|pair| pair[0].0 >= pair[1].0),
        "{depths:?}"
    );
    let (depth, _, gain) = depths[5];
    assert!((1..=7).contains(&depth) && gain > 1.2, "{depths:?}");
    assert!(depths.iter().all(|(_, _, gain)| *gain > 0.98), "{depths:?}");
}

#[test]
fn many_streams_of_poor_drafts_do_without() {
    let depths = depths(0.2);
    assert_eq!(depths[5].1, DraftPlan::None, "{depths:?}");
    assert!(depths[0].0 <= 3, "{depths:?}");
}

/// Costs that a busy machine let look bad, and answers too short for a try of their own.
#[test]
fn drafts_that_looked_dear_are_tried_again_by_the_next_sequences() {
    let mut policy = policy(1.0, 0.01, 20.0);
    let mut drafted = Vec::new();
    for _ in 0..30 {
        let mut sequence = SequencePolicy::default();
        for _ in 0..10 {
            let plan = sequence.plan(&mut policy, CHOICES, 1, &Lookup::default());
            let depth = plan.most_drafts().min(15);
            drafted.push(depth);
            let outcome = Outcome {
                depth,
                accepted: depth,
                spine: depth,
                ..Outcome::default()
            };
            let kind = StepKind::of(&plan);
            let ms = if kind == StepKind::Plain { 1.0 } else { 1.5 };
            policy.costs.take(kind, 1, 1 + plan.most_drafts(), ms);
            sequence.take(&mut policy, &plan, &outcome);
            sequence.settle(&mut policy);
        }
    }
    assert!(drafted[..5].iter().all(|&depth| depth == 0), "{drafted:?}");
    assert!(
        drafted[200..].iter().all(|&depth| depth >= 12),
        "{drafted:?}"
    );
}

/// As an engine of many streams goes on; gives who drafted, step by step.
fn drafters(policy: &mut Policy, streams: &mut [SequencePolicy], right: usize) -> Vec<Vec<usize>> {
    let running = streams.len();
    let step = |_| {
        let plans: Vec<DraftPlan> = streams
            .iter_mut()
            .map(|stream| stream.plan(policy, CHOICES, running, &Lookup::default()))
            .collect();
        for (stream, plan) in streams.iter_mut().zip(&plans) {
            let depth = plan.most_drafts().min(15);
            let right = right.min(depth);
            let outcome = Outcome {
                depth,
                accepted: right,
                spine: right,
                ..Outcome::default()
            };
            stream.take(policy, plan, &outcome);
            stream.settle(policy);
        }
        let drafts = plans.iter().enumerate();
        let drafts = drafts.filter(|(_, plan)| plan.most_drafts() > 0);
        drafts.map(|(stream, _)| stream).collect()
    };
    (0..1200).map(step).collect()
}

/// All at once they would make everybody wait, and by turns one that has no luck is not asked for all.
#[test]
fn many_streams_try_one_by_one_and_by_turns() {
    // Drafts that are never right, and drafts that are but cost more than they bring.
    for (mut policy, right) in [(policy(5.0, 1.0, 3.0), 0), (policy(0.0, 1.0, 9.0), 2)] {
        let mut streams = vec![SequencePolicy::default(); 64];
        let steps = drafters(&mut policy, &mut streams, right);
        let steps = &steps[100..];
        let most = steps.iter().map(Vec::len).max().unwrap();
        let mut tried: Vec<usize> = steps.iter().flatten().copied().collect();
        assert!(most == 1 && tried.len() >= 2, "{most} {tried:?}");
        assert!(tried.len() <= steps.len() / 30, "{tried:?}");
        let all = tried.len();
        tried.sort_unstable();
        tried.dedup();
        assert_eq!(tried.len(), all.min(64));
    }
}

#[test]
fn streams_find_out_that_drafts_pay_again() {
    let mut policy = policy(20.0, 0.05, 1.0);
    let mut streams = vec![SequencePolicy::default(); 64];
    drafters(&mut policy, &mut streams, 0);
    let steps = drafters(&mut policy, &mut streams, 12);
    assert_eq!(steps[1199].len(), 64);
}

/// Beside others that draft.
#[test]
fn streams_without_luck_try_one_by_one() {
    let mut policy = policy(20.0, 0.05, 5.0);
    let mut streams = vec![SequencePolicy::default(); 16];
    let all: Vec<usize> = (0..16).collect();
    let mut most = 0;
    for _ in 0..600 {
        let plans: Vec<DraftPlan> = streams
            .iter_mut()
            .map(|stream| stream.plan(&mut policy, CHOICES, 16, &Lookup::default()))
            .collect();
        let luckless = all
            .iter()
            .filter(|&&n| n >= 4 && plans[n].most_drafts() > 0);
        most = luckless.count();
        for ((stream, plan), n) in streams.iter_mut().zip(&plans).zip(&all) {
            let depth = plan.most_drafts().min(15);
            let right = if *n < 4 { depth } else { 0 };
            let outcome = Outcome {
                depth,
                accepted: right,
                spine: right,
                ..Outcome::default()
            };
            stream.take(&mut policy, plan, &outcome);
            stream.settle(&mut policy);
        }
    }
    assert!(most <= 1, "{most}");
}

#[test]
fn an_engine_that_knows_nothing_tries_whole_chains() {
    // A pass is cheap beside a block, as on a processor that does other things.
    let plan =
        SequencePolicy::default().plan(&mut policy(3.0, 1.5, 4.0), CHOICES, 1, &Lookup::default());
    assert!(matches!(plan, DraftPlan::Chain { depth: 9.. }), "{plan:?}");
}

/// Where steps are short, each is learned from while the next one runs.
#[test]
fn what_is_learned_a_step_later_comes_to_the_same() {
    let run = |late: bool| {
        let mut policy = policy(1.0, 0.5, 0.1);
        let mut sequence = SequencePolicy::default();
        let mut plans = Vec::new();
        for _ in 0..60 {
            let plan = sequence.plan(&mut policy, CHOICES, 1, &Lookup::default());
            if late {
                sequence.settle(&mut policy);
            }
            let depth = plan.most_drafts().min(15);
            let outcome = Outcome {
                depth,
                accepted: 4.min(depth),
                spine: 4.min(depth),
                ..Outcome::default()
            };
            sequence.take(&mut policy, &plan, &outcome);
            if !late {
                sequence.settle(&mut policy);
            }
            plans.push(depth);
        }
        plans
    };
    let (soon, late) = (run(false), run(true));
    assert_eq!(soon[40..], late[40..]);
    assert!(soon[0] > 4 && soon[59] < soon[0], "{soon:?}");
    // The second plan knows nothing of the first step yet.
    assert_eq!((late[0], late[1]), (soon[0], soon[0]));
    assert_ne!(soon[1], soon[0]);
}

/// Behind a text that does not end nothing is made up.
#[test]
fn lookups_that_go_on_are_cut_to_few_numbers_of_rows() {
    let choices = |lookup| Choices {
        chain: 0,
        lookup,
        ..CHOICES
    };
    // A short repeat is followed for 16 tokens at most, a long one as far as there is room.
    for (repeated, room, drafts) in [(3, 63, 15), (20, 40, 39), (20, 14, 14), (20, 63, 63)] {
        let copied: Vec<u32> = (100..200).collect();
        let mut lookup = Lookup::ending_with(&[1]);
        lookup.extend(&copied);
        lookup.extend(&copied[..repeated]);
        let mut policy = policy(20.0, 0.01, 1.0);
        let plan = SequencePolicy::default().plan(&mut policy, choices(room), 1, &lookup);
        let expected = copied[repeated..repeated + drafts].to_vec();
        assert_eq!(plan, DraftPlan::Given(expected));
    }
}

/// A device prepares for every number of rows by itself, so there are few numbers of many.
#[test]
fn lookups_of_many_rows_have_multiples_of_four() {
    let choices = Choices {
        chain: 0,
        lookup: 63,
        ..CHOICES
    };
    for (left, drafts) in [
        (5, 4),
        (16, 15),
        (17, 19),
        (46, 47),
        (48, 47),
        (50, 51),
        (90, 63),
    ] {
        let copied: Vec<u32> = (100..120 + left).collect();
        let end = 119 + left;
        let mut lookup = Lookup::ending_with(&[end]);
        lookup.extend(&copied);
        lookup.extend(&copied[..20]);
        let mut policy = policy(20.0, 0.01, 1.0);
        let DraftPlan::Given(drafted) =
            SequencePolicy::default().plan(&mut policy, choices, 1, &lookup)
        else {
            panic!("{left}: no lookup");
        };
        // Behind the end there is nothing to be right.
        let meant = drafted.len().min(left as usize);
        assert_eq!(drafted[..meant], copied[20..20 + meant], "{left}");
        assert!(drafted[meant..].iter().all(|&token| token == end), "{left}");
        assert_eq!(drafted.len(), drafts, "{left}");
    }
}

/// What steps cost is known for all that any request may draft.
#[test]
fn requests_of_other_bounds_run_side_by_side() {
    let mut policy = policy(20.0, 0.01, 1.0);
    let bounds = [(15, 15), (4, 7), (0, 2), (9, 0), (15, 15)];
    let mut streams = bounds.map(|bounds| (bounds, SequencePolicy::default()));
    let text = repeating(true);
    for step in 0..20 {
        for ((chain, room), stream) in &mut streams {
            let choices = Choices {
                chain: *chain,
                lookup: *room,
                ..CHOICES
            };
            let lookup = match step % 2 {
                0 => &text,
                _ => &Lookup::default(),
            };
            let plan = stream.plan(&mut policy, choices, 5, lookup);
            match &plan {
                DraftPlan::Chain { depth } => assert_eq!(depth, chain),
                DraftPlan::Given(drafts) => {
                    assert!((1..=*room).contains(&drafts.len()), "{drafts:?}");
                    assert_eq!(drafts[..1], [30]);
                }
                DraftPlan::Tree(shape) => assert_eq!(shape.depth, *chain),
                DraftPlan::None => assert_eq!(*chain, 0),
                DraftPlan::Mtp { .. } => panic!("there is no head"),
            }
            let depth = plan.most_drafts().min(15);
            let outcome = Outcome {
                depth,
                accepted: depth,
                spine: depth,
                ..Outcome::default()
            };
            stream.take(&mut policy, &plan, &outcome);
            stream.settle(&mut policy);
        }
    }
}
