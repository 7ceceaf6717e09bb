//! The demo pair, embedded in the binary by the feature `demo`.

use volley_model::Checkpoint;

use crate::error::{Error, Result};

/// Word that stands for the demo pair where a path is expected.
pub const NAME: &str = "demo";

/// Name under which it is served.
pub const SERVED_NAME: &str = "volley-demo";

/// The demo's target.
pub fn target() -> Result<Checkpoint> {
    open(TARGET)
}

/// The demo's drafter.
pub fn drafter() -> Result<Checkpoint> {
    open(DRAFTER)
}

/// A text of the demo's target.
pub fn text(name: &str) -> Option<&'static [u8]> {
    let mut files = TARGET.iter();
    files.find(|file| file.0 == name).map(|file| file.1)
}

type Files = &'static [(&'static str, &'static [u8])];

fn open(files: Files) -> Result<Checkpoint> {
    if files.is_empty() {
        return Err(Error::Usage(
            "this binary was built without the demo model; give a folder".into(),
        ));
    }
    let files = files.iter();
    let files = files.map(|(name, bytes)| (name.to_string(), (*bytes).into()));
    Ok(Checkpoint::from_memory(files.collect())?)
}

#[cfg(feature = "demo")]
macro_rules! embed {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$((
            $name,
            include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/../../models/demo/", $folder, "/", $name
            )),
        )),*]
    };
}

#[cfg(feature = "demo")]
const TARGET: Files = embed!("target":
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
);

#[cfg(feature = "demo")]
const DRAFTER: Files = embed!("drafter": "config.json", "model.safetensors");

#[cfg(not(feature = "demo"))]
const TARGET: Files = &[];

#[cfg(not(feature = "demo"))]
const DRAFTER: Files = &[];
