//! Recordings of outputs in a folder, for `volley replay`.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};
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

    /// Writes one file per choice, named by the request's id, and by a number more where a client
    /// gives several requests the same id. A full disk must not fail the answer: it is a line in the
    /// log.
    pub fn save(&self, request_id: &str, files: &[ReplayFile]) {
        for (choice, file) in files.iter().enumerate() {
            let name = format!("{request_id}-{choice}");
            let written = serde_json::to_vec_pretty(file)
                .map_err(Error::from)
                .and_then(|bytes| self.new_file(&name)?.write_all(&bytes));
            if let Err(error) = written {
                let folder = self.folder.display();
                tracing::error!("the recording {name} in {folder} is lost: {error}");
            }
        }
    }

    fn new_file(&self, name: &str) -> Result<File, Error> {
        const MOST_OF_A_NAME: usize = 10_000;
        let first = format!("{name}.json");
        let more = (2..MOST_OF_A_NAME).map(|number| format!("{name}-{number}.json"));
        for name in std::iter::once(first).chain(more) {
            match File::create_new(self.folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                opened => return opened,
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_of_the_same_id_keep_their_recordings() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path().to_owned()).unwrap();
        for text in ["one", "two", "three"] {
            let file = json!({"request": {}, "template_state": "think_closed", "pieces": [text],
                "finish_reason": "stop"});
            records.save("same", &[serde_json::from_value(file).unwrap()]);
        }
        for (name, text) in [
            ("same-0", "one"),
            ("same-0-2", "two"),
            ("same-0-3", "three"),
        ] {
            let path = folder.path().join(format!("{name}.json"));
            assert!(
                std::fs::read_to_string(path).unwrap().contains(text),
                "{name}"
            );
        }
    }
}
