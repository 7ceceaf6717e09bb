//! Recorded outputs as the answers of a server: what a client saw can be seen again, or tried on
//! another client. The model reads every prompt and takes each recorded token for its own.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use volley_engine::Request;
use volley_protocol::parser::InitialState;
use volley_protocol::replay::{EngineEnd, ReplayFile, TemplateState};
use volley_protocol::{ApiError, GenerationRequest};

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

const CLOSE_TAG: &str = "</think>";

/// Recordings that are still to be played.
pub struct Replays {
    left: Mutex<Vec<ReplayFile>>,
    count: usize,
}

impl Replays {
    /// Reads files, and all `.json` files of folders in the order of their names.
    pub fn open(paths: &[PathBuf]) -> Result<Self> {
        let mut left = Vec::new();
        for path in paths {
            for file in files(path)? {
                let broken = |message: String| Error::File {
                    file: file.display().to_string(),
                    message,
                };
                let bytes = std::fs::read(&file).map_err(|error| broken(error.to_string()))?;
                left.push(serde_json::from_slice(&bytes).map_err(|e| broken(e.to_string()))?);
            }
        }
        Ok(Self {
            count: left.len(),
            left: Mutex::new(left),
        })
    }

    /// Recordings that there were at first.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes the next recording of the request's kind: one with tools, or one without. Agents ask
    /// for titles and the like beside their work, at any time.
    fn take(&self, tools: bool) -> Result<ReplayFile, ApiError> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let next = left.iter().position(|file| has_tools(file) == tools);
        let next = next.ok_or_else(|| {
            let (count, kind) = (self.count, if tools { "with" } else { "without" });
            let message =
                format!("none of the {count} recordings is left for a request {kind} tools");
            ApiError::invalid_value("messages", message)
        })?;
        Ok(left.remove(next))
    }

    /// Has the answer to a request be the next recording. Formats and budgets held it when it was
    /// made; the token limit and stop strings of the request act anew.
    pub(crate) fn script(
        &self,
        request: &mut Request,
        generation: &GenerationRequest,
        initial: InitialState,
        tokenizer: &Tokenizer,
        eos_ids: &[u32],
    ) -> Result<(), ApiError> {
        let file = self.take(!generation.active_tools().is_empty())?;
        let failure = |error: Error| ApiError::engine_failure(&error.to_string());
        let mut script = tokenizer.encode(&fitted(&file, initial)).map_err(failure)?;
        match (file.finish_reason, eos_ids) {
            (EngineEnd::Stop, [end, ..]) => {
                script.push(*end);
                request.stop_ids.extend(eos_ids);
            }
            _ => request.max_tokens = request.max_tokens.min(script.len()),
        }
        request.min_tokens = 0;
        request.control.constraint = None;
        request.control.thinking = None;
        request.control.repetition = None;
        request.control.script = script.into();
        Ok(())
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = || std::fs::read_dir(path)?.collect::<std::io::Result<Vec<_>>>();
    let entries = entries().map_err(|error| Error::File {
        file: path.display().to_string(),
        message: error.to_string(),
    })?;
    let mut files: Vec<PathBuf> = entries.iter().map(|entry| entry.path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort_unstable();
    match files.is_empty() {
        true => Err(Error::File {
            file: path.display().to_string(),
            message: "holds no recordings (.json)".to_owned(),
        }),
        false => Ok(files),
    }
}

fn has_tools(file: &ReplayFile) -> bool {
    let tools = file.request["tools"].as_array();
    tools.is_some_and(|tools| !tools.is_empty()) && file.request["tool_choice"] != "none"
}

/// The recorded text behind a prompt that ends at `initial`: thoughts need an open think block.
fn fitted(file: &ReplayFile, initial: InitialState) -> String {
    let text = file.pieces.concat();
    match (file.template_state, initial) {
        (TemplateState::ThinkOpen, InitialState::ThinkClosed | InitialState::InText) => {
            let answer = text.split_once(CLOSE_TAG).map_or("", |(_, answer)| answer);
            answer.trim_start().to_owned()
        }
        (TemplateState::ThinkClosed, InitialState::ThinkOpen) => {
            format!("{CLOSE_TAG}\n\n{text}")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(state: &str, text: &str) -> ReplayFile {
        serde_json::from_value(json!({
            "request": {}, "template_state": state, "pieces": [text], "finish_reason": "stop",
        }))
        .unwrap()
    }

    #[test]
    fn thoughts_go_where_they_have_a_place() {
        let open = file("think_open", "hm</think>\n\nYes");
        let closed = file("think_closed", "Yes");
        for (file, initial, expected) in [
            (&open, InitialState::ThinkOpen, "hm</think>\n\nYes"),
            (&open, InitialState::ThinkClosed, "Yes"),
            (&open, InitialState::InText, "Yes"),
            (&closed, InitialState::ThinkClosed, "Yes"),
            (&closed, InitialState::ThinkOpen, "</think>\n\nYes"),
        ] {
            assert_eq!(fitted(file, initial), expected);
        }
        assert_eq!(
            fitted(&file("think_open", "hm"), InitialState::ThinkClosed),
            ""
        );
    }

    #[test]
    fn recordings_come_in_the_order_of_their_names_by_kind() {
        let folder = tempfile::tempdir().unwrap();
        let recording = |text: &str, tools: bool| {
            let tools = if tools { json!([{}]) } else { json!([]) };
            json!({"request": {"tools": tools}, "template_state": "think_closed",
                "pieces": [text], "finish_reason": "stop"})
        };
        for (name, text, tools) in [
            ("b.json", "second", true),
            ("a.json", "first", true),
            ("c.json", "title", false),
        ] {
            let text = recording(text, tools).to_string();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("notes.txt"), "no recording").unwrap();
        let replays = Replays::open(&[folder.path().to_owned()]).unwrap();
        let next = |tools| replays.take(tools).map(|file| file.pieces.concat());
        assert_eq!(next(true).unwrap(), "first");
        assert_eq!(next(false).unwrap(), "title");
        assert_eq!(next(true).unwrap(), "second");
        let error = next(true).unwrap_err();
        assert_eq!(error.status, 400);
        assert!(
            error.message.contains("none of the 3 recordings"),
            "{}",
            error.message
        );
    }

    #[test]
    fn folders_without_recordings_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| Replays::open(&[path.to_owned()]).map(|_| ()).unwrap_err();
        assert!(open(folder.path()).to_string().contains("no recordings"));
        let file = folder.path().join("x.json");
        assert!(open(&file).to_string().contains("x.json"));
        std::fs::write(&file, "{}").unwrap();
        assert!(open(&file).to_string().contains("missing field"));
    }
}
