use std::fmt;
use std::sync::Arc;

use crate::Error;
use crate::vocabulary::Tokens;

/// Where one output stands in its rule.
#[derive(Clone)]
pub struct Matcher {
    inner: llguidance::Matcher,
    tokens: Arc<Tokens>,
}

impl Matcher {
    pub(crate) fn new(inner: llguidance::Matcher, tokens: Arc<Tokens>) -> Self {
        Self { inner, tokens }
    }

    /// A matcher in the same state that shares nothing with this one.
    pub(crate) fn independent(&self) -> Self {
        Self::new(self.inner.deep_clone(), Arc::clone(&self.tokens))
    }

    /// Tokens that may come next, as bits: bit `id % 32` of word `id / 32`. At the end of the rule
    /// these are the end tokens only.
    ///
    /// # Errors
    /// A state that is too complex.
    pub fn mask(&mut self) -> Result<Vec<u32>, Error> {
        let mask = self.inner.compute_mask_or_eos().map_err(state)?;
        Ok(mask.as_slice().to_vec())
    }

    /// Takes in the next token. Behind the end of the rule, all tokens are ignored.
    ///
    /// # Errors
    /// A token that the rule does not allow, or a state that is too complex.
    pub fn take(&mut self, token: u32) -> Result<(), Error> {
        if self.ended() {
            return Ok(());
        }
        self.inner.consume_token(token).map_err(state)
    }

    /// Whether nothing but an end token may follow.
    pub fn ended(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error()
    }

    /// Whether the output may end here.
    pub fn complete(&mut self) -> bool {
        self.ended() || self.inner.is_accepting().unwrap_or(false)
    }

    /// How many of these tokens may come next, one behind the other.
    ///
    /// # Errors
    /// A state that is too complex.
    pub fn count_valid(&mut self, tokens: &[u32]) -> Result<usize, Error> {
        if self.ended() {
            return Ok(0);
        }
        self.inner.validate_tokens(tokens).map_err(state)
    }

    /// The usual spelling of the text that has to come next; empty where there is a choice. The
    /// rule may allow other spellings.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.ended() {
            return Vec::new();
        }
        let bytes = self.inner.compute_ff_bytes();
        self.tokens.spell(&bytes)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("ended", &self.ended())
            .finish_non_exhaustive()
    }
}

fn state(error: impl fmt::Display) -> Error {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    Error::State(line.to_owned())
}
