/// A tree of drafts that the device grows from rows of candidates ([`crate::Ops::grow`]).
///
/// Its nodes are the `budget` prefixes of least surprisal, parents before their children; a prefix has the
/// sum of its tokens', as if positions were independent (DDTree, spec/dflash.md 7.1). Ties go to the prefix
/// that could be added first: of one that is added, its next sibling before its first child.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Row of the candidates of the first depth; those of the others follow.
    pub first: usize,
    /// Most tokens of a prefix.
    pub depth: usize,
    /// Nodes, at most 63; there are as many prefixes.
    pub budget: usize,
    /// Whether the chain of the likeliest tokens comes before all others.
    pub seeded: bool,
    /// Of the softmax over the candidates, above 0.
    pub temperature: f32,
    /// Likeliest tokens of a row that are looked at, at most [`crate::CANDIDATES`].
    pub candidates: usize,
    /// Row of what comes out that the first node is in.
    pub to: usize,
}

impl Growth {
    /// Factor that makes surprisals of differences of logits: units of 2^-16 bits.
    pub fn scale(&self) -> f32 {
        let units = f64::from(1 << 16) * std::f64::consts::LOG2_E;
        (units / f64::from(self.temperature)) as f32
    }

    /// Whether there are as many prefixes as nodes.
    pub fn fills(&self) -> bool {
        let level =
            std::iter::successors(Some(1usize), |n| Some(n.saturating_mul(self.candidates)));
        let prefixes = level.skip(1).take(self.depth);
        prefixes.fold(0, usize::saturating_add) >= self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_counted() {
        let tree = |candidates, depth, budget| Growth {
            first: 0,
            depth,
            budget,
            seeded: true,
            temperature: 1.0,
            candidates,
            to: 0,
        };
        let full = [
            (64, 1, 63),
            (2, 5, 62),
            (1, 15, 15),
            (64, 15, 63),
            (3, 3, 39),
        ];
        let short = [(64, 1, 65), (2, 5, 63), (1, 15, 16), (0, 15, 1), (64, 0, 1)];
        assert!(full.iter().all(|&(k, depth, n)| tree(k, depth, n).fills()));
        assert!(!short.iter().any(|&(k, depth, n)| tree(k, depth, n).fills()));
    }
}
