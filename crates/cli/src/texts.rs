//! Texts beside the weights: the tokenizer's, the chat template, sampling defaults.

use std::path::Path;

use serde_json::Value;
use volley_model::Checkpoint;
use volley_server::GenerationDefaults;

use crate::error::{Error, Result};

/// A text that must be there.
pub fn required(checkpoint: &Checkpoint, file: &str) -> Result<String> {
    checkpoint.text(file)?.ok_or_else(|| {
        let message = format!("missing in {}", checkpoint.place());
        Error::Server(volley_server::Error::File {
            file: file.into(),
            message,
        })
    })
}

/// The chat template: a file of its own, or inside tokenizer_config.json.
pub fn template_source(checkpoint: &Checkpoint) -> Result<String> {
    if let Some(source) = checkpoint.text("chat_template.jinja")? {
        return Ok(source);
    }
    const FILE: &str = "tokenizer_config.json";
    let bad = |message: String| volley_server::Error::File {
        file: FILE.into(),
        message,
    };
    let config: Value = serde_json::from_str(&required(checkpoint, FILE)?)
        .map_err(|error| bad(error.to_string()))?;
    let template = match &config["chat_template"] {
        Value::Array(named) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str()),
        single => single.as_str(),
    };
    let missing = || bad("has no chat_template, and there is no chat_template.jinja".into());
    Ok(template.ok_or_else(missing)?.to_owned())
}

/// Sampling defaults by the flag, and where they are from.
pub fn defaults(choice: &str, target: &Checkpoint) -> Result<(GenerationDefaults, String)> {
    const FILE: &str = "generation_config.json";
    match choice {
        "vllm" => Ok((GenerationDefaults::neutral(), "neutral by flag".into())),
        "greedy" => Ok((GenerationDefaults::greedy(), "by flag".into())),
        "auto" => match target.text(FILE)? {
            Some(json) => Ok((GenerationDefaults::from_json(json.as_bytes())?, FILE.into())),
            None => Ok((GenerationDefaults::neutral(), format!("no {FILE}"))),
        },
        folder => {
            let path = Path::new(folder).join(FILE);
            let json = std::fs::read(&path).map_err(|error| {
                let path = path.display();
                Error::Usage(format!("--generation-config: {path}: {error}"))
            })?;
            let defaults = GenerationDefaults::from_json(&json)?;
            Ok((defaults, path.display().to_string()))
        }
    }
}
