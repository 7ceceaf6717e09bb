use proptest::prelude::*;

use super::*;
use crate::{Rule, WholeRows, draft_chain};

/// Rows of probabilities that sum to less than one, likeliest first, as candidates.
fn rows() -> impl Strategy<Value = Vec<Vec<Guess>>> {
    let row = prop::collection::vec(0.01f64..1.0, 1..5).prop_map(|mut weights| {
        weights.sort_by(|a, b| b.total_cmp(a));
        let total: f64 = weights.iter().sum::<f64>() * 1.1;
        (0..)
            .zip(weights)
            .map(|(token, weight)| Guess {
                token,
                score: (weight / total).ln(),
            })
            .collect()
    });
    prop::collection::vec(row, 1..5)
}

/// Probabilities of all prefixes, largest first.
fn all_prefixes(rows: &[Vec<Guess>]) -> Vec<f64> {
    let mut level = vec![0.0];
    let mut all = Vec::new();
    for row in rows {
        let next = level
            .iter()
            .flat_map(|above| row.iter().map(move |candidate| above + candidate.score));
        level = next.collect();
        all.extend(&level);
    }
    all.sort_by(|a: &f64, b| b.total_cmp(a));
    all
}

/// Row of a draft, as the path of its tokens.
fn path(tree: &Proposal, draft: usize) -> Vec<u32> {
    let parents = tree.parents.as_ref().unwrap();
    let mut path = vec![tree.tokens[draft]];
    let mut row = parents[draft];
    while row > 0 {
        path.push(tree.tokens[row as usize - 1]);
        row = parents[row as usize - 1];
    }
    path.reverse();
    path
}

fn score(rows: &[Vec<Guess>], path: &[u32]) -> f64 {
    let of = |(row, token): (&Vec<Guess>, &u32)| row[*token as usize].score;
    rows.iter().zip(path).map(of).sum()
}

proptest! {
    /// The theorem of the paper: no other set of as many prefixes has more mass.
    #[test]
    fn the_likeliest_prefixes_are_taken(rows in rows(), budget in 0usize..40) {
        let tree = best_first(&rows, budget, false);
        let best = all_prefixes(&rows);
        prop_assert_eq!(tree.tokens.len(), budget.min(best.len()));
        let mut paths: Vec<_> = (0..tree.tokens.len()).map(|draft| path(&tree, draft)).collect();
        for (path, best) in paths.iter().zip(&best) {
            prop_assert!((score(&rows, path) - best).abs() < 1e-9);
        }
        paths.sort();
        paths.dedup();
        prop_assert_eq!(paths.len(), tree.tokens.len(), "no path twice");
    }

    #[test]
    fn parents_come_first_and_the_seed_is_whole(rows in rows(), budget in 1usize..40) {
        for seeded in [false, true] {
            let tree = best_first(&rows, budget, seeded);
            let parents = tree.parents.as_ref().unwrap();
            prop_assert!((1..).zip(parents).all(|(row, &parent)| parent < row));
            if seeded {
                let chain = rows.len().min(budget);
                prop_assert!(tree.tokens[..chain].iter().all(|&token| token == 0));
                prop_assert!((0..chain).all(|draft| parents[draft] as usize == draft));
                // Behind the seed the rest is best-first again.
                let rest: Vec<f64> =
                    (chain..tree.tokens.len()).map(|i| score(&rows, &path(&tree, i))).collect();
                prop_assert!(rest.windows(2).all(|pair| pair[0] >= pair[1] - 1e-9));
            }
            prop_assert_eq!(tree.tokens.len(), budget.min(all_prefixes(&rows).len()));
        }
    }
}

fn logits(depth: usize) -> Vec<[f32; 40]> {
    let logit = |row: usize, token: usize| ((row * 31 + token * 17) % 23) as f32 / 4.0;
    (0..depth)
        .map(|row| std::array::from_fn(|token| logit(row, token)))
        .collect()
}

/// A seeded tree holds the chain that would be drafted without it, with noise, filters and
/// penalties.
#[test]
fn a_seeded_tree_starts_with_the_chain() {
    let rows = logits(7);
    let rows = || WholeRows::new(rows.as_flattened(), 40);
    for seed in 0..50 {
        for (temperature, top_k) in [(0.0, 0), (0.7, 0), (1.0, 5), (2.0, 30)] {
            let params = SamplingParams {
                temperature,
                top_k,
                seed,
                repetition_penalty: 1.3,
                frequency_penalty: 0.5,
                ..SamplingParams::default()
            };
            let mut history = History::new(&[3, 4]);
            history.push(9);
            let before = history.clone();
            let chain =
                draft_chain(&mut rows(), 7, &params, &mut history, 38, 3, Rule::Match).unwrap();
            let shape = TreeShape {
                budget: 20,
                depth: 7,
                seeded: true,
            };
            let tree = draft_tree(
                &mut rows(),
                &params,
                &mut history,
                38,
                3,
                shape,
                TreeOrder::Perturbed,
            )
            .unwrap();
            assert_eq!(tree.tokens[..7], chain.tokens);
            assert_eq!(history, before);
        }
    }
}

#[test]
fn bounds_are_kept() {
    let rows = logits(7);
    for (budget, depth) in [(1, 7), (5, 2), (63, 7), (63, 0)] {
        let shape = TreeShape {
            budget,
            depth,
            seeded: false,
        };
        let tree = draft_tree(
            &mut WholeRows::new(rows.as_flattened(), 40),
            &SamplingParams::default(),
            &mut History::new(&[]),
            40,
            0,
            shape,
            TreeOrder::Perturbed,
        )
        .unwrap();
        assert_eq!(tree.tokens.len(), if depth == 0 { 0 } else { budget });
        let longest = (0..tree.tokens.len()).map(|draft| path(&tree, draft).len());
        assert!(longest.max().unwrap_or(0) <= depth);
    }
}
