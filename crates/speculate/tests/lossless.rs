//! Verification leaves the target's distribution as it is: exact laws against counts.
#![allow(clippy::unwrap_used)]

mod common;

use common::{VOCAB, chi_square_p, drafter_logits, random, target_logits, uniform};
use volley_speculate::{
    Commit, Distribution, Error, History, Proposal, Rule, SamplingParams, TreeOrder, TreeShape,
    WholeRows, argmax, distribution, draft_chain, draft_tree, sample, verify,
};

const ANCHOR: u32 = 0;
const TRIALS: u64 = 40_000;
const SIGNIFICANCE: f64 = 0.01;

/// How a test verifies a proposal: the real thing, or a wrong rule.
type Verifier<'a> =
    &'a dyn Fn(&Proposal, u64, usize, &mut History, Target) -> Result<Commit, Error>;
type Target<'a> = &'a mut dyn FnMut(usize, &History) -> Result<Distribution, Error>;
/// How a test drafts behind a history whose next token is for the position.
type Drafter<'a> = &'a dyn Fn(&SamplingParams, &mut History, usize) -> Proposal;

fn target_after(history: &History, params: &SamplingParams) -> Result<Distribution, Error> {
    distribution(&target_logits(history.output()), params, history, VOCAB)
}

/// At least `count` tokens, step by step.
fn generate(
    params: &SamplingParams,
    count: usize,
    drafter: Drafter,
    verifier: Verifier,
) -> Vec<u32> {
    let mut history = History::new(&[]);
    history.push(ANCHOR);
    while history.output().len() <= count {
        let position = history.output().len();
        let proposal = drafter(params, &mut history, position);
        let mut target = |_: usize, history: &History| target_after(history, params);
        let commit = verifier(&proposal, params.seed, position, &mut history, &mut target).unwrap();
        for token in commit.accepted.into_iter().chain([commit.bonus]) {
            history.push(token);
        }
    }
    history.output()[1..].to_vec()
}

/// p-value of the joint law of the first two tokens.
fn joint_p(params: &SamplingParams, drafter: Drafter, verifier: Verifier) -> f64 {
    let mut counts = vec![0; VOCAB * VOCAB];
    for seed in 0..TRIALS {
        let params = SamplingParams {
            seed,
            ..params.clone()
        };
        let tokens = generate(&params, 2, drafter, verifier);
        counts[tokens[0] as usize * VOCAB + tokens[1] as usize] += 1;
    }
    chi_square_p(&counts, &joint_law(params))
}

fn joint_law(params: &SamplingParams) -> Vec<f64> {
    let mut law = vec![0.0; VOCAB * VOCAB];
    let mut history = History::new(&[]);
    history.push(ANCHOR);
    for (first, p) in target_after(&history, params).unwrap().iter() {
        history.push(first);
        for (second, q) in target_after(&history, params).unwrap().iter() {
            law[first as usize * VOCAB + second as usize] = f64::from(p) * f64::from(q);
        }
        history.truncate(1);
    }
    law
}

/// Every filter off, and all of them on, at both temperatures.
fn settings() -> Vec<SamplingParams> {
    let mut all = Vec::new();
    for temperature in [0.7, 1.0] {
        let plain = SamplingParams {
            temperature,
            ..SamplingParams::default()
        };
        let filtered = SamplingParams {
            top_k: 6,
            top_p: 0.95,
            min_p: 0.02,
            presence_penalty: 0.2,
            frequency_penalty: 0.3,
            repetition_penalty: 1.1,
            logit_bias: [(2, 0.4)].into(),
            ..plain.clone()
        };
        all.extend([plain, filtered]);
    }
    all
}

fn with(
    rule: Rule,
) -> impl Fn(&Proposal, u64, usize, &mut History, Target) -> Result<Commit, Error> {
    move |proposal, seed, position, history, target| {
        verify(proposal, rule, seed, position, history, target)
    }
}

fn block(history: &History, depth: usize) -> Vec<Vec<f32>> {
    let path = history.output();
    (0..depth)
        .map(|index| drafter_logits(path, index))
        .collect()
}

/// Sampled drafts of the rule.
fn sampled(depth: usize, rule: Rule) -> impl Fn(&SamplingParams, &mut History, usize) -> Proposal {
    move |params, history, position| {
        let rows = block(history, depth);
        let rows = rows.concat();
        let logits = &mut WholeRows::new(&rows, VOCAB);
        draft_chain(logits, depth, params, history, VOCAB, position, rule).unwrap()
    }
}

/// The drafter's likeliest tokens.
fn greedy(depth: usize) -> impl Fn(&SamplingParams, &mut History, usize) -> Proposal {
    move |_, history, _| {
        let rows = block(history, depth);
        let tokens = rows.iter().map(|logits| argmax(logits, VOCAB).unwrap());
        Proposal {
            tokens: tokens.collect(),
            ..Proposal::default()
        }
    }
}

/// A random tree of up to 12 drafts, drawn afresh for every seed and position.
fn tree(params: &SamplingParams, _: &mut History, position: usize) -> Proposal {
    let mut random = random(1000 * params.seed + position as u64);
    let mut below = |bound: usize| (uniform(&mut random) * bound as f64) as u32;
    let size = below(13) as usize;
    Proposal {
        tokens: (0..size).map(|_| below(VOCAB)).collect(),
        parents: Some((0..size).map(|index| below(index + 1)).collect()),
        distributions: None,
    }
}

/// A best-first tree over the block's marginals.
fn best_first(
    shape: TreeShape,
    order: TreeOrder,
) -> impl Fn(&SamplingParams, &mut History, usize) -> Proposal {
    move |params, history, position| {
        let rows = block(history, shape.depth).concat();
        let logits = &mut WholeRows::new(&rows, VOCAB);
        draft_tree(logits, params, history, VOCAB, position, shape, order).unwrap()
    }
}

/// Trees of both orders, with and without a chain to begin with.
fn shapes() -> impl Iterator<Item = (TreeShape, TreeOrder)> {
    let shape = |budget, depth, seeded| TreeShape {
        budget,
        depth,
        seeded,
    };
    [
        (shape(9, 3, true), TreeOrder::Perturbed),
        (shape(9, 3, false), TreeOrder::Perturbed),
        (shape(4, 2, false), TreeOrder::Marginal),
        (shape(9, 3, true), TreeOrder::Marginal),
    ]
    .into_iter()
}

#[track_caller]
fn assert_lossless(name: &str, drafter: Drafter, verifier: Verifier) {
    for params in settings() {
        let p = joint_p(&params, drafter, verifier);
        println!("{name}: p = {p:.4} at {params:?}");
        assert!(p > SIGNIFICANCE, "{name}: p = {p} at {params:?}");
    }
}

#[test]
fn plain_sampling() {
    assert_lossless("plain", &greedy(0), &with(Rule::Match));
    assert_lossless("plain, residual", &greedy(0), &with(Rule::Residual));
}

#[test]
fn match_with_coupled_drafts() {
    assert_lossless("coupled", &sampled(3, Rule::Match), &with(Rule::Match));
}

#[test]
fn match_with_greedy_drafts() {
    assert_lossless("greedy drafts", &greedy(3), &with(Rule::Match));
}

#[test]
fn match_with_trees() {
    assert_lossless("trees", &tree, &with(Rule::Match));
}

#[test]
fn match_with_best_first_trees() {
    for (shape, order) in shapes().step_by(2) {
        let name = format!("{shape:?} {order:?}");
        assert_lossless(&name, &best_first(shape, order), &with(Rule::Match));
    }
}

#[test]
fn residual_with_sampled_drafts() {
    assert_lossless(
        "residual",
        &sampled(3, Rule::Residual),
        &with(Rule::Residual),
    );
}

#[test]
fn residual_with_one_draft() {
    assert_lossless(
        "residual, one",
        &sampled(1, Rule::Residual),
        &with(Rule::Residual),
    );
}

#[test]
fn residual_with_greedy_drafts() {
    assert_lossless("residual, greedy", &greedy(3), &with(Rule::Residual));
}

/// Rejection sampling over a chain, right or with one of the classical mistakes.
fn chain_rule(
    accepts: fn(f64, f32, f32) -> bool,
    residual: fn(f32, f32) -> f32,
) -> impl Fn(&Proposal, u64, usize, &mut History, Target) -> Result<Commit, Error> {
    move |proposal, seed, position, history, target| {
        let mut random = random(seed.wrapping_mul(977) + position as u64);
        let committed = history.output().len();
        let mut commit = Commit {
            keep: vec![0],
            ..Commit::default()
        };
        let drafters = proposal.distributions.as_ref().expect("sampled drafts");
        for (row, (&draft, q)) in proposal.tokens.iter().zip(drafters).enumerate() {
            let p = target(row, history)?;
            if !accepts(
                uniform(&mut random),
                p.probability(draft),
                q.probability(draft),
            ) {
                history.truncate(committed);
                let weights = p
                    .iter()
                    .map(|(token, p)| (token, residual(p, q.probability(token))));
                commit.bonus = weighted(weights.collect(), uniform(&mut random));
                return Ok(commit);
            }
            history.push(draft);
            commit.keep.push(row as u32 + 1);
            commit.accepted.push(draft);
        }
        let p = target(proposal.tokens.len(), history)?;
        history.truncate(committed);
        commit.bonus = weighted(p.iter().collect(), uniform(&mut random));
        Ok(commit)
    }
}

fn weighted(weights: Vec<(u32, f32)>, uniform: f64) -> u32 {
    let total: f64 = weights.iter().map(|&(_, weight)| f64::from(weight)).sum();
    let mut left = uniform * total;
    for &(token, weight) in &weights {
        left -= f64::from(weight);
        if left < 0.0 {
            return token;
        }
    }
    weights.last().expect("some weight").0
}

fn right_accept(uniform: f64, p: f32, q: f32) -> bool {
    uniform * f64::from(q) < f64::from(p)
}

fn right_residual(p: f32, q: f32) -> f32 {
    (p - q).max(0.0)
}

/// Power of the test: it passes the textbook rule written down here, and fails every wrong one.
#[test]
fn wrong_rules_fail() {
    let sampled = sampled(3, Rule::Residual);
    let textbook = chain_rule(right_accept, right_residual);
    assert_lossless("textbook", &sampled, &textbook);

    let inverted = chain_rule(|u, p, q| u * f64::from(p) < f64::from(q), right_residual);
    let unsubtracted = chain_rule(right_accept, |p, _| p);
    let all_accepted = chain_rule(|_, p, _| p > 0.0, right_residual);
    let threshold = chain_rule(|_, p, _| p > 0.2, right_residual);
    let unfiltered =
        |proposal: &Proposal, seed, position, history: &mut History, target: Target| {
            let neutral = SamplingParams {
                temperature: 1.0,
                ..SamplingParams::default()
            };
            let rows = block(history, proposal.tokens.len());
            let distributions = rows
                .iter()
                .map(|logits| distribution(logits, &neutral, history, VOCAB))
                .collect::<Result<_, _>>()?;
            let proposal = Proposal {
                distributions: Some(distributions),
                ..proposal.clone()
            };
            verify(&proposal, Rule::Residual, seed, position, history, target)
        };
    let second_chance =
        |proposal: &Proposal, seed, position, history: &mut History, target: Target| {
            let mut commit = verify(proposal, Rule::Match, seed, position, history, &mut *target)?;
            if commit.accepted.is_empty() {
                let p = target(0, history)?;
                commit.bonus = sample(&p, seed ^ (1 << 40), position)?;
            }
            Ok(commit)
        };
    let wrong: [(&str, Verifier); 6] = [
        ("inverted ratio", &inverted),
        ("residual without subtraction", &unsubtracted),
        ("every possible draft", &all_accepted),
        ("threshold", &threshold),
        ("unfiltered drafter", &unfiltered),
        ("second chance", &second_chance),
    ];
    // Temperature 0.7 and every filter.
    let params = &settings()[1];
    for (name, verifier) in wrong {
        let p = joint_p(params, &sampled, verifier);
        println!("{name}: p = {p:e}");
        assert!(p < 1e-6, "{name} passes: p = {p}");
    }
}

/// Walks through a tree that are wrong: each changes the law, and the test sees it.
#[test]
fn wrong_walks_fail() {
    let (shape, order) = (
        TreeShape {
            budget: 9,
            depth: 3,
            seeded: true,
        },
        TreeOrder::Perturbed,
    );
    let drafter = best_first(shape, order);
    // Takes the row of the parent's sibling: reads the target's answer at a wrong node.
    let wrong_row = |proposal: &Proposal, seed, position, history: &mut History, target: Target| {
        let committed = history.output().len();
        let commit: Result<Commit, Error> = verify(
            proposal,
            Rule::Match,
            seed,
            position,
            history,
            |row, own| {
                let mut other = own.clone();
                if row > 0 {
                    other.truncate(committed);
                }
                target(row, &other)
            },
        );
        commit
    };
    // Accepts any child of the node, not the one that holds the token.
    let any_child = |proposal: &Proposal, seed, position, history: &mut History, target: Target| {
        let committed = history.output().len();
        let parents = proposal.parents.as_ref().expect("a tree");
        let mut commit = Commit {
            keep: vec![0],
            ..Commit::default()
        };
        let mut row = 0;
        while let Some(child) = parents.iter().position(|&parent| parent == row) {
            row = child as u32 + 1;
            commit.keep.push(row);
            commit.accepted.push(proposal.tokens[child]);
            history.push(proposal.tokens[child]);
            if commit.accepted.len() == 2 {
                break;
            }
        }
        let p = target(row as usize, history)?;
        commit.bonus = sample(&p, seed, position + commit.accepted.len())?;
        history.truncate(committed);
        Ok(commit)
    };
    // Tries the children one after the other, each with a coin of its own.
    let coins =
        |proposal: &Proposal, seed: u64, position: usize, history: &mut History, target: Target| {
            let p = target(0, history)?;
            let parents = proposal.parents.as_ref().expect("a tree");
            let mut coins = random(seed.wrapping_mul(31) + position as u64);
            let mut commit = Commit {
                keep: vec![0],
                ..Commit::default()
            };
            for (draft, _) in parents
                .iter()
                .enumerate()
                .filter(|(_, parent)| **parent == 0)
            {
                let token = proposal.tokens[draft];
                if uniform(&mut coins) < f64::from(p.probability(token)) {
                    commit.keep.push(draft as u32 + 1);
                    commit.accepted.push(token);
                    history.push(token);
                    let p = target(draft + 1, history)?;
                    commit.bonus = sample(&p, seed, position + 1)?;
                    history.truncate(history.output().len() - 1);
                    return Ok(commit);
                }
            }
            commit.bonus = sample(&p, seed, position)?;
            Ok(commit)
        };
    let wrong: [(&str, Verifier); 3] = [
        ("answer of another node", &wrong_row),
        ("any child", &any_child),
        ("coins", &coins),
    ];
    let params = &settings()[1];
    for (name, verifier) in wrong {
        let p = joint_p(params, &drafter, verifier);
        println!("{name}: p = {p:e}");
        assert!(p < 1e-6, "{name} passes: p = {p}");
    }
}

fn text(params: &SamplingParams, drafter: Drafter) -> Vec<u32> {
    let mut text = generate(params, 40, drafter, &with(Rule::Match));
    text.truncate(40);
    text
}

/// Under `Match` the text depends on the seed, not on what was drafted or how deep.
#[test]
fn speculation_does_not_change_the_text() {
    for params in settings() {
        for seed in 0..100 {
            let params = SamplingParams {
                seed,
                ..params.clone()
            };
            let plain = text(&params, &greedy(0));
            for depth in [1, 2, 7, 15] {
                assert_eq!(text(&params, &greedy(depth)), plain);
                assert_eq!(text(&params, &sampled(depth, Rule::Match)), plain);
            }
            assert_eq!(text(&params, &tree), plain);
            for (shape, order) in shapes().filter(|_| params.seed < 10) {
                assert_eq!(text(&params, &best_first(shape, order)), plain);
            }
        }
    }
}

/// At temperature 0 every rule and shape gives the greedy text.
#[test]
fn greedy_equality() {
    for frequency_penalty in [0.0, 0.4] {
        let params = SamplingParams {
            frequency_penalty,
            ..SamplingParams::default()
        };
        let plain = text(&params, &greedy(0));
        assert!(plain.iter().any(|&token| token != plain[0]));
        for depth in [1, 3, 15] {
            for rule in [Rule::Match, Rule::Residual] {
                let run = generate(&params, 40, &sampled(depth, rule), &with(rule));
                assert_eq!(run[..40], plain);
            }
        }
        for (shape, order) in shapes() {
            assert_eq!(text(&params, &best_first(shape, order)), plain);
        }
        for seed in 0..100 {
            let params = SamplingParams {
                seed,
                ..params.clone()
            };
            assert_eq!(text(&params, &tree), plain);
        }
    }
}

/// How often the first draft is accepted, against theory: p(d) for a greedy draft, the sum of
/// min(p, q) under `Residual`, at least (1 - TV) / (1 + TV) for coupled drafts.
#[test]
fn acceptance_rates() {
    for params in settings() {
        let mut history = History::new(&[]);
        history.push(ANCHOR);
        let p = target_after(&history, &params).unwrap();
        let logits = drafter_logits(&[ANCHOR], 0);
        let q = distribution(&logits, &params, &history, VOCAB).unwrap();
        let likeliest = argmax(&logits, VOCAB).unwrap();
        let overlap: f64 = p
            .iter()
            .map(|(t, p)| f64::from(p.min(q.probability(t))))
            .sum();

        let rate = |drafter: Drafter, rule| {
            let accepted = (0..TRIALS).filter(|&seed| {
                let params = SamplingParams {
                    seed,
                    ..params.clone()
                };
                let mut history = history.clone();
                let proposal = drafter(&params, &mut history, 1);
                let commit: Result<_, Error> =
                    verify(&proposal, rule, seed, 1, &mut history, |_, history| {
                        target_after(history, &params)
                    });
                !commit.unwrap().accepted.is_empty()
            });
            accepted.count() as f64 / TRIALS as f64
        };
        let margin = 4.0 * 0.5 / (TRIALS as f64).sqrt();
        let one_hot = rate(&greedy(1), Rule::Match);
        let one_hot_residual = rate(&greedy(1), Rule::Residual);
        let coupled = rate(&sampled(1, Rule::Match), Rule::Match);
        let residual = rate(&sampled(1, Rule::Residual), Rule::Residual);
        println!(
            "greedy {one_hot:.3}, coupled {coupled:.3}, residual {residual:.3} ({overlap:.3})"
        );
        let p_likeliest = f64::from(p.probability(likeliest));
        assert!((one_hot - p_likeliest).abs() < margin);
        assert!((one_hot_residual - p_likeliest).abs() < margin);
        assert!((residual - overlap).abs() < margin);
        assert!(coupled > overlap / (2.0 - overlap) - margin && coupled < overlap + margin);
    }
}
