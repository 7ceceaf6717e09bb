//! From the name of a model to its checkpoint.

use std::borrow::Cow;
use std::path::{Component, Path};

use volley_model::{Checkpoint, TargetConfig};

use crate::drafting::Source;
use crate::error::{Error, Result};
use crate::{cards, demo};

/// Opens a target.
pub fn target(source: &Source) -> Result<Checkpoint> {
    match source {
        Source::Demo => demo::target(),
        Source::Path(path) => self::path(path),
        Source::Card(card) => card.target(),
        Source::Dummy(path) => Ok(Checkpoint::dummy_target(dummy_texts(path)?)?),
    }
}

/// Opens a drafter for this target.
pub fn drafter(source: &Source, target: &TargetConfig) -> Result<Checkpoint> {
    match source {
        Source::Demo => demo::drafter(),
        Source::Path(path) => self::path(path),
        Source::Card(card) => card.drafter(target),
        Source::Dummy(path) => Ok(Checkpoint::dummy_drafter(dummy_texts(path)?, target)?),
    }
}

/// Opens a folder or a file.
fn path(path: &Path) -> Result<Checkpoint> {
    let place = path.display();
    if path.extension().is_some_and(|kind| kind == "gguf") {
        let message =
            "GGUF is not read; give the folder that it was made from, with its .safetensors";
        return Err(Error::Usage(format!("{place}: {message}")));
    }
    if path.exists() {
        return Ok(Checkpoint::open(path)?);
    }
    let hint = match cards::find(&path.to_string_lossy()) {
        Some(card) => format!("with --load-format dummy, {} runs without files", card.name),
        None if is_hub_name(path) => {
            format!("nothing is downloaded: `hf download {place} --local-dir DIR`, and give DIR")
        }
        None => "give a folder in Hugging Face format, or \"demo\"".to_string(),
    };
    Err(Error::Usage(format!(
        "there is no model at {place}; {hint}"
    )))
}

/// Whether it looks like the name of a model on a hub, as in `Qwen/Qwen3.6-27B`.
fn is_hub_name(path: &Path) -> bool {
    let mut parts = path.components();
    let names = [parts.next(), parts.next()];
    let is_name = |part: &Option<Component>| matches!(part, Some(Component::Normal(_)));
    let is_local = path.parent().is_some_and(Path::exists);
    names.iter().all(is_name) && parts.next().is_none() && !is_local
}

fn dummy_texts(path: &Path) -> Result<Vec<(String, Cow<'static, [u8]>)>> {
    if path.is_dir() {
        return cards::dummy_folder(path);
    }
    let known: Vec<&str> = cards::CARDS.iter().map(|card| card.name).collect();
    Err(Error::Usage(format!(
        "there is no model {}; give a folder with a config.json, or one of {}",
        path.display(),
        known.join(", ")
    )))
}

/// The name of a folder serves as the name of its model.
pub fn default_name(source: &Source) -> String {
    match source {
        Source::Demo => demo::SERVED_NAME.into(),
        Source::Card(card) => card.name.into(),
        Source::Path(path) | Source::Dummy(path) => {
            let full = path.canonicalize().unwrap_or_else(|_| path.clone());
            let name = full.file_name().unwrap_or(full.as_os_str());
            name.to_string_lossy().into_owned()
        }
    }
}

/// Where a model is from.
pub fn place(source: &Source) -> String {
    match source {
        Source::Demo => "demo".into(),
        Source::Path(path) => path.display().to_string(),
        Source::Card(card) => format!("{} on random weights", card.name),
        Source::Dummy(path) => format!("{} on random weights", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_their_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Qwen3.6-27B");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(default_name(&Source::Path(path)), "Qwen3.6-27B");
        assert_eq!(default_name(&Source::Demo), "volley-demo");
    }

    #[test]
    fn a_missing_model_is_an_error_of_the_arguments() {
        for (name, words) in [
            (
                "/no/such/folder",
                "no model at /no/such/folder; give a folder",
            ),
            ("./no/such", "give a folder"),
            (
                "Qwen/Qwen3.6-27B",
                "`hf download Qwen/Qwen3.6-27B --local-dir DIR`",
            ),
            ("qwen3.6-27b", "--load-format dummy"),
            ("Qwen3.6-27B-Q4_K_M.gguf", "GGUF is not read"),
        ] {
            match path(Path::new(name)) {
                Err(Error::Usage(text)) => assert!(text.contains(words), "{text}"),
                other => panic!("{name}: {:?}", other.map(|_| ())),
            }
        }
    }
}
