//! Texts beside the weights: the tokenizer's, the chat template, sampling defaults.

use std::path::Path;

use serde_json::Value;
use volley_model::Checkpoint;
use volley_protocol::messages::{Message, Role};
use volley_protocol::template::{ChatTemplate, RenderOptions};
use volley_server::{GenerationDefaults, Tokenizer};

use crate::error::{Error, Result};

/// The tokenizer.
pub fn tokenizer(checkpoint: &Checkpoint) -> Result<Tokenizer> {
    let json = required(checkpoint, "tokenizer.json")?;
    Ok(Tokenizer::from_json(json.as_bytes())?)
}

/// The chat template that a flag names, by its file or as its text, or else the checkpoint's own. One
/// that is named has to render a greeting.
pub fn template(named: Option<&str>, checkpoint: &Checkpoint) -> Result<ChatTemplate> {
    let Some(named) = named else {
        let template = ChatTemplate::new(own_template(checkpoint)?);
        return template.map_err(|error| volley_server::Error::Template(error.to_string()).into());
    };
    // As vLLM tells them apart.
    let is_text = named.contains(['{', '}', '\n']);
    let (place, text) = match is_text {
        true => (String::new(), named.to_owned()),
        false => {
            let text = std::fs::read_to_string(named);
            let wrong = |error| Error::Usage(format!("--chat-template {named}: {error}"));
            (format!(" {named}"), text.map_err(wrong)?)
        }
    };
    let template = ChatTemplate::new(text).and_then(|template| {
        let greeting = [Message::text(Role::User, "Hello!")];
        template.render(&greeting, &[], RenderOptions::default())?;
        Ok(template)
    });
    template.map_err(|error| Error::Usage(format!("--chat-template{place}: {error}")))
}

/// What keeps the texts beside a target's weights from being used.
pub fn problems(checkpoint: &Checkpoint) -> Vec<String> {
    let failures = [
        tokenizer(checkpoint).err(),
        template(None, checkpoint).err(),
        defaults("auto", checkpoint).err(),
    ];
    let failures = failures.into_iter().flatten();
    failures.map(|error| error.to_string()).collect()
}

/// A text that must be there.
fn required(checkpoint: &Checkpoint, file: &str) -> Result<String> {
    checkpoint.text(file)?.ok_or_else(|| {
        let message = format!("missing in {}", checkpoint.place());
        Error::Server(volley_server::Error::File {
            file: file.into(),
            message,
        })
    })
}

/// The checkpoint's chat template: a file of its own, or inside tokenizer_config.json.
fn own_template(checkpoint: &Checkpoint) -> Result<String> {
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
