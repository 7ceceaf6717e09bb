//! API keys: who may ask, and how much at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::error::{Error, Result};

/// The keys of a server; without any, everyone may ask.
#[derive(Debug, Default)]
pub struct Keys {
    keys: Vec<Arc<Key>>,
}

/// A key under its name. Logs show the name only.
pub struct Key {
    name: String,
    secret: String,
    running: AtomicUsize,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

impl Keys {
    /// Reads the text of a key file: one key a line, as `name = key` or alone; empty lines and
    /// those that begin with `#` do not count. Names and keys must differ from each other.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let mut keys = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let (name, secret) = match line.split_once('=') {
                Some((name, secret)) => (name.trim().to_owned(), secret.trim()),
                None => (format!("key-{number}"), line),
            };
            keys.add(name, secret).map_err(|message| Error::File {
                file: file.to_owned(),
                message: format!("line {number}: {message}"),
            })?;
        }
        match keys.is_empty() {
            true => Err(Error::File {
                file: file.to_owned(),
                message: "it has no key".to_owned(),
            }),
            false => Ok(keys),
        }
    }

    /// Adds a key.
    pub fn add(&mut self, name: String, secret: &str) -> Result<(), &'static str> {
        if name.is_empty() || secret.is_empty() || secret.contains(char::is_whitespace) {
            return Err("a name and a key without spaces are wanted");
        }
        if self.keys.iter().any(|key| key.name == name) {
            return Err("the name is taken");
        }
        if self.keys.iter().any(|key| key.secret == secret) {
            return Err("the key has another name already");
        }
        self.keys.push(Arc::new(Key {
            name,
            secret: secret.to_owned(),
            running: AtomicUsize::new(0),
        }));
        Ok(())
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key that a request brings in `Authorization: Bearer` or `x-api-key`. Takes the same
    /// time for every wrong key of a length.
    pub fn find(&self, headers: &HeaderMap) -> Option<Arc<Key>> {
        let mut found = None;
        for given in [bearer(headers), api_key(headers)].into_iter().flatten() {
            for key in &self.keys {
                if bool::from(key.secret.as_bytes().ct_eq(given.as_bytes())) {
                    found = Some(Arc::clone(key));
                }
            }
        }
        found
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

fn api_key(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-api-key")?.to_str().ok()
}

impl Key {
    /// What logs call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A place for one more request, or `None` if `limit` run already.
    pub fn enter(self: &Arc<Self>, limit: usize) -> Option<Place> {
        let enter = |n| (n < limit).then_some(n + 1);
        self.running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .ok()
            .map(|_| Place(Arc::clone(self)))
    }
}

/// A request that counts for its key until it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Key>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# two people\nada = sk-1\n\n  bob=sk-2=x\nsk-3\n";

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::HeaderName::from_static(name),
            value.parse().unwrap(),
        )])
    }

    #[test]
    fn keys_are_found_by_either_header() {
        let keys = Keys::parse("keys", FILE).unwrap();
        let name = |headers| keys.find(&headers).map(|key| key.name().to_owned());
        assert_eq!(name(with("authorization", "Bearer sk-1")).unwrap(), "ada");
        assert_eq!(
            name(with("authorization", "bearer  sk-3")).unwrap(),
            "key-5"
        );
        assert_eq!(name(with("x-api-key", "sk-2=x")).unwrap(), "bob");
        let mut both = with("authorization", "Bearer none");
        both.extend(with("x-api-key", "sk-1"));
        assert_eq!(name(both).unwrap(), "ada");
        for headers in [
            HeaderMap::new(),
            with("authorization", "Bearer sk-9"),
            with("authorization", "Bearer sk-"),
            with("authorization", "Bearer "),
            with("authorization", "Basic sk-1"),
            with("authorization", "sk-1"),
            with("x-api-key", "ada"),
            with("x-api-key", ""),
        ] {
            assert_eq!(name(headers.clone()), None, "{headers:?}");
        }
    }

    #[test]
    fn wrong_files_are_refused_by_line() {
        for (text, words) in [
            ("", "no key"),
            ("# nothing\n", "no key"),
            ("a = 1\nb =\n", "line 2"),
            ("a = 1\na = 2\n", "line 2"),
            ("a = 1\nb = 1\n", "line 2"),
            ("a = x y\n", "line 1"),
        ] {
            let error = Keys::parse("keys.txt", text).unwrap_err().to_string();
            assert!(
                error.contains(words) && error.contains("keys.txt"),
                "{error}"
            );
            assert!(!error.contains("x y"), "a key must not be shown: {error}");
        }
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let keys = Keys::parse("keys", FILE).unwrap();
        let key = &keys.keys[0];
        let first = key.enter(2).unwrap();
        let _second = key.enter(2).unwrap();
        assert!(key.enter(2).is_none());
        drop(first);
        assert!(key.enter(2).is_some());
    }
}
