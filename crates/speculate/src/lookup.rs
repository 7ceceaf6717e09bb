use crate::suffix::SuffixAutomaton;

/// Drafts by prompt lookup: when the end of the text has occurred before, what followed it then.
///
/// Takes in prompt and output token by token, in amortised constant time each.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    text: Vec<u32>,
    ends: Vec<u32>,
    automaton: SuffixAutomaton,
}

/// A repeat of the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Tokens that repeat.
    pub len: usize,
    /// Index of the token that followed them before.
    pub next: usize,
}

impl Lookup {
    /// For a text that ends with one of these tokens: nothing is drafted behind them.
    pub fn ending_with(ends: &[u32]) -> Self {
        Self {
            ends: ends.to_vec(),
            ..Self::default()
        }
    }

    /// Appends tokens to the text.
    pub fn extend(&mut self, tokens: &[u32]) {
        self.append(tokens);
        self.settle();
    }

    /// Appends tokens to the text, of which until [`Lookup::settle`] is only known whether they go on
    /// with the repeat before them.
    pub fn append(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
    }

    /// Takes in what was appended.
    pub fn settle(&mut self) {
        for &token in &self.text[self.automaton.len()..] {
            self.automaton.push(token);
        }
    }

    /// Tokens taken in.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The longest end of the text that occurs before, too; of its occurrences a late one (the
    /// latest, unless the text repeats itself many times over). Behind tokens that are not settled the
    /// one that they continue, if they do.
    pub fn repeat(&self) -> Option<Repeat> {
        let Repeat { len, next } = self.automaton.repeat()?;
        let new = &self.text[self.automaton.len()..];
        let again = &self.text[next..next + new.len()];
        (new == again).then_some(Repeat {
            len: len + new.len(),
            next: next + new.len(),
        })
    }

    /// The `count` tokens that followed a repeat, fewer if one of them ends the text. Where they reach
    /// what is there now they go on with themselves: a period is continued.
    pub fn continuation(&self, repeat: Repeat, count: usize) -> Vec<u32> {
        let mut drafts: Vec<u32> = Vec::with_capacity(count);
        for index in repeat.next..repeat.next + count {
            let token = match self.text.get(index) {
                Some(&token) => token,
                None => drafts[index - self.text.len()],
            };
            drafts.push(token);
            if self.ends.contains(&token) {
                break;
            }
        }
        drafts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Longest repeated suffix and the indices behind all its earlier occurrences, by trying all.
    fn naive(text: &[u32]) -> Option<(usize, Vec<usize>)> {
        (1..text.len()).rev().find_map(|len| {
            let suffix = &text[text.len() - len..];
            let ends: Vec<usize> = (len..text.len())
                .filter(|&end| text[end - len..end] == *suffix)
                .collect();
            (!ends.is_empty()).then_some((len, ends))
        })
    }

    fn lookup(text: &[u32]) -> Lookup {
        let mut lookup = Lookup::default();
        lookup.extend(text);
        lookup
    }

    proptest! {
        #[test]
        fn every_prefix_finds_what_a_naive_search_finds(
            text in (1u32..6).prop_flat_map(|kinds| prop::collection::vec(0..kinds, 0..120))
        ) {
            let mut lookup = Lookup::default();
            for end in 0..=text.len() {
                let found = lookup.repeat();
                match naive(&text[..end]) {
                    None => prop_assert_eq!(found, None),
                    Some((len, nexts)) => {
                        let found = found.unwrap();
                        prop_assert_eq!(found.len, len);
                        prop_assert!(nexts.contains(&found.next), "{:?} not in {:?}", found, nexts);
                    }
                }
                if let Some(&token) = text.get(end) {
                    lookup.extend(&[token]);
                }
            }
        }

        #[test]
        fn the_latest_occurrence_is_taken(
            text in prop::collection::vec(0u32..9, 0..200)
        ) {
            if let Some((_, nexts)) = naive(&text) {
                prop_assert_eq!(Some(lookup(&text).repeat().unwrap().next), nexts.last().copied());
            }
        }
    }

    proptest! {
        /// What is known before the text is settled is right, and afterwards it is what it would be.
        #[test]
        fn repeats_are_followed_before_they_are_settled(
            parts in prop::collection::vec(prop::collection::vec(0u32..3, 0..9), 1..12)
        ) {
            let (mut lazy, mut eager) = (Lookup::default(), Lookup::default());
            for part in parts {
                lazy.append(&part);
                eager.extend(&part);
                if let Some(Repeat { len, next }) = lazy.repeat() {
                    prop_assert!(next < lazy.len() && len <= eager.repeat().unwrap().len);
                    prop_assert_eq!(&lazy.text[next - len..next], &lazy.text[lazy.len() - len..]);
                }
                lazy.settle();
                prop_assert_eq!(lazy.repeat(), eager.repeat());
            }
        }
    }

    #[test]
    fn a_copy_is_followed_before_it_is_settled() {
        let mut lookup = lookup(&[1, 2, 3, 4, 5, 9, 1, 2]);
        lookup.append(&[3, 4]);
        assert_eq!(lookup.repeat(), Some(Repeat { len: 4, next: 4 }));
        lookup.append(&[7]);
        assert_eq!(lookup.repeat(), None);
        lookup.settle();
        lookup.append(&[1]);
        assert_eq!(lookup.repeat(), None);
        lookup.settle();
        assert_eq!(lookup.repeat(), Some(Repeat { len: 1, next: 7 }));
    }

    #[test]
    fn copies_go_on() {
        let lookup = lookup(&[7, 1, 2, 3, 4, 5, 9, 1, 2, 3]);
        let repeat = lookup.repeat().unwrap();
        assert_eq!(repeat, Repeat { len: 3, next: 4 });
        assert_eq!(lookup.continuation(repeat, 2), [4, 5]);
        // Behind the end of the text comes what was copied.
        assert_eq!(lookup.continuation(repeat, 9), [4, 5, 9, 1, 2, 3, 4, 5, 9]);
    }

    #[test]
    fn nothing_is_drafted_behind_an_end() {
        let mut lookup = Lookup::ending_with(&[9, 5]);
        lookup.extend(&[1, 2, 3, 9, 4, 1, 2]);
        let repeat = lookup.repeat().unwrap();
        assert_eq!(lookup.continuation(repeat, 7), [3, 9]);
        assert_eq!(lookup.continuation(repeat, 1), [3]);
    }

    #[test]
    fn periods_go_on() {
        let lookup = lookup(&[8, 5, 6, 5, 6, 5]);
        let repeat = lookup.repeat().unwrap();
        assert_eq!(repeat.len, 3);
        assert_eq!(lookup.continuation(repeat, 5), [6, 5, 6, 5, 6]);
    }

    #[test]
    fn nothing_repeats_in_a_text_of_different_tokens() {
        assert_eq!(lookup(&[]).repeat(), None);
        assert_eq!(lookup(&[1, 2, 3]).repeat(), None);
    }

    /// The hardest texts stay cheap: one token over and over, and two in turn.
    #[test]
    fn long_periods_are_taken_in_quickly() {
        for period in [1, 2, 1000] {
            let text: Vec<u32> = (0..200_000).map(|i| i % period).collect();
            let repeat = lookup(&text).repeat().unwrap();
            assert_eq!(repeat.len, text.len() - period as usize);
        }
    }
}
