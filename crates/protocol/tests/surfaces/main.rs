//! All surfaces, from the request's JSON to the bytes of the answer, through replay.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agents;
mod agreement;
mod blocks;
mod bugs;
mod heard;
mod openapi;
mod refusals;
mod replays;
mod snapshots;
mod wire;
