use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::matcher::Matcher;
use crate::{Error, Rule, Vocabulary};

/// Limits of compiling. What a rule may cost in steps of the library is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Longest time for one rule.
    pub time: Duration,
    /// Rules compiled at the same time, those given up on included.
    pub at_once: usize,
    /// Compiled rules kept for requests with the same one.
    pub kept: usize,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(3),
            at_once: 4,
            kept: 64,
        }
    }
}

/// A compiled rule; cheap to clone.
#[derive(Clone)]
pub struct Constraint(Arc<Matcher>);

impl Constraint {
    /// A matcher at the start of an output.
    pub fn matcher(&self) -> Matcher {
        self.0.independent()
    }
}

impl PartialEq for Constraint {
    /// Whether both come from the same compilation.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

/// Compiles rules, each on a thread of its own, and keeps the last ones.
pub struct Compiler {
    vocabulary: Arc<Vocabulary>,
    limits: CompileLimits,
    running: Arc<AtomicUsize>,
    kept: Mutex<Kept>,
}

/// Room for recursion that the nesting limits keep far from its end.
const STACK_BYTES: usize = 64 << 20;

impl Compiler {
    /// A compiler for a vocabulary.
    pub fn new(vocabulary: Vocabulary, limits: CompileLimits) -> Self {
        Self {
            vocabulary: Arc::new(vocabulary),
            limits,
            running: Arc::default(),
            kept: Mutex::default(),
        }
    }

    /// Compiles a rule, or finds it among the last ones. Blocks, at most for the time limit.
    ///
    /// # Errors
    /// A rule that makes no sense, allows nothing, or is too large.
    pub fn compile(&self, rule: &Rule) -> Result<Constraint, Error> {
        let key = format!("{rule:?}");
        if let Some(constraint) = self.kept().find(&key) {
            return Ok(constraint);
        }
        let limit = self.limits.at_once;
        let enter = |n| (n < limit).then_some(n + 1);
        let (order, running) = (Ordering::Relaxed, Arc::clone(&self.running));
        running
            .fetch_update(order, order, enter)
            .map_err(|_| Error::Busy { limit })?;
        let place = Place(running);
        let (vocabulary, rule) = (Arc::clone(&self.vocabulary), rule.clone());
        let (sender, receiver) = sync_channel(1);
        let work = move || {
            let compiled = compile(&vocabulary, &rule);
            drop(place);
            // Nobody waits any more when the time is over.
            let _ = sender.send(compiled);
        };
        std::thread::Builder::new()
            .name("constraint".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(|error| Error::State(format!("cannot start a thread: {error}")))?;
        let matcher = match receiver.recv_timeout(self.limits.time) {
            Ok(compiled) => compiled?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(Error::TooSlow {
                    limit_ms: self.limits.time.as_millis(),
                });
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Rule("the rule cannot be compiled".to_owned()));
            }
        };
        let constraint = Constraint(Arc::new(matcher));
        self.kept().keep(key, constraint.clone(), self.limits.kept);
        Ok(constraint)
    }

    /// Rules kept at the moment.
    pub fn kept_count(&self) -> usize {
        self.kept().by_rule.len()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the rules compiled at once.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn compile(vocabulary: &Vocabulary, rule: &Rule) -> Result<Matcher, Error> {
    match start(vocabulary, rule, false) {
        Err(_) if matches!(rule, Rule::Calls(calls) if !calls.strict()) => {
            start(vocabulary, rule, true)
        }
        outcome => outcome,
    }
}

/// A matcher whose first step is known to be possible.
fn start(vocabulary: &Vocabulary, rule: &Rule, relaxed: bool) -> Result<Matcher, Error> {
    let grammar = rule.grammar(vocabulary, relaxed)?;
    let parser = vocabulary.factory.create_parser(grammar);
    let parser = parser.map_err(|error| Error::Rule(readable(&error.to_string())))?;
    let inner = llguidance::Matcher::new(Ok(parser));
    let mut matcher = Matcher::new(inner, Arc::clone(&vocabulary.tokens));
    match matcher.mask() {
        Ok(mask) if mask.iter().all(|word| *word == 0) => {
            Err(Error::Rule("no output can follow the rule".to_owned()))
        }
        Ok(_) => Ok(matcher),
        Err(Error::State(reason)) if reason.contains("NoExtension") => {
            Err(Error::Rule("no output can follow the rule".to_owned()))
        }
        Err(Error::State(reason)) => Err(Error::Rule(reason)),
        Err(other) => Err(other),
    }
}

/// The library's message without its own view of the grammar.
fn readable(message: &str) -> String {
    const MOST: usize = 300;
    let text = message.split("\n<").next().unwrap_or_default();
    // Lines such as `   2 | answer: …` quote a grammar that the user never saw.
    let quotes = |line: &&str| {
        let rest = line
            .trim_start()
            .trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.trim_start().len() && rest.starts_with(" | ")
    };
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !quotes(line))
        .map(str::trim)
        .collect();
    let text = lines.join(" ");
    let text = match text.split_once("): ") {
        Some((place, reason)) if place.starts_with("at ") => reason,
        _ => &text,
    };
    let text = text
        .strip_prefix("failed to compile JSON schema: ")
        .unwrap_or(text);
    let text = match text.starts_with("panic: ") {
        true => "the rule is beyond what can be compiled",
        false => text,
    };
    text.chars()
        .take(MOST)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// The last compiled rules.
#[derive(Default)]
struct Kept {
    by_rule: HashMap<String, (u64, Constraint)>,
    uses: u64,
}

impl Kept {
    fn find(&mut self, key: &str) -> Option<Constraint> {
        self.uses += 1;
        let (used, constraint) = self.by_rule.get_mut(key)?;
        *used = self.uses;
        Some(constraint.clone())
    }

    fn keep(&mut self, key: String, constraint: Constraint, most: usize) {
        self.uses += 1;
        self.by_rule.insert(key, (self.uses, constraint));
        while self.by_rule.len() > most {
            let oldest = self.by_rule.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.by_rule.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_speak_of_what_the_user_wrote() {
        let library = "at 2(9): failed to compile JSON schema: Unimplemented keys: [\"not\"]\n   1 | start: answer\n   2 | answer: %json {}\n<state>\nx";
        assert_eq!(readable(library), "Unimplemented keys: [\"not\"]");
        assert_eq!(readable("a\n  b"), "a b");
        assert!(!readable("panic: attempt to add").contains("panic"));
        assert_eq!(readable(&"x".repeat(1000)).len(), 300);
    }
}
