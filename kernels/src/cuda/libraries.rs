//! Finding the CUDA libraries that the driver does not bring.

use std::path::{Path, PathBuf};

use cudarc::cublaslt::sys;
use libloading::Library;

use crate::error::{Error, Result};

/// Where toolkits put their libraries, when the loader does not know.
const FOLDERS: [&str; 4] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda-13.0/lib64",
    "/opt/cuda/lib64",
];
/// A library that is loaded once is found by its name ever after.
const NAMES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];

/// Loads cuBLASLt from a folder, for machines whose loader does not find it. Wheels keep it in
/// `site-packages/nvidia/cu13/lib`.
pub fn load_libraries(folder: &Path) -> Result<()> {
    let paths: Vec<PathBuf> = NAMES.iter().map(|name| folder.join(name)).collect();
    for path in paths {
        // SAFETY: initialisers of a CUDA library do nothing but set up the library.
        if let Ok(library) = unsafe { Library::new(&path) } {
            // It stays for the life of the process.
            std::mem::forget(library);
            return Ok(());
        }
    }
    Err(Error::MissingLibrary {
        library: "libcublasLt.so",
    })
}

/// An error unless cuBLASLt is loaded or can be.
pub fn find_libraries() -> Result<()> {
    // SAFETY: initialisers of a CUDA library do nothing but set up the library.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    let mut folders = FOLDERS.iter().map(Path::new);
    if folders.any(|folder| load_libraries(folder).is_ok()) {
        return Ok(());
    }
    Err(Error::MissingLibrary {
        library: "libcublasLt.so",
    })
}
