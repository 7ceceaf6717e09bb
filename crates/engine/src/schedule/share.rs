//! Who reads how much of its prompt in a step.

/// What a request still has to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    /// Most tokens of the next chunk.
    pub chunk: usize,
    /// Tokens until its next one can be sampled.
    pub left: usize,
}

/// Divides `budget` among prompts in the order of their turns: half of it goes by turn, what is left
/// to those that have least to read. So none takes more than twice as long as if it went by turn
/// alone, nor a short one much more than twice as long as if there were no long ones, and prompts
/// of one length end one after the other instead of all at the end.
pub(super) fn share(budget: usize, prompts: &[Unread]) -> Vec<usize> {
    let mut shares = vec![0; prompts.len()];
    let mut give = |mut budget: usize, order: &[usize]| {
        for &index in order {
            let more = budget.min(prompts[index].chunk - shares[index]);
            shares[index] += more;
            budget -= more;
        }
        budget
    };
    let mut order: Vec<usize> = (0..prompts.len()).collect();
    let by_turn = budget.div_ceil(2);
    let rest = give(by_turn, &order);
    order.sort_by_key(|&index| prompts[index].left);
    give(rest + budget - by_turn, &order);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(budget: usize, left: &[usize]) -> Vec<usize> {
        let unread = |&left| Unread { chunk: left, left };
        share(budget, &left.iter().map(unread).collect::<Vec<_>>())
    }

    #[test]
    fn half_goes_by_turn_and_half_to_the_shortest() {
        assert_eq!(shares(100, &[1000, 10, 0, 500]), [50, 10, 0, 40]);
        assert_eq!(shares(100, &[1000, 70, 20]), [50, 30, 20]);
        assert_eq!(shares(100, &[20, 1000, 30]), [20, 50, 30]);
        assert_eq!(shares(100, &[80, 80, 80]), [80, 20, 0]);
        assert_eq!(shares(100, &[20, 30]), [20, 30]);
        assert_eq!(shares(1, &[0, 5, 1]), [0, 1, 0]);
        assert_eq!(shares(2, &[0, 9, 1, 1, 5]), [0, 1, 1, 0, 0]);
        assert!(shares(7, &[]).is_empty());
        for budget in 0..40 {
            let shares = shares(budget, &[9, 3, 14]);
            assert_eq!(shares.iter().sum::<usize>(), budget.min(26));
        }
    }

    /// A chunk may end before its prompt does.
    #[test]
    fn what_a_chunk_leaves_goes_to_the_next() {
        let unread = [(10, 100), (30, 50), (40, 40)].map(|(chunk, left)| Unread { chunk, left });
        assert_eq!(share(60, &unread), [10, 20, 30]);
        assert_eq!(share(1000, &unread), [10, 30, 40]);
    }
}
