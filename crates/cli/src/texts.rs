//! Texts beside the weights: the tokenizer's, the chat template, sampling defaults.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Map, Value};
use volley_model::Checkpoint;
use volley_protocol::messages::{Message, Role};
use volley_protocol::template::{ChatTemplate, RenderOptions};
use volley_server::{GenerationDefaults, Tokenizer};

use crate::args::ModelArgs;
use crate::drafting::Source;
use crate::error::{Error, Result};
use crate::open;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The tokenizer.
pub fn tokenizer(checkpoint: &Checkpoint) -> Result<Tokenizer> {
    let json = required(checkpoint, "tokenizer.json")?;
    Ok(Tokenizer::from_json(json.as_bytes())?)
}

/// The chat template that a flag names, by its file or as its text, or else the checkpoint's own. One
/// that is named has to render a greeting.
pub fn template(named: Option<&str>, checkpoint: &Checkpoint) -> Result<ChatTemplate> {
    let text = template_text(named, checkpoint)?;
    let Some(named) = named else {
        let template = ChatTemplate::new(text);
        return template.map_err(|error| volley_server::Error::Template(error.to_string()).into());
    };
    let place = match is_text(named) {
        true => String::new(),
        false => format!(" {named}"),
    };
    let template = ChatTemplate::new(text).and_then(|template| {
        let greeting = [Message::text(Role::User, "Hello!")];
        template.render(&greeting, &[], RenderOptions::default())?;
        Ok(template)
    });
    template.map_err(|error| Error::Usage(format!("--chat-template{place}: {error}")))
}

fn template_text(named: Option<&str>, checkpoint: &Checkpoint) -> Result<String> {
    match named {
        None => own_template(checkpoint),
        Some(text) if is_text(text) => Ok(text.to_owned()),
        Some(file) => {
            let wrong = |error| Error::Usage(format!("--chat-template {file}: {error}"));
            std::fs::read_to_string(file).map_err(wrong)
        }
    }
}

/// Whether a template is meant by its text: as vLLM tells them apart.
fn is_text(named: &str) -> bool {
    named.contains(['{', '}', '\n'])
}

/// `tokenizer_config.json` as JSON, with the chat template that is used.
pub fn tokenizer_info(args: &ModelArgs) -> Result<String> {
    let target = open::target(&Source::of(&args.model, args.load_format))?;
    let mut info = match target.text(TOKENIZER_CONFIG)? {
        Some(json) => serde_json::from_str(&json).map_err(|error| bad_config(&error))?,
        None => Map::new(),
    };
    let template = template_text(args.chat_template.as_deref(), &target)?;
    info.insert("chat_template".into(), template.into());
    Ok(Value::Object(info).to_string())
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

fn bad_config(message: &dyn Display) -> Error {
    Error::Server(volley_server::Error::File {
        file: TOKENIZER_CONFIG.into(),
        message: message.to_string(),
    })
}

/// The checkpoint's chat template: a file of its own, or inside tokenizer_config.json.
fn own_template(checkpoint: &Checkpoint) -> Result<String> {
    if let Some(source) = checkpoint.text("chat_template.jinja")? {
        return Ok(source);
    }
    let config: Value = serde_json::from_str(&required(checkpoint, TOKENIZER_CONFIG)?)
        .map_err(|error| bad_config(&error))?;
    let template = match &config["chat_template"] {
        Value::Array(named) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str()),
        single => single.as_str(),
    };
    let missing = || bad_config(&"has no chat_template, and there is no chat_template.jinja");
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
