//! The models on Candle's CPU operations: against golden fixtures, over checkpoints that are
//! broken in many ways, and over ranks.
#![allow(clippy::unwrap_used)]

mod configs;
mod demo;
mod drafter;
mod golden;
mod inspection;
mod loader;
mod mtp;
mod ranks;
mod target;
mod variants;
mod verify;
