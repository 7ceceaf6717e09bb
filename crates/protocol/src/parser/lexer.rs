//! From pieces of bytes to text with marked tags.
//!
//! The four tags become single bytes that UTF-8 never uses, so the machine tells a tag from the
//! same letters in quotes when token ids are known, and need not know how it was recognised.

use super::TagIds;

pub(super) const THINK_OPEN: u8 = 0xF8;
pub(super) const THINK_CLOSE: u8 = 0xF9;
pub(super) const TOOL_OPEN: u8 = 0xFA;
pub(super) const TOOL_CLOSE: u8 = 0xFB;

const TAGS: [(&str, u8); 4] = [
    ("<think>", THINK_OPEN),
    ("</think>", THINK_CLOSE),
    ("<tool_call>", TOOL_OPEN),
    ("</tool_call>", TOOL_CLOSE),
];

pub(super) fn is_tag(byte: u8) -> bool {
    (THINK_OPEN..=TOOL_CLOSE).contains(&byte)
}

/// Marked text as plain text, tags spelled out.
pub(super) fn spelled(marked: &[u8]) -> String {
    let mut text = String::with_capacity(marked.len());
    for part in marked.split_inclusive(|&byte| is_tag(byte)) {
        let (plain, tag) = match part.split_last() {
            Some((&last, plain)) if is_tag(last) => (plain, Some(last)),
            _ => (part, None),
        };
        text.push_str(
            std::str::from_utf8(plain).expect("the lexer passes whole characters: this is a bug"),
        );
        if let Some(tag) = tag {
            text.push_str(TAGS[usize::from(tag - THINK_OPEN)].0);
        }
    }
    text
}

/// Completes characters over pieces and marks the tags.
#[derive(Debug)]
pub(super) struct Lexer {
    ids: Option<TagIds>,
    /// Start of a character that is not complete, at most three bytes.
    partial: Vec<u8>,
    /// Text that may turn out to be the start of a tag.
    held: String,
}

impl Lexer {
    pub(super) fn new(ids: Option<TagIds>) -> Self {
        Self {
            ids,
            partial: Vec::new(),
            held: String::new(),
        }
    }

    /// Appends the marked form of a piece to `out`. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8], id: Option<u32>, out: &mut Vec<u8>) {
        match self.ids {
            Some(ids) => match id.and_then(|id| tag_of(ids, id)) {
                Some(tag) => {
                    if !self.partial.is_empty() {
                        self.partial.clear();
                        out.extend("\u{FFFD}".as_bytes());
                    }
                    out.push(tag);
                }
                None => out.extend(self.characters(bytes).as_bytes()),
            },
            None => {
                let text = self.characters(bytes);
                self.held.push_str(&text);
                self.mark_tags(out);
            }
        }
    }

    /// Releases what was held. Half a character is dropped: it is no text.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend(self.held.as_bytes());
        self.held.clear();
    }

    /// All characters that are complete after these bytes.
    fn characters(&mut self, bytes: &[u8]) -> String {
        self.partial.extend(bytes);
        let mut text = String::with_capacity(self.partial.len());
        let mut rest = self.partial.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    let Some(bad) = error.error_len() else {
                        break;
                    };
                    text.push('\u{FFFD}');
                    rest = &rest[bad..];
                }
            }
        }
        self.partial = rest.to_vec();
        text
    }

    fn mark_tags(&mut self, out: &mut Vec<u8>) {
        let mut rest = self.held.as_str();
        while let Some(at) = rest.find('<') {
            out.extend(&rest.as_bytes()[..at]);
            rest = &rest[at..];
            if let Some((spelling, tag)) = TAGS.iter().find(|(s, _)| rest.starts_with(s)) {
                out.push(*tag);
                rest = &rest[spelling.len()..];
            } else if TAGS.iter().any(|(spelling, _)| spelling.starts_with(rest)) {
                self.held = rest.to_owned();
                return;
            } else {
                out.push(b'<');
                rest = &rest[1..];
            }
        }
        out.extend(rest.as_bytes());
        self.held.clear();
    }
}

fn tag_of(ids: TagIds, id: u32) -> Option<u8> {
    let tags = [
        (ids.think_open, THINK_OPEN),
        (ids.think_close, THINK_CLOSE),
        (ids.tool_call_open, TOOL_OPEN),
        (ids.tool_call_close, TOOL_CLOSE),
    ];
    tags.iter()
        .find(|(known, _)| *known == id)
        .map(|(_, tag)| *tag)
}
