//! The binary `volley`.

fn main() {}
