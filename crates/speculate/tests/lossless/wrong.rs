//! Rules and walks that are wrong: the test of the law must fail them.

use volley_speculate::{
    Commit, Error, History, Proposal, Rule, SamplingParams, TreeOrder, TreeShape, distribution,
    sample, verify,
};

use crate::common::{VOCAB, random, uniform};
use crate::drafters::{best_first, block, sampled, settings};
use crate::{Target, Verifier, assert_lossless, joint_p};

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
