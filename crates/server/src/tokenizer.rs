//! Text to token ids, and token ids to the bytes they stand for.

use std::collections::HashMap;

use volley_constrain::TokenText;
use volley_protocol::parser::TagIds;

use crate::error::{Error, Result};

/// Byte-level BPE tokenizer of a checkpoint (`tokenizer.json`).
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    bytes: Vec<Box<[u8]>>,
    longest: usize,
    tags: Option<TagIds>,
    control: Vec<String>,
    control_ids: HashMap<u32, String>,
}

impl Tokenizer {
    /// Reads the contents of a `tokenizer.json`. Fails on anything but a byte-level BPE.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        let inner = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        let bytes = byte_table(&inner)?;
        let longest = bytes.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
        let tags = tag_ids(&inner);
        let added = inner.get_added_tokens_decoder().into_iter();
        let control_ids: HashMap<u32, String> = added
            .filter(|(_, token)| token.special)
            .map(|(id, token)| (id, token.content))
            .collect();
        let mut control: Vec<String> = control_ids.values().cloned().collect();
        control.sort_unstable();
        Ok(Self {
            inner,
            bytes,
            longest,
            tags,
            control,
            control_ids,
        })
    }

    /// Token ids of `text`; markup such as `<|im_start|>` becomes its control token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Bytes that a token adds to the output: none for control tokens and unknown ids. A character
    /// may be spread over several tokens.
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], |bytes| bytes)
    }

    /// The text of these tokens, control tokens by their names. Bytes that are no text are U+FFFD.
    pub fn text(&self, ids: &[u32]) -> String {
        let bytes = ids.iter().flat_map(|id| self.spelling(*id));
        let bytes: Vec<u8> = bytes.copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Bytes that show a token: those of the output, or the name of a control token.
    pub fn spelling(&self, id: u32) -> &[u8] {
        match self.control_ids.get(&id) {
            Some(name) => name.as_bytes(),
            None => self.bytes(id),
        }
    }

    /// What each token stands for, by id: added tokens are markup.
    pub(crate) fn texts(&self) -> Vec<TokenText> {
        let added = self.inner.get_added_tokens_decoder();
        let text = |(id, bytes): (u32, &[u8])| match added.get(&id) {
            Some(token) => TokenText::Markup(token.content.clone()),
            None if bytes.is_empty() => TokenText::Unused,
            None => TokenText::Bytes(bytes.to_vec()),
        };
        let bytes = self.bytes.iter().map(AsRef::as_ref);
        (0..).zip(bytes).map(text).collect()
    }

    /// A text in pieces to be encoded one by one, so that control tokens spelled in it stay text.
    pub fn apart(&self, text: &str) -> Vec<String> {
        let mut cuts: Vec<usize> = self
            .control
            .iter()
            .flat_map(|name| text.match_indices(name.as_str()))
            .map(|(at, name)| at + name.chars().next().map_or(0, char::len_utf8))
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let ends = cuts.iter().copied().chain([text.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces = starts
            .zip(ends)
            .map(|(start, end)| text[start..end].to_owned());
        pieces.collect()
    }

    /// Number of token ids, added tokens included; logits rows at or above it have no token.
    pub fn count(&self) -> usize {
        self.bytes.len()
    }

    /// Id of a token by its exact text.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Ids of the tags, if all of them are tokens of their own.
    pub fn tags(&self) -> Option<TagIds> {
        self.tags
    }

    /// Texts of the control tokens, such as `<|im_end|>`: those that are never part of an answer.
    pub fn control_tokens(&self) -> &[String] {
        &self.control
    }

    /// No text of `bytes` bytes has fewer tokens than this; cheap, to refuse a text that is far too
    /// long before it is encoded. Normalisation may shorten a text, to a third at most.
    pub fn least_tokens(&self, bytes: usize) -> usize {
        bytes / (3 * self.longest.max(1))
    }
}

fn tag_ids(inner: &tokenizers::Tokenizer) -> Option<TagIds> {
    Some(TagIds {
        think_open: inner.token_to_id("<think>")?,
        think_close: inner.token_to_id("</think>")?,
        tool_call_open: inner.token_to_id("<tool_call>")?,
        tool_call_close: inner.token_to_id("</tool_call>")?,
    })
}

fn byte_table(inner: &tokenizers::Tokenizer) -> Result<Vec<Box<[u8]>>> {
    let alphabet = byte_alphabet();
    let vocabulary = inner.get_vocab(true);
    let added = inner.get_added_tokens_decoder();
    let count = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
    let mut table = vec![Box::<[u8]>::default(); count];
    for (text, id) in vocabulary {
        table[id as usize] = match added.get(&id) {
            Some(token) if token.special => Box::default(),
            Some(token) => token.content.as_bytes().into(),
            None => text
                .chars()
                .map(|character| alphabet.get(&character).copied())
                .collect::<Option<Box<[u8]>>>()
                .ok_or(Error::NotByteLevel { id, text })?,
        };
    }
    Ok(table)
}

/// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the other 68 are moved to
/// U+0100 and up in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let moved = (0..=255u8).filter(|byte| !printable(*byte));
    let moved = ('\u{100}'..).zip(moved);
    let own = (0..=255u8)
        .filter(|byte| printable(*byte))
        .map(|byte| (char::from(byte), byte));
    own.chain(moved).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A byte-level tokenizer with no merges: ids 0..=255 by the order of the alphabet, then the
    /// given added tokens.
    pub(crate) fn byte_tokenizer(added: &[(&str, bool)]) -> Vec<u8> {
        let mut letters: Vec<(char, u8)> = byte_alphabet().into_iter().collect();
        letters.sort_by_key(|(_, byte)| *byte);
        let vocabulary: serde_json::Map<String, serde_json::Value> = letters
            .iter()
            .map(|(character, byte)| (character.to_string(), (*byte).into()))
            .collect();
        let added: Vec<serde_json::Value> = added
            .iter()
            .enumerate()
            .map(|(index, (content, special))| {
                serde_json::json!({"id": 256 + index, "content": content, "special": special,
                    "normalized": false, "lstrip": false, "rstrip": false, "single_word": false})
            })
            .collect();
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": false},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": false},
            "model": {"type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false,
                "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": []},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn every_byte_has_one_letter() {
        let alphabet = byte_alphabet();
        let bytes: std::collections::BTreeSet<u8> = alphabet.values().copied().collect();
        assert_eq!((alphabet.len(), bytes.len()), (256, 256));
        assert_eq!(alphabet[&'Ġ'], b' ');
        assert_eq!(alphabet[&'Ċ'], b'\n');
        assert_eq!(alphabet[&'é'], 0xe9);
    }

    #[test]
    fn bytes_of_tokens_join_to_the_text() {
        let tokenizer = Tokenizer::from_json(&byte_tokenizer(&[])).unwrap();
        let text = "naïve \u{1f980}\n\0 text";
        let ids = tokenizer.encode(text).unwrap();
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|id| tokenizer.bytes(*id))
            .copied()
            .collect();
        assert_eq!(bytes, text.as_bytes());
        assert_eq!(ids.len(), text.len());
    }

    #[test]
    fn control_tokens_are_no_text_and_tags_are() {
        let json = byte_tokenizer(&[
            ("<|im_end|>", true),
            ("<tool_call>", false),
            ("</tool_call>", false),
            ("<think>", false),
            ("</think>", false),
        ]);
        let tokenizer = Tokenizer::from_json(&json).unwrap();
        assert_eq!(tokenizer.encode("a<|im_end|>").unwrap(), [97, 256]);
        assert_eq!(tokenizer.bytes(256), b"");
        assert_eq!(tokenizer.bytes(257), b"<tool_call>");
        assert_eq!(tokenizer.bytes(9999), b"");
        assert_eq!(
            tokenizer.text(&[97, 256, 257, 0xc3]),
            "a<|im_end|><tool_call>\u{fffd}"
        );
        let pieces = tokenizer.apart("a<|im_end|><|im_end|>b<tool_call>");
        assert_eq!(pieces, ["a<", "|im_end|><", "|im_end|>b<tool_call>"]);
        assert_eq!(tokenizer.apart(""), [""]);
        assert_eq!(tokenizer.count(), 261);
        let tags = TagIds {
            think_open: 259,
            think_close: 260,
            tool_call_open: 257,
            tool_call_close: 258,
        };
        assert_eq!(tokenizer.tags(), Some(tags));
        let without = Tokenizer::from_json(&byte_tokenizer(&[("<think>", false)])).unwrap();
        assert_eq!(without.tags(), None);
        assert_eq!(tokenizer.control_tokens(), ["<|im_end|>"]);
    }

    #[test]
    fn a_bound_on_the_tokens_of_a_text() {
        let tokenizer = Tokenizer::from_json(&byte_tokenizer(&[("</think>", false)])).unwrap();
        assert_eq!(tokenizer.least_tokens(23), 0);
        assert_eq!(tokenizer.least_tokens(24_000), 1000);
    }

    #[test]
    fn other_tokenizers_are_refused_by_name() {
        assert!(matches!(
            Tokenizer::from_json(b"{}"),
            Err(Error::Tokenizer(_))
        ));
        let json = String::from_utf8(byte_tokenizer(&[])).unwrap();
        let json = json.replacen("\"a\"", "\"\u{4e2d}\"", 1);
        assert!(matches!(
            Tokenizer::from_json(json.as_bytes()),
            Err(Error::NotByteLevel { id: 97, .. })
        ));
    }
}
