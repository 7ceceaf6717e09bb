use crate::Commit;

/// Why a generation ends inside a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A stop id: the last token of the cut.
    Token(u32),
    /// The last token that was allowed.
    Length,
    /// The text repeats itself; decided by the caller.
    Repetition,
}

/// The part of a commit that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Tokens to emit: accepted drafts, then the bonus token, up to the end. The last one is
    /// the next anchor.
    pub tokens: Vec<u32>,
    /// Rows to keep, as many as tokens: every row but the anchor's holds the token before.
    pub keep: Vec<u32>,
    /// Set if the generation ends with these tokens.
    pub end: Option<End>,
}

/// Cuts a commit behind its first stop id, or where the allowance is used up.
///
/// Both counts are of tokens from here on: stop ids among the first `min_tokens_left` are
/// ignored, at most `max_tokens_left` are emitted. At the same token a stop id goes before length.
pub fn cut(
    commit: &Commit,
    stop_ids: &[u32],
    min_tokens_left: usize,
    max_tokens_left: usize,
) -> Cut {
    let mut tokens = commit.accepted.clone();
    tokens.push(commit.bonus);
    let mut end = None;
    let stop = (0..tokens.len())
        .skip(min_tokens_left)
        .find(|&index| stop_ids.contains(&tokens[index]));
    if let Some(index) = stop.filter(|&index| index < max_tokens_left) {
        end = Some(End::Token(tokens[index]));
        tokens.truncate(index + 1);
    } else if tokens.len() >= max_tokens_left {
        end = Some(End::Length);
        tokens.truncate(max_tokens_left);
    }
    let keep = commit.keep.iter().copied().take(tokens.len()).collect();
    Cut { tokens, keep, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> Commit {
        Commit {
            keep: vec![0, 2, 5, 6],
            accepted: vec![10, 11, 12],
            bonus: 13,
        }
    }

    fn cut_of(stop_ids: &[u32], min: usize, max: usize) -> (Vec<u32>, Vec<u32>, Option<End>) {
        let cut = cut(&commit(), stop_ids, min, max);
        (cut.tokens, cut.keep, cut.end)
    }

    #[test]
    fn an_uncut_commit_is_whole() {
        let all = (vec![10, 11, 12, 13], vec![0, 2, 5, 6], None);
        assert_eq!(cut_of(&[], 0, 5), all);
        assert_eq!(cut_of(&[99], 0, usize::MAX), all);
    }

    #[test]
    fn a_stop_id_ends_at_every_index() {
        let keep = [0, 2, 5, 6];
        for (index, token) in (10..14).enumerate() {
            let expected: Vec<u32> = (10..=token).collect();
            assert_eq!(
                cut_of(&[token, 13], 0, 9),
                (expected, keep[..=index].to_vec(), Some(End::Token(token)))
            );
        }
    }

    #[test]
    fn the_allowance_ends_at_every_offset() {
        for max in 0..=4 {
            let tokens: Vec<u32> = (10..10 + max as u32).collect();
            let cut = cut_of(&[], 0, max);
            assert_eq!(
                cut,
                (tokens, commit().keep[..max].to_vec(), Some(End::Length))
            );
        }
    }

    #[test]
    fn a_stop_id_goes_before_length_at_the_same_token_only() {
        assert_eq!(cut_of(&[11], 0, 2).2, Some(End::Token(11)));
        assert_eq!(
            cut_of(&[12], 0, 2),
            (vec![10, 11], vec![0, 2], Some(End::Length))
        );
    }

    #[test]
    fn early_stop_ids_are_ignored() {
        assert_eq!(cut_of(&[11], 1, 9).2, Some(End::Token(11)));
        assert_eq!(cut_of(&[11], 2, 9).2, None);
        assert_eq!(cut_of(&[10, 12], 1, 9).0, [10, 11, 12]);
        assert_eq!(cut_of(&[13], 4, 9).2, None);
        assert_eq!(cut_of(&[11], 2, 3).2, Some(End::Length));
    }
}
