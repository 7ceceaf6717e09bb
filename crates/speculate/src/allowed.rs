use std::borrow::Cow;

/// Which tokens may come next, apart from the limit on ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    /// All of them.
    #[default]
    All,
    /// This one.
    Token(u32),
    /// Those whose bit is set: bit `id % 32` of word `id / 32`.
    Mask(Vec<u32>),
    /// All but these.
    Except(Vec<u32>),
}

impl Allowed {
    /// Whether `token` may come next.
    pub fn contains(&self, token: u32) -> bool {
        match self {
            Self::All => true,
            Self::Token(only) => *only == token,
            Self::Mask(words) => {
                let word = words.get(token as usize / 32).copied();
                word.unwrap_or(0) >> (token % 32) & 1 == 1
            }
            Self::Except(tokens) => !tokens.contains(&token),
        }
    }

    /// Whether there is no choice.
    pub fn is_single(&self) -> bool {
        match self {
            Self::Token(_) => true,
            Self::Mask(words) => words.iter().map(|word| word.count_ones()).sum::<u32>() == 1,
            Self::All | Self::Except(_) => false,
        }
    }

    /// Logits in which whatever may not come next has none.
    pub(crate) fn apply<'a>(&self, mut logits: Cow<'a, [f32]>) -> Cow<'a, [f32]> {
        match self {
            Self::All => {}
            Self::Token(_) | Self::Mask(_) => {
                let mut kept = vec![f32::NEG_INFINITY; logits.len()];
                self.each(|token| {
                    if let Some(logit) = logits.get(token as usize) {
                        kept[token as usize] = *logit;
                    }
                });
                return Cow::Owned(kept);
            }
            Self::Except(tokens) => {
                for token in tokens {
                    if (*token as usize) < logits.len() {
                        logits.to_mut()[*token as usize] = f32::NEG_INFINITY;
                    }
                }
            }
        }
        logits
    }

    /// Visits the tokens that are listed one by one.
    fn each(&self, mut visit: impl FnMut(u32)) {
        match self {
            Self::Token(token) => visit(*token),
            Self::Mask(words) => {
                for (index, &word) in (0..).zip(words) {
                    let mut left = word;
                    while left != 0 {
                        visit(index * 32 + left.trailing_zeros());
                        left &= left - 1;
                    }
                }
            }
            Self::All | Self::Except(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_what_is_contained() {
        let logits: Vec<f32> = (0..70).map(|id| id as f32).collect();
        let cases = [
            (Allowed::All, (0..70).collect()),
            (Allowed::Token(33), vec![33]),
            (Allowed::Token(99), vec![]),
            (Allowed::Mask(vec![1 << 31 | 1, 2, 1 << 9]), vec![0, 31, 33]),
            (Allowed::Mask(vec![5]), vec![0, 2]),
            (Allowed::Except(vec![4, 200]), {
                (0..70).filter(|id| *id != 4).collect()
            }),
        ];
        for (allowed, expected) in cases {
            let kept = allowed.apply(Cow::Borrowed(&logits));
            let finite = (0..70).filter(|id| kept[*id as usize].is_finite());
            let finite: Vec<u32> = finite.collect();
            assert_eq!(finite, expected, "{allowed:?}");
            assert!(finite.iter().all(|id| kept[*id as usize] == *id as f32));
            let contained: Vec<u32> = (0..70).filter(|id| allowed.contains(*id)).collect();
            assert_eq!(contained, expected, "{allowed:?}");
            assert_eq!(
                allowed.is_single(),
                expected.len() == 1 || allowed == Allowed::Token(99)
            );
        }
    }
}
