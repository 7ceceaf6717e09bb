//! Keeps text that users, tools and files bring along from forging control tokens: a turn's end
//! spelled in a message must not become the token that ends a turn.

use std::borrow::Cow;

/// Splits a control token in two; a noncharacter, which no text should hold.
const MARK: char = '\u{FDD1}';

/// Control tokens that only the template may write, such as `<|im_end|>`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard<'a> {
    pub(super) tokens: &'a [String],
}

impl Guard<'_> {
    /// `text` with a mark inside each control token.
    pub(super) fn marked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut marked = Cow::Borrowed(text);
        if self.tokens.is_empty() {
            return marked;
        }
        if text.contains(MARK) {
            marked = Cow::Owned(text.replace(MARK, "\u{FFFD}"));
        }
        for token in self.tokens {
            if let Some(first) = token.chars().next()
                && marked.contains(token.as_str())
            {
                let rest = &token[first.len_utf8()..];
                marked =
                    Cow::Owned(marked.replace(token.as_str(), &format!("{first}{MARK}{rest}")));
            }
        }
        marked
    }

    /// The rendered prompt cut at the marks.
    pub(super) fn pieces(&self, prompt: String) -> Vec<String> {
        if self.tokens.is_empty() {
            return vec![prompt];
        }
        prompt.split(MARK).map(str::to_owned).collect()
    }
}
