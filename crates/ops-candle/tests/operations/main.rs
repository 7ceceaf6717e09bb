//! Every operation against a naive reference in f64.

#![allow(clippy::unwrap_used)]

mod attention;
mod common;
mod conv;
mod draw;
mod errors;
mod gdn;
mod golden;
mod grow;
mod linear;
mod ranks;
mod rows;
mod walk;
