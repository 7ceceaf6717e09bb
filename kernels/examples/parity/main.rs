//! Checks every kernel on a GPU against the CPU implementation:
//!
//! `cargo run --release -p volley-kernels --features cuda --example parity -- [--json FILE] [--only
//! NAME] [--small] [--gpu N] [--libraries FOLDER] [--goldens FOLDER]`
//!
//! Each family of kernels runs in a process of its own, so a kernel that breaks the context or hangs
//! costs its own results only. Exit code 1 when a check failed.

#[cfg(feature = "cuda")]
mod checks;
#[cfg(feature = "cuda")]
mod families;
#[cfg(feature = "cuda")]
mod pair;
#[cfg(feature = "cuda")]
mod report;

#[cfg(feature = "cuda")]
fn main() -> std::process::ExitCode {
    families::main()
}

#[cfg(not(feature = "cuda"))]
fn main() {
    eprintln!("build with --features cuda to check the kernels on a GPU");
}
