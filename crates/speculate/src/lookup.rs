use crate::DraftPlan;
use crate::suffix::SuffixAutomaton;

/// Drafts by prompt lookup: when the end of the text has occurred before, what followed it then.
///
/// Takes in prompt and output token by token, in amortised constant time each.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    text: Vec<u32>,
    ends: Vec<u32>,
    automaton: SuffixAutomaton,
    broken: Option<Broken>,
    /// Where the answer begins.
    answer: usize,
}

/// A repeat of the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Tokens that repeat, those before something that was put in between included.
    pub len: usize,
    /// Index of the token that followed them before.
    pub next: usize,
}

/// A long repeat that broke off. Where only something was put in between, it goes on behind that: an
/// answer to the question of before, behind whatever a template puts in front of the last answer.
#[derive(Clone, Copy, Debug)]
struct Broken {
    /// How long it was, and the token that it did not go on with.
    repeat: Repeat,
    /// Tokens since then that do go on with it.
    again: usize,
    /// Tokens that do not.
    between: usize,
}

impl Broken {
    /// Shortest repeat that is waited for.
    const LONG: usize = 17;
    /// Most tokens in between.
    const BETWEEN: usize = 8;

    fn resumed(&self) -> Repeat {
        Repeat {
            len: self.repeat.len + self.again,
            next: self.repeat.next + self.again,
        }
    }
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

    /// What is appended from here on answers what is there.
    pub fn begin_answer(&mut self) {
        self.answer = self.text.len();
    }

    /// Tokens of the answer.
    pub fn said(&self) -> usize {
        self.text.len() - self.answer
    }

    /// Whether a repeat begins with the question: then the whole answer was given before.
    pub fn is_again(&self, repeat: Repeat) -> bool {
        self.answer > 0 && repeat.len >= self.said() + Broken::LONG
    }

    /// Takes in what was appended.
    pub fn settle(&mut self) {
        for index in self.automaton.len()..self.text.len() {
            let token = self.text[index];
            self.wait_for(token);
            self.automaton.push(token);
        }
    }

    /// Sees whether the next token breaks a long repeat off, or goes on with one that is waited for.
    fn wait_for(&mut self, token: u32) {
        let follows = |at: usize| self.text[at] == token;
        let breaks = |repeat: &Repeat| repeat.len >= Broken::LONG && !follows(repeat.next);
        if let Some(repeat) = self.automaton.repeat().filter(breaks) {
            self.broken = Some(Broken {
                repeat,
                again: 0,
                between: 1,
            });
            return;
        }
        let Some(mut broken) = self.broken else {
            return;
        };
        if follows(broken.resumed().next) {
            broken.again += 1;
        } else {
            let again = usize::from(follows(broken.repeat.next));
            broken.between += broken.again + 1 - again;
            broken.again = again;
        }
        self.broken = (broken.between <= Broken::BETWEEN).then_some(broken);
    }

    /// Whether the text has left what a plan copied from, so that it is worth while to settle it before
    /// the next one.
    pub fn has_left(&self, plan: &DraftPlan) -> bool {
        matches!(plan, DraftPlan::Given(_)) && self.repeat().is_none()
    }

    /// Whether the text ends with such a token.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
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
    /// latest, unless the text repeats itself many times over). A long one goes on behind a few tokens
    /// that were put in between. Behind tokens that are not settled the one that they continue, if they
    /// do.
    pub fn repeat(&self) -> Option<Repeat> {
        let Repeat { len, next } = self.resumed().or_else(|| self.automaton.repeat())?;
        let new = &self.text[self.automaton.len()..];
        let again = &self.text[next..next + new.len()];
        (new == again).then_some(Repeat {
            len: len + new.len(),
            next: next + new.len(),
        })
    }

    /// A long repeat that goes on behind what was put in between, unless the last tokens repeat more
    /// of another place.
    fn resumed(&self) -> Option<Repeat> {
        let broken = self.broken.filter(|broken| broken.again > 0)?;
        let exact = self.automaton.repeat()?;
        let resumed = broken.resumed();
        let best = exact.len <= broken.again || exact.next == resumed.next;
        (best && exact.len < resumed.len).then_some(resumed)
    }

    /// The `count` tokens that followed a repeat, fewer if one of them ends the text. Where they reach
    /// what is there now they go on with themselves: a period is continued.
    pub fn continuation(&self, repeat: Repeat, count: usize) -> Vec<u32> {
        let mut drafts = Vec::with_capacity(count);
        self.continue_into(repeat, count, &mut drafts);
        drafts
    }

    /// The same into a buffer that is empty.
    pub fn continue_into(&self, repeat: Repeat, count: usize, drafts: &mut Vec<u32>) {
        for index in repeat.next..repeat.next + count {
            let token = match self.text.get(index) {
                Some(&token) => token,
                None => drafts[index - self.text.len()],
            };
            drafts.push(token);
            if self.is_end(token) {
                break;
            }
        }
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

    /// Without what was put in between.
    fn exact(lookup: &Lookup) -> Option<Repeat> {
        lookup.automaton.repeat()
    }

    proptest! {
        #[test]
        fn every_prefix_finds_what_a_naive_search_finds(
            text in (1u32..6).prop_flat_map(|kinds| prop::collection::vec(0..kinds, 0..120))
        ) {
            let mut lookup = Lookup::default();
            for end in 0..=text.len() {
                let found = exact(&lookup);
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
                    prop_assert!(next < lazy.len());
                    if lazy.resumed().is_some() {
                        continue;
                    }
                    prop_assert!(len <= exact(&eager).unwrap().len);
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

    /// A question of before, and its answer behind something that was not there then.
    #[test]
    fn a_long_repeat_goes_on_behind_what_was_put_in_between() {
        let question: Vec<u32> = (100..120).collect();
        let answer: Vec<u32> = (200..230).collect();
        let mut text = lookup(&[&question[..], &answer, &[7, 8], &question, &[1, 2, 3]].concat());
        assert_eq!(text.repeat(), None);
        text.extend(&answer[..1]);
        assert_eq!(text.repeat(), Some(Repeat { len: 21, next: 21 }));
        text.append(&answer[1..4]);
        assert_eq!(text.repeat(), Some(Repeat { len: 24, next: 24 }));
        text.settle();
        assert_eq!(text.repeat(), Some(Repeat { len: 24, next: 24 }));
        let goes_on = text.continuation(text.repeat().unwrap(), 26);
        assert_eq!(goes_on, answer[4..]);
        // Something else of as many tokens and more is nearer.
        text.extend(&[7, 8, 100, 101]);
        assert_eq!(text.repeat().map(|repeat| repeat.len), Some(4));
    }

    #[test]
    fn what_broke_off_is_waited_for_a_while() {
        let question: Vec<u32> = (100..120).collect();
        for (between, found) in [(1, 21), (Broken::BETWEEN as u32, 21), (9, 1)] {
            let between: Vec<u32> = (0..between).collect();
            let text = lookup(&[&question[..], &[50], &question, &between, &[50]].concat());
            assert_eq!(text.repeat().unwrap().len, found, "{between:?}");
        }
        // A short one is not waited for.
        let text = lookup(&[&question[..9], &[50], &question[..9], &[1, 50]].concat());
        assert_eq!(text.repeat().unwrap().len, 1);
    }

    /// The question has to be the same, not only what the answer begins with.
    #[test]
    fn an_answer_that_was_given_before_is_told_from_a_phrase_that_occurs_again() {
        let (question, answer): (Vec<u32>, Vec<u32>) = ((100..120).collect(), (200..260).collect());
        for (asked, again) in [(&question[..], true), (&question[10..], false)] {
            for between in [&[][..], &[1, 2, 3]] {
                let mut text = Lookup::default();
                text.extend(&[&question[..], &answer, &[7, 8], asked, between].concat());
                text.begin_answer();
                assert_eq!(text.said(), 0);
                for said in 1..50 {
                    text.extend(&answer[said - 1..said]);
                    assert_eq!(text.said(), said);
                    let repeat = text.repeat().unwrap();
                    assert_eq!(text.is_again(repeat), again, "{said} {repeat:?}");
                }
            }
        }
        // A text that answers nothing repeats phrases.
        let mut text = lookup(&answer);
        text.extend(&answer);
        assert!(!text.is_again(text.repeat().unwrap()));
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
