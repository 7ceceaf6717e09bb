//! Compiles the kernels: with the feature `cuda` by nvcc into one fat binary per file, with the
//! feature `emulate` as C++ for the CPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// PTX for what is to come, machine code for Ampere workstation cards and for Hopper.
const TARGETS: [&str; 3] = [
    "arch=compute_80,code=compute_80",
    "arch=compute_86,code=sm_86",
    "arch=compute_90a,code=sm_90a",
];

fn main() {
    println!("cargo::rerun-if-changed=cuda");
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        compile_cuda(&root);
    }
    #[cfg(feature = "emulate")]
    compile_emulation(&root);
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn compile_cuda(root: &Path) {
    println!("cargo::rerun-if-env-changed=NVCC");
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    let out = PathBuf::from(variable("OUT_DIR"));
    let Some(nvcc) = find_nvcc(root) else {
        panic!(
            "nvcc was not found (looked at NVCC, CUDA_HOME, target/cuda, PATH); \
             run kernels/toolkit.sh to put it into target/cuda"
        );
    };
    let headers = files(&root.join("cuda"), &["h", "cuh"]);
    let mut table = String::from("&[\n");
    for source in files(&root.join("cuda"), &["cu"]) {
        let name = source
            .file_stem()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let binary = out.join(format!("{name}.fatbin"));
        if !is_newer(&binary, &source, &headers) {
            compile_file(&nvcc, &source, &binary);
        }
        table += &format!(
            "    ({name:?}, include_bytes!({:?})),\n",
            binary.display().to_string()
        );
    }
    table += "]\n";
    fs::write(out.join("binaries.rs"), table).expect("OUT_DIR can be written");
}

fn compile_file(nvcc: &Path, source: &Path, binary: &Path) {
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-O3", "-fatbin", "-Werror", "all-warnings"]);
    for target in TARGETS {
        command.args(["-gencode", target]);
    }
    let done = command.arg("-o").arg(binary).arg(source).status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("nvcc failed on {}: {status}", source.display()),
        Err(error) => panic!("{} does not start: {error}", nvcc.display()),
    }
}

/// Whether a binary is there that is newer than all it is made of.
fn is_newer(binary: &Path, source: &Path, headers: &[PathBuf]) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(made) = changed(binary) else {
        return false;
    };
    let parts = headers.iter().map(PathBuf::as_path).chain([source]);
    parts
        .map(changed)
        .all(|part| part.is_some_and(|part| part < made))
}

fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("kernels/cuda exists");
    let wanted = |path: &PathBuf| {
        let extension = path.extension().unwrap_or_default();
        extensions.iter().any(|wanted| extension == *wanted)
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("kernels/cuda can be read").path())
        .filter(wanted)
        .collect();
    files.sort();
    files
}

fn find_nvcc(root: &Path) -> Option<PathBuf> {
    if let Some(nvcc) = env::var_os("NVCC") {
        return Some(nvcc.into());
    }
    let home = env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let own = Some(root.join("../target/cuda/bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = home.into_iter().chain(own).chain(env::split_paths(&path));
    let mut candidates = folders.map(|folder| folder.join("nvcc"));
    candidates.find(|candidate| candidate.is_file())
}

#[cfg(feature = "emulate")]
fn compile_emulation(root: &Path) {
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag("-U_FORTIFY_SOURCE")
        .flag("-Wno-unknown-pragmas")
        .file(root.join("cuda/emulate/emulate.cpp"))
        .compile("volley_emulated");
}
