//! Recordings of outputs in a folder, for `volley replay`.

use std::path::PathBuf;

use volley_protocol::replay::ReplayFile;

/// A folder for recordings.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
}

impl Records {
    /// Makes the folder if there is none.
    pub fn open(folder: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Writes one file per choice, named by the request's id. A full disk must not fail the
    /// answer: it is a line in the log.
    pub fn save(&self, request_id: &str, files: &[ReplayFile]) {
        for (choice, file) in files.iter().enumerate() {
            let path = self.folder.join(format!("{request_id}-{choice}.json"));
            let written = serde_json::to_vec_pretty(file)
                .map_err(std::io::Error::from)
                .and_then(|bytes| std::fs::write(&path, bytes));
            if let Err(error) = written {
                tracing::error!("the recording {} is lost: {error}", path.display());
            }
        }
    }
}
