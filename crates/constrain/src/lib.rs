//! Output held to a rule: JSON, a schema, a regular expression, a grammar, a choice, or calls of
//! tools in the model's own markup. Knows token bytes, no tensors.
//!
//! A [`Compiler`] turns a [`Rule`] into a [`Constraint`], away from the engine and under limits;
//! each sequence gets a [`Matcher`] of its own, which says what may come next.

mod calls;
mod compile;
mod ebnf;
mod error;
mod matcher;
mod nesting;
mod numbers;
mod rule;
mod vocabulary;

pub use calls::{Calls, Function};
pub use compile::{CompileLimits, Compiler, Constraint};
pub use error::Error;
pub use matcher::Matcher;
pub use rule::Rule;
pub use vocabulary::{Encode, TokenText, Vocabulary};
