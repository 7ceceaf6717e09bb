use super::*;
use crate::{SamplingParams, distribution};

fn chain(tokens: &[u32]) -> Proposal {
    Proposal {
        tokens: tokens.to_vec(),
        ..Proposal::default()
    }
}

/// Target that always wants the token after the last one, modulo 10.
fn successor(_: usize, history: &History) -> Result<Distribution, Error> {
    let last = history.output().last().expect("the anchor is history");
    Ok(Distribution::one_hot((last + 1) % 10))
}

fn anchored(token: u32) -> History {
    let mut history = History::new(&[8, 8]);
    history.push(token);
    history
}

#[test]
fn greedy_accepts_the_longest_equal_run() {
    for rule in [Rule::Match, Rule::Residual] {
        for accepted in 0..=4 {
            let mut drafts = [4, 5, 6, 7];
            if let Some(wrong) = drafts.get_mut(accepted) {
                *wrong = 0;
            }
            let mut history = anchored(3);
            let commit: Result<_, Error> =
                verify(&chain(&drafts), rule, 1, 50, &mut history, successor);
            let expected = Commit {
                keep: (0..=accepted as u32).collect(),
                accepted: drafts[..accepted].to_vec(),
                bonus: 4 + accepted as u32,
            };
            assert_eq!(commit, Ok(expected), "{rule:?}");
            assert_eq!(history, anchored(3));
        }
    }
}

#[test]
fn without_drafts_the_bonus_is_the_step() {
    for rule in [Rule::Match, Rule::Residual] {
        let commit: Result<_, Error> =
            verify(&chain(&[]), rule, 1, 50, &mut anchored(3), successor);
        let expected = Commit {
            keep: vec![0],
            accepted: vec![],
            bonus: 4,
        };
        assert_eq!(commit, Ok(expected));
    }
}

#[test]
fn a_tree_is_walked_along_its_children() {
    //        0 (anchor 3)
    //    1:9      2:4      5:4
    //             3:7  4:5
    //                  6:6
    let tree = Proposal {
        tokens: vec![9, 4, 7, 5, 4, 6],
        parents: Some(vec![0, 0, 2, 2, 0, 4]),
        distributions: None,
    };
    let mut asked = Vec::new();
    let commit: Result<_, Error> = verify(
        &tree,
        Rule::Match,
        1,
        50,
        &mut anchored(3),
        |row, history| {
            asked.push((row, history.output().to_vec()));
            successor(row, history)
        },
    );
    let expected = Commit {
        keep: vec![0, 2, 4, 6],
        accepted: vec![4, 5, 6],
        bonus: 7,
    };
    assert_eq!(commit, Ok(expected));
    let paths = [
        (0, vec![3]),
        (2, vec![3, 4]),
        (4, vec![3, 4, 5]),
        (6, vec![3, 4, 5, 6]),
    ];
    assert_eq!(asked, paths);
}

#[test]
fn a_chain_written_as_a_tree_is_the_same() {
    let plain = chain(&[4, 5, 0]);
    let tree = Proposal {
        parents: Some(vec![0, 1, 2]),
        ..plain.clone()
    };
    let run = |proposal: &Proposal| -> Result<Commit, Error> {
        verify(proposal, Rule::Match, 1, 50, &mut anchored(3), successor)
    };
    assert_eq!(run(&plain), run(&tree));
}

/// A repeated token is penalised from the row after it on.
#[test]
fn penalties_see_the_draft_path() {
    let params = SamplingParams {
        frequency_penalty: 0.6,
        ..SamplingParams::default()
    };
    // Token 1 leads by 1 and loses 0.6 each time: twice it wins, then token 2 does.
    let logits = [0.0, 2.0, 1.0];
    let mut history = History::new(&[0]);
    history.push(0);
    let before = history.clone();
    let commit: Result<_, Error> = verify(
        &chain(&[1, 1, 1]),
        Rule::Match,
        0,
        2,
        &mut history,
        |_, history| distribution(&logits, &params, history, 3),
    );
    let expected = Commit {
        keep: vec![0, 1, 2],
        accepted: vec![1, 1],
        bonus: 2,
    };
    assert_eq!(commit, Ok(expected));
    assert_eq!(history, before);
}

#[test]
fn a_failing_target_leaves_the_history() {
    let mut history = anchored(3);
    let commit = verify(
        &chain(&[4, 5]),
        Rule::Match,
        1,
        50,
        &mut history,
        |row, history| {
            if row < 2 {
                successor(row, history)
            } else {
                Err(Error::EmptyDistribution { position: 52 })
            }
        },
    );
    assert_eq!(commit, Err(Error::EmptyDistribution { position: 52 }));
    assert_eq!(history, anchored(3));
}

#[test]
fn malformed_proposals_are_errors() {
    let run = |proposal: Proposal, rule| -> Result<Commit, Error> {
        verify(&proposal, rule, 1, 50, &mut anchored(3), successor)
    };
    let with_parents = |parents: &[u32]| Proposal {
        parents: Some(parents.to_vec()),
        ..chain(&[4, 5])
    };
    let with_distributions = |distributions| Proposal {
        distributions: Some(distributions),
        ..chain(&[4, 5])
    };
    assert_eq!(
        run(with_parents(&[0]), Rule::Match),
        Err(Error::ProposalShape {
            drafts: 2,
            what: "parents",
            count: 1
        })
    );
    assert_eq!(
        run(with_parents(&[0, 2]), Rule::Match),
        Err(Error::ParentOrder { row: 2, parent: 2 })
    );
    assert_eq!(
        run(with_parents(&[0, 1]), Rule::Residual),
        Err(Error::ResidualTree { drafts: 2 })
    );
    assert_eq!(
        run(with_distributions(vec![]), Rule::Residual),
        Err(Error::ProposalShape {
            drafts: 2,
            what: "distributions",
            count: 0
        })
    );
    let foreign = vec![Distribution::one_hot(4), Distribution::one_hot(6)];
    assert_eq!(
        run(with_distributions(foreign), Rule::Residual),
        Err(Error::ForeignDraft { index: 1, token: 5 })
    );
}
