//! The output parser: a table of cases, and properties over all ways to cut the output.

mod cases;
mod harness;
mod properties;
mod streaming;
