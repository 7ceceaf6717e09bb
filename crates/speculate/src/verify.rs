use crate::noise::{Noise, Stream};
use crate::sample::{race, sample, sample_from};
use crate::{Commit, Distribution, Error, History, Proposal};

/// How drafts are accepted; both rules leave the target's distribution as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The target samples every position with its own noise, and drafts count as far as they
    /// equal it (spec/dflash.md 5.1, 5.2, 7.1). Tokens depend on the seed and the target alone:
    /// the text is the same with and without speculation, whatever was drafted. Chains and trees.
    #[default]
    Match,
    /// A draft `d` sampled from `q` is accepted with probability `min(1, p(d) / q(d))`, the rest
    /// is made up from `max(p - q, 0)` (spec/dflash.md 5.3). Same law, another text than without
    /// speculation, provided that whether a draft is verified does not depend on its own token. Where
    /// `p` is not known but for a sample of it, with all mass on that, a draft counts if it equals it.
    /// Chains; a draft without distribution counts as sure (`q(d) = 1`).
    Residual,
}

/// Decides which drafts stand and samples the token behind them.
///
/// `position` is the sequence position of the first draft, the anchor's plus one. `history` ends
/// with the anchor; `target` is asked for the distribution after a row, given the history up to
/// and with this row, only for rows that matter, and `history` is left as it was.
///
/// # Errors
/// A malformed proposal, a tree under [`Rule::Residual`], whatever `target` fails with.
pub fn verify<E: From<Error>>(
    proposal: &Proposal,
    rule: Rule,
    seed: u64,
    position: usize,
    history: &mut History,
    mut target: impl FnMut(usize, &History) -> Result<Distribution, E>,
) -> Result<Commit, E> {
    check(proposal, rule)?;
    let committed = history.output().len();
    let commit = walk(proposal, position, history, |row, position, history| {
        let target = target(row, history)?;
        match rule {
            Rule::Match => Ok(sample(&target, seed, position)?),
            Rule::Residual => Ok(accept_or_replace(proposal, row, &target, seed, position)?),
        }
    });
    history.truncate(committed);
    commit
}

/// Goes down from the anchor as long as a child holds the token chosen after its parent.
fn walk<E>(
    proposal: &Proposal,
    position: usize,
    history: &mut History,
    mut choose: impl FnMut(usize, usize, &History) -> Result<u32, E>,
) -> Result<Commit, E> {
    let mut keep = vec![0];
    let mut accepted = Vec::new();
    let mut row = 0;
    loop {
        let token = choose(row, position + accepted.len(), history)?;
        let Some(child) = child(proposal, row, token) else {
            return Ok(Commit {
                keep,
                accepted,
                bonus: token,
            });
        };
        history.push(token);
        accepted.push(token);
        keep.push(child as u32);
        row = child;
    }
}

/// First row below `row` that holds `token`.
fn child(proposal: &Proposal, row: usize, token: u32) -> Option<usize> {
    match &proposal.parents {
        None => (proposal.tokens.get(row) == Some(&token)).then_some(row + 1),
        Some(parents) => {
            let mut drafts = proposal.tokens.iter().zip(parents);
            let index =
                drafts.position(|(&draft, &parent)| draft == token && parent as usize == row)?;
            Some(index + 1)
        }
    }
}

/// Token after `row` of a chain by the residual rule: the draft itself, or another one.
///
/// A replacement never equals the rejected draft: `p(d) < q(d)` there, so its residual is 0.
fn accept_or_replace(
    proposal: &Proposal,
    row: usize,
    target: &Distribution,
    seed: u64,
    position: usize,
) -> Result<u32, Error> {
    let Some(&draft) = proposal.tokens.get(row) else {
        return sample_from(target, seed, position, Stream::Residual);
    };
    let sure = Distribution::one_hot(draft);
    let drafter = match &proposal.distributions {
        Some(distributions) => &distributions[row],
        None => &sure,
    };
    let (p, q) = (target.probability(draft), drafter.probability(draft));
    let chance = Noise::new(seed, position, Stream::Accept).uniform(0);
    if chance * f64::from(q) < f64::from(p) {
        return Ok(draft);
    }
    let residual = target
        .iter()
        .map(|(token, p)| (token, f64::from(p) - f64::from(drafter.probability(token))));
    match race(residual, &mut Noise::new(seed, position, Stream::Residual)) {
        Some(token) => Ok(token),
        None => sample_from(target, seed, position, Stream::Residual),
    }
}

fn check(proposal: &Proposal, rule: Rule) -> Result<(), Error> {
    let drafts = proposal.tokens.len();
    let shape = |what, count| {
        if count == drafts {
            Ok(())
        } else {
            Err(Error::ProposalShape {
                drafts,
                what,
                count,
            })
        }
    };
    if let Some(parents) = &proposal.parents {
        shape("parents", parents.len())?;
        if rule == Rule::Residual {
            return Err(Error::ResidualTree { drafts });
        }
        for (row, &parent) in (1..).zip(parents) {
            if parent as usize >= row {
                return Err(Error::ParentOrder { row, parent });
            }
        }
    }
    if let Some(distributions) = &proposal.distributions {
        shape("distributions", distributions.len())?;
        for (index, (&token, drafter)) in proposal.tokens.iter().zip(distributions).enumerate() {
            if drafter.probability(token) == 0.0 {
                return Err(Error::ForeignDraft { index, token });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
