use std::sync::Arc;

use llguidance::ParserFactory;
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::Error;

/// Text to token ids, as the model's tokenizer does it.
pub type Encode = Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenText {
    /// Bytes of the output, perhaps part of a character only.
    Bytes(Vec<u8>),
    /// A tag such as `<tool_call>` or `<|im_end|>`: no rule takes it for text of the same spelling.
    Markup(String),
    /// Never comes.
    Unused,
}

/// Tokens of a model as rules see them. Built once per model.
pub struct Vocabulary {
    pub(crate) factory: ParserFactory,
    pub(crate) tokens: Arc<Tokens>,
}

/// The trie of all tokens, and the tokenizer.
pub(crate) struct Tokens {
    trie: TokTrie,
    encode: Encode,
}

impl Vocabulary {
    /// Vocabulary of these tokens, by id. `end_ids` are the model's end tokens, which end every
    /// rule; `encode` only suggests drafts, so it need not be exact.
    ///
    /// # Errors
    /// No tokens, or no end token among them.
    pub fn new(tokens: &[TokenText], end_ids: &[u32], encode: Encode) -> Result<Self, Error> {
        let end_ids: Vec<u32> = end_ids
            .iter()
            .copied()
            .filter(|id| (*id as usize) < tokens.len())
            .collect();
        let Some(&first) = end_ids.first() else {
            let count = tokens.len();
            let message = format!("none of {count} tokens ends the output");
            return Err(Error::Vocabulary(message));
        };
        let marked = |text: &str| [&[TokTrie::SPECIAL_TOKEN_MARKER], text.as_bytes()].concat();
        let words: Vec<Vec<u8>> = tokens
            .iter()
            .map(|token| match token {
                TokenText::Bytes(bytes) => bytes.clone(),
                TokenText::Markup(text) => marked(text),
                TokenText::Unused => Vec::new(),
            })
            .collect();
        let info = TokRxInfo::new(words.len() as u32, first);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&end_ids);
        let tokens = Arc::new(Tokens { trie, encode });
        let env: TokEnv = tokens.clone();
        let mut factory = ParserFactory::new_simple(&env)
            .map_err(|error| Error::Vocabulary(error.to_string()))?;
        factory.quiet();
        let limits = factory.limits_mut();
        // A step of a hostile grammar costs some milliseconds at most.
        limits.step_lexer_fuel = 100_000;
        limits.step_max_items = 25_000;
        limits.max_lexer_states = 100_000;
        limits.verbose_errors = false;
        Ok(Self { factory, tokens })
    }

    /// Whether a tag is a token of its own.
    pub(crate) fn has_markup(&self, tag: &str) -> bool {
        self.tokens.trie.get_special_token(tag).is_some()
    }
}

impl Tokens {
    /// Tokens that spell these bytes, special ones in the library's notation included.
    pub(crate) fn spell(&self, bytes: &[u8]) -> Vec<u32> {
        self.tokenize_bytes_marker(bytes).0
    }
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie
            .tokenize_with_greedy_fallback(bytes, |text| (self.encode)(text))
    }

    /// Rules leave it to the model how it spells forced text: what it would write by itself is
    /// what it goes on from best.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
