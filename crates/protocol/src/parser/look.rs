//! Looking ahead in marked text: a pattern is there, is not, or more text has to come.

use super::lexer::{TOOL_CLOSE, TOOL_OPEN, is_tag};

/// White space between two tags that still counts as between tags, in bytes.
const MAX_BLANKS: usize = 64;
/// Longest name of a function or parameter, in bytes.
const MAX_NAME: usize = 512;

/// Answer of a look ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look<T> {
    Yes(T),
    No,
    More,
}

impl<T> Look<T> {
    pub(super) fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Yes(value) => Self::Yes(value),
            Self::No => other(),
            Self::More => match other() {
                Self::Yes(value) => Self::Yes(value),
                _ => Self::More,
            },
        }
    }

    pub(super) fn and_then<U>(self, next: impl FnOnce(T) -> Look<U>) -> Look<U> {
        match self {
            Self::Yes(value) => next(value),
            Self::No => Look::No,
            Self::More => Look::More,
        }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Look<U> {
        self.and_then(|value| Look::Yes(change(value)))
    }
}

/// The text so far; `complete` when no more will come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead<'a> {
    pub(super) text: &'a [u8],
    pub(super) complete: bool,
}

/// `<function=NAME>` of a call, or a wrapper with nothing in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Call { name: String, end: usize },
    Empty { end: usize },
}

impl<'a> Ahead<'a> {
    /// `literal` at `at`: its end.
    pub(super) fn literal(self, at: usize, literal: &[u8]) -> Look<usize> {
        let rest = &self.text[at.min(self.text.len())..];
        if rest.starts_with(literal) {
            Look::Yes(at + literal.len())
        } else if !self.complete && literal.starts_with(rest) {
            Look::More
        } else {
            Look::No
        }
    }

    /// The end of all output at `at`.
    fn end(self, at: usize) -> Look<usize> {
        match (at >= self.text.len(), self.complete) {
            (true, true) => Look::Yes(at),
            (true, false) => Look::More,
            (false, _) => Look::No,
        }
    }

    /// White space from `at` on, not too much of it: its end.
    fn blanks(self, at: usize) -> Look<usize> {
        let blanks = self.text[at..]
            .iter()
            .take_while(|b| b.is_ascii_whitespace());
        match blanks.count() {
            count if count <= MAX_BLANKS => Look::Yes(at + count),
            _ => Look::No,
        }
    }

    /// A name from `at` up to `>`: the name and the end of the tag.
    pub(super) fn name(self, at: usize) -> Look<(&'a str, usize)> {
        let rest = &self.text[at..];
        let stop = rest
            .iter()
            .position(|&byte| matches!(byte, b'>' | b'<' | b'\n') || is_tag(byte));
        match stop {
            Some(length) if rest[length] == b'>' && (1..=MAX_NAME).contains(&length) => {
                match std::str::from_utf8(&rest[..length]) {
                    Ok(name) => Look::Yes((name, at + length + 1)),
                    Err(_) => Look::No,
                }
            }
            None if !self.complete && rest.len() <= MAX_NAME => Look::More,
            _ => Look::No,
        }
    }

    /// A function's header at `at`. In a wrapper any name will do, if a line end or a tag follows.
    /// Without a wrapper, text may just talk about calls: the name must be declared, and a
    /// parameter or the function's end must follow.
    pub(super) fn header(
        self,
        at: usize,
        wrapped: bool,
        declared: impl Fn(&str) -> bool,
    ) -> Look<Opening> {
        let tag = self.literal(at, b"<function=");
        let (name, end) = match tag.and_then(|end| self.name(end)) {
            Look::Yes((name, _)) if name.contains(char::is_whitespace) => return Look::No,
            Look::Yes(found) => found,
            Look::No => return Look::No,
            Look::More => return Look::More,
        };
        let follows = if wrapped {
            match self.text.get(end) {
                Some(&byte) if matches!(byte, b'\n' | b'\r' | b'<') || is_tag(byte) => {
                    Look::Yes(end)
                }
                Some(_) => Look::No,
                None => self.end(end),
            }
        } else if declared(name) {
            self.blanks(end).and_then(|at| {
                self.literal(at, b"<parameter=")
                    .or(|| self.literal(at, b"</function>"))
            })
        } else {
            Look::No
        };
        follows.map(|_| Opening::Call {
            name: name.to_owned(),
            end,
        })
    }

    /// What a wrapper that opens at `at` holds; No if it is only mentioned.
    pub(super) fn opening(self, at: usize) -> Look<Opening> {
        self.blanks(at + 1).and_then(|inside| {
            self.literal(inside, &[TOOL_CLOSE])
                .map(|end| Opening::Empty { end })
                .or(|| self.header(inside, true, |_| true))
        })
    }

    /// `</function>` at `at` that really ends a function: the wrapper's end or nothing follows.
    pub(super) fn function_end(self, at: usize) -> Look<usize> {
        self.literal(at, b"</function>")
            .and_then(|end| self.blanks(end))
            .and_then(|at| self.literal(at, &[TOOL_CLOSE]).or(|| self.end(at)))
    }

    /// `</parameter>` at `at` that really ends a value: the end of its tag. Values may hold this
    /// very text, so the next piece of the call has to follow.
    pub(super) fn parameter_end(self, at: usize) -> Look<usize> {
        let tag = self.literal(at, b"</parameter>");
        tag.and_then(|end| {
            let follows = self.blanks(end).and_then(|at| {
                self.literal(at, b"<parameter=")
                    .or(|| self.literal(at, b"</function>"))
                    .or(|| self.literal(at, &[TOOL_CLOSE]))
                    .or(|| self.literal(at, &[TOOL_OPEN]))
                    .or(|| self.end(at))
            });
            follows.map(|_| end)
        })
    }

    /// The wrapper's end after a function, at `at` or behind white space: its end.
    pub(super) fn wrapper_end(self, at: usize) -> Look<usize> {
        let inside = self.blanks(at);
        inside.and_then(|at| self.literal(at, &[TOOL_CLOSE]))
    }

    /// The wrapper's end at `at`, with nothing after it.
    pub(super) fn last_wrapper_end(self, at: usize) -> Look<usize> {
        self.literal(at, &[TOOL_CLOSE])
            .and_then(|end| self.blanks(end))
            .and_then(|at| self.end(at))
    }
}
