//! Sums over the ranks of a group of GPUs: self-test, random sums against the CPU bit for bit, ranks
//! that replay graphs out of step, a rank that stays away; then times in a graph, with NCCL beside.
//!
//! `cargo run --release -p volley-kernels --features cuda --example ranks -- [--gpus N] [--sums N]
//! [--seconds S] [--no-nccl] [--host] [--json FILE]`
//!
//! Exit code 1 when a check failed.

#[cfg(feature = "cuda")]
#[path = "ranks/run.rs"]
mod run;

#[cfg(feature = "cuda")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(feature = "cuda"))]
fn main() {
    eprintln!("build with --features cuda to run ranks on GPUs");
}
