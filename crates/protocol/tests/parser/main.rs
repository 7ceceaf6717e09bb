//! The output parser: a table of cases, and properties over all ways to cut the output.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cases;
mod harness;
mod properties;
mod streaming;
mod values;
