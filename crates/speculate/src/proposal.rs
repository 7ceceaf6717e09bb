use crate::{Distribution, DraftPlan, History, Method, SamplingParams};

/// Drafts to be verified behind the anchor (the last bonus token), which is row 0 of the pass;
/// draft `i` is row `i + 1`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    /// Drafted tokens; empty for a step without speculation.
    pub tokens: Vec<u32>,
    /// For each draft the distribution it was sampled from, which [`crate::Rule::Residual`]
    /// needs; `None` for greedy (one-hot) and coupled drafts.
    pub distributions: Option<Vec<Distribution>>,
    /// For a tree: the parent row of each draft (0 is the anchor), parents first. A chain without.
    pub parents: Option<Vec<u32>>,
}

impl Proposal {
    /// Drafts from the anchor to each row, the anchor's own row first.
    pub fn depths(&self) -> Vec<usize> {
        let Some(parents) = &self.parents else {
            return (0..=self.tokens.len()).collect();
        };
        let mut depths = vec![0];
        for &parent in parents {
            depths.push(depths[parent as usize] + 1);
        }
        depths
    }

    /// Drafts on the longest path.
    pub fn depth(&self) -> usize {
        self.depths().into_iter().max().unwrap_or(0)
    }

    /// Drafts from the first to that of a row.
    pub fn path(&self, row: usize) -> Vec<u32> {
        let Some(parents) = &self.parents else {
            return self.tokens[..row].to_vec();
        };
        let above = |&row: &usize| (row > 0).then(|| parents[row - 1] as usize);
        let rows = std::iter::successors(Some(row), above).take_while(|&row| row > 0);
        let mut path: Vec<u32> = rows.map(|row| self.tokens[row - 1]).collect();
        path.reverse();
        path
    }

    /// How many of the kept rows behind the anchor are on the path of first children, which is
    /// what a chain would have drafted.
    pub fn spine(&self, keep: &[u32]) -> usize {
        let follows = |pair: &&[u32]| match &self.parents {
            None => true,
            Some(parents) => {
                let first = parents.iter().position(|&parent| parent == pair[0]);
                first.is_some_and(|draft| draft + 1 == pair[1] as usize)
            }
        };
        keep.windows(2).take_while(follows).count()
    }
}

/// Outcome of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Rows to keep in path order, starting with row 0 (the anchor).
    pub keep: Vec<u32>,
    /// Accepted drafts, in order (`keep.len() - 1` of them).
    pub accepted: Vec<u32>,
    /// Token sampled from the target after the last kept row: the next anchor.
    pub bonus: u32,
}

/// A sequence that asks for drafts.
pub struct Drafting<'a> {
    /// Slot of its states.
    pub slot: usize,
    /// Committed tokens; the anchor has this position and the first draft the next one.
    pub past: usize,
    /// Cache blocks in order, with room for the proposer's rows behind `past`.
    pub blocks: &'a [u32],
    /// Last bonus token, not yet committed.
    pub anchor: u32,
    /// What is wanted.
    pub plan: &'a DraftPlan,
    /// How the sequence samples.
    pub sampling: &'a SamplingParams,
    /// Whether drafts are verified as they are, whatever their tokens: nobody has to see them before.
    pub free: bool,
    /// Its tokens so far, the anchor included; comes back as it was.
    pub history: &'a mut History,
}

/// A source of drafts. `T` is the target as it stands after its last pass: where a proposer finds
/// hidden states, embeddings and the head.
///
/// Invariant: between steps [`Proposer::context`] equals the committed length of the sequence,
/// also after steps that did not draft. It holds because every pass of the target is observed.
pub trait Proposer<T: ?Sized> {
    /// Failure of the device or of sampling.
    type Error;

    /// Forgets what it knows of the sequence in `slot`. The next one drafts by `method` only, so
    /// that proposers of other methods may leave it alone; with `None` any method may follow.
    fn reset(
        &mut self,
        target: &mut T,
        slot: usize,
        method: Option<Method>,
    ) -> Result<(), Self::Error>;

    /// What it knows of the sequence in slot `from` is true of the one in slot `to` as well.
    fn copy_slot(&mut self, target: &mut T, from: usize, to: usize) -> Result<(), Self::Error>;

    /// Block `to` of its caches, if it has any, becomes block `from`.
    fn copy_block(&mut self, target: &mut T, from: u32, to: u32) -> Result<(), Self::Error>;

    /// Takes in the committed rows of the target's last pass: for each of its segments the kept
    /// rows as indices within the segment, in path order, the token that follows the last, and whether
    /// its sequence ends with the pass, so that [`Proposer::finish`] follows.
    fn observe(
        &mut self,
        target: &mut T,
        keep: &[Vec<u32>],
        next: &[u32],
        ends: &[bool],
    ) -> Result<(), Self::Error>;

    /// Where the target has moved past rows of its last pass that nobody knows yet, at most `paths[i]` of segment
    /// `i`, the proposer may take those in ahead. It observes the pass all the same.
    fn follow(&mut self, target: &mut T, paths: &[usize]) -> Result<(), Self::Error> {
        let _ = (target, paths);
        Ok(())
    }

    /// The sequence in `slot` has ended: what is known of it may still be copied, and no step follows.
    fn finish(&mut self, target: &mut T, slot: usize) -> Result<(), Self::Error> {
        let _ = (target, slot);
        Ok(())
    }

    /// A proposal for each sequence, as its plan wants it.
    fn propose(
        &mut self,
        target: &mut T,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, Self::Error>;

    /// Committed tokens of the sequence in `slot` that the proposer has taken in; `None` when it
    /// keeps no context of it.
    fn context(&self, slot: usize) -> Option<usize>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_spine_of_a_tree() {
        // 0 - 1 - 2 - 5, 1 - 3, 0 - 4
        let tree = Proposal {
            tokens: vec![0; 5],
            parents: Some(vec![0, 1, 1, 0, 2]),
            distributions: None,
        };
        assert_eq!(tree.depth(), 3);
        assert_eq!(tree.spine(&[0, 1, 2, 5]), 3);
        assert_eq!(tree.spine(&[0, 1, 3]), 1);
        let tokens = Proposal {
            tokens: vec![10, 11, 12, 13, 14],
            ..tree.clone()
        };
        assert_eq!(tokens.path(5), [10, 11, 14]);
        assert_eq!(tokens.path(4), [13]);
        assert_eq!(tokens.path(0), []);
        assert_eq!(tree.spine(&[0, 4]), 0);
        let chain = Proposal {
            tokens: vec![0; 5],
            ..Proposal::default()
        };
        assert_eq!((chain.depth(), chain.spine(&[0, 1, 2])), (5, 2));
        assert_eq!(chain.path(2), [0, 0]);
        assert_eq!(Proposal::default().depth(), 0);
    }
}
