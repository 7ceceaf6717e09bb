//! From arguments to a running model.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use volley_engine::{DeviceKind, Engine, EngineOptions, RepetitionRule, Sources, Speculation};
use volley_model::{Checkpoint, DrafterConfig, TargetConfig};
use volley_protocol::template::ChatTemplate;
use volley_server::{Controls, GenerationDefaults, ServedModel, Tokenizer};
use volley_speculate::Method;

use crate::args::{Device, ModelArgs};
use crate::demo;
use crate::drafting::{Drafting, Source};
use crate::error::{Error, Result};

/// Longest context that is planned without being asked for, in tokens.
const DEFAULT_MAX_MODEL_LEN: usize = 32_768;

/// A running model and what there is to say about it.
pub struct Loaded {
    /// The model.
    pub model: ServedModel,
    /// Lines for people.
    pub facts: Vec<Fact>,
}

/// A label and a text.
pub type Fact = (&'static str, String);

/// How requests share the engine.
#[derive(Clone, Copy, Debug)]
pub struct Scheduling {
    /// Requests that run at once.
    pub max_running: usize,
    /// Most prompt tokens in one step.
    pub prefill_chunk: usize,
    /// Prefixes that are kept.
    pub checkpoints: usize,
    /// Ceiling for the time between two updates of an answer.
    pub max_itl: Option<Duration>,
    /// Requests that may wait for their turn.
    pub max_waiting: usize,
}

impl Scheduling {
    /// One request at a time.
    pub const ALONE: Self = Self {
        max_running: 1,
        prefill_chunk: 256,
        checkpoints: 4,
        max_itl: None,
        max_waiting: 1,
    };
}

/// Loads the target, the drafter and the texts, and starts the engine.
pub fn load(args: &ModelArgs, names: &[String], scheduling: Scheduling) -> Result<Loaded> {
    load_with(args, Drafting::of(args)?, names, scheduling)
}

/// As [`load`], drafting as told and not as the flags say.
fn load_with(
    args: &ModelArgs,
    drafting: Drafting,
    names: &[String],
    scheduling: Scheduling,
) -> Result<Loaded> {
    let source = Source::of(&args.model);
    let target = open(&source, demo::target)?;
    let config = TargetConfig::read(&target)?;
    let tokenizer = Tokenizer::from_json(required(&target, "tokenizer.json")?.as_bytes())?;
    let template = ChatTemplate::new(template_source(&target)?)
        .map_err(|error| volley_server::Error::Template(error.to_string()))?;
    let (defaults, origin) = defaults(&args.generation_config, &target)?;
    let mut facts = vec![("model", target_fact(&source, &config))];
    let (drafter, speculation) = speculation(drafting, &config, &mut facts)?;
    let max_model_len = args
        .max_model_len
        .unwrap_or(DEFAULT_MAX_MODEL_LEN.min(config.max_position_embeddings));
    let options = EngineOptions {
        device: match args.device {
            Device::Cpu => DeviceKind::Cpu,
            Device::Cuda => DeviceKind::Cuda,
        },
        ranks: args.tensor_parallel_size,
        max_model_len: Some(max_model_len),
        token_count: Some(tokenizer.count()),
        speculation,
        max_running: scheduling.max_running,
        prefill_chunk: scheduling.prefill_chunk,
        checkpoints: scheduling.checkpoints,
        max_itl: scheduling.max_itl,
        max_waiting: scheduling.max_waiting,
        ..EngineOptions::default()
    };
    let engine = Engine::start(options, Sources { target, drafter })?;
    let info = engine.info();
    facts.push((
        "decoding",
        match info.method {
            Method::None => "one token per step".into(),
            method if info.tree_budget > 0 => format!(
                "{method}, chains of up to {} drafts, trees of up to {}",
                info.max_drafts, info.tree_budget
            ),
            method => format!("{method}, up to {} drafts per step", info.max_drafts),
        },
    ));
    let place = match (args.device, args.tensor_parallel_size) {
        (Device::Cpu, 1) => "on the CPU".to_owned(),
        (Device::Cpu, ranks) => format!("on the CPU in {ranks} ranks"),
        (Device::Cuda, 1) => "on the GPU".to_owned(),
        (Device::Cuda, ranks) => format!("on {ranks} GPUs"),
    };
    let requests = match scheduling.max_running {
        1 => "one request at a time".to_owned(),
        many => format!("{many} requests at a time"),
    };
    facts.push((
        "context",
        format!("{} tokens, {place}, {requests}", info.max_model_len),
    ));
    facts.push(("sampling", format!("{defaults} ({origin})")));
    let names = match names {
        [] => vec![default_name(&source)],
        names => names.to_vec(),
    };
    let tokenizer = Arc::new(tokenizer);
    let repetition = (!args.no_repetition_limit).then(RepetitionRule::default);
    let controls = Controls::new(Arc::clone(&tokenizer), &config.eos, repetition);
    let model = ServedModel {
        names,
        tokenizer,
        template,
        defaults,
        eos_ids: config.eos,
        seed: args.seed,
        controls,
        engine,
    };
    Ok(Loaded { model, facts })
}

/// Opens the drafter, if there is one, says what it is, and settles sizes.
fn speculation(
    drafting: Drafting,
    target: &TargetConfig,
    facts: &mut Vec<Fact>,
) -> Result<(Option<Checkpoint>, Speculation)> {
    let mut speculation = Speculation::of(drafting.method);
    let mut most = Speculation::MOST_DRAFTS;
    let mut limit = format!("a step has {most} at most");
    let checkpoint = match &drafting.drafter {
        Some(source) => {
            let checkpoint = open(source, demo::drafter)?;
            let config = DrafterConfig::read(&checkpoint, Some(target))?;
            facts.push(("drafter", drafter_fact(source, &config)));
            let guesses = config.guesses.iter();
            facts.extend(guesses.map(|guess| ("guessed", guess.clone())));
            if matches!(drafting.method, Method::Dflash | Method::Ddtree) {
                most = config.block_size.saturating_sub(1);
                limit = format!(
                    "the drafter's block has {} rows, which allows {most}",
                    config.block_size
                );
                speculation.max_drafts = most;
            }
            Some(checkpoint)
        }
        None => None,
    };
    if drafting.method == Method::Mtp {
        most = Speculation::MOST_MTP_DRAFTS;
        limit = format!("the MTP head is chained {most} times at most");
    }
    let notices = drafting.notices.into_iter();
    facts.extend(notices.map(|notice| ("notice", notice)));
    if let Some(count) = drafting.max_drafts {
        if count > most {
            return Err(Error::Usage(format!(
                "{count} speculative tokens per step are too many: {limit}"
            )));
        }
        speculation.max_drafts = count;
    }
    speculation.tree_budget = drafting.tree_budget.unwrap_or(speculation.tree_budget);
    speculation.seeded = drafting.seeded.unwrap_or(speculation.seeded);
    speculation.lookup_min = drafting.lookup_min;
    speculation.mtp = drafting.mtp;
    Ok((checkpoint, speculation))
}

/// A running model for one request at a time.
pub fn served(args: &ModelArgs) -> Result<ServedModel> {
    Ok(load(args, &[], Scheduling::ALONE)?.model)
}

/// The same with every way to draft that its weights allow, for requests to choose from.
pub fn served_by_all(args: &ModelArgs) -> Result<ServedModel> {
    let drafting = Drafting {
        method: Method::Auto,
        tree_budget: Some(Speculation::MOST_DRAFTS),
        mtp: true,
        ..Drafting::of(args)?
    };
    // Every prompt is read in full by every method.
    let scheduling = Scheduling {
        checkpoints: 0,
        ..Scheduling::ALONE
    };
    Ok(load_with(args, drafting, &[], scheduling)?.model)
}

/// The weights alone.
pub fn sources(args: &ModelArgs) -> Result<Sources> {
    let drafter = Drafting::of(args)?.drafter;
    Ok(Sources {
        target: open(&Source::of(&args.model), demo::target)?,
        drafter: drafter
            .map(|source| open(&source, demo::drafter))
            .transpose()?,
    })
}

/// Opens a checkpoint, or the embedded one.
pub fn open(source: &Source, demo: fn() -> Result<Checkpoint>) -> Result<Checkpoint> {
    match source {
        Source::Demo => demo(),
        Source::Path(path) if !path.exists() => Err(Error::Usage(format!(
            "there is no model at {}; give a folder in Hugging Face format, or \"demo\"",
            path.display()
        ))),
        Source::Path(path) => Ok(Checkpoint::open(path)?),
    }
}

fn required(checkpoint: &Checkpoint, file: &str) -> Result<String> {
    checkpoint.text(file)?.ok_or_else(|| {
        let message = format!("missing in {}", checkpoint.place());
        Error::Server(volley_server::Error::File {
            file: file.into(),
            message,
        })
    })
}

/// The chat template: a file of its own, or inside tokenizer_config.json.
fn template_source(checkpoint: &Checkpoint) -> Result<String> {
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
fn defaults(choice: &str, target: &Checkpoint) -> Result<(GenerationDefaults, String)> {
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

/// The name of a folder serves as the name of its model.
fn default_name(source: &Source) -> String {
    match source {
        Source::Demo => demo::SERVED_NAME.into(),
        Source::Path(path) => {
            let full = path.canonicalize().unwrap_or_else(|_| path.clone());
            let name = full.file_name().unwrap_or(full.as_os_str());
            name.to_string_lossy().into_owned()
        }
    }
}

fn place(source: &Source) -> String {
    match source {
        Source::Demo => "demo".into(),
        Source::Path(path) => path.display().to_string(),
    }
}

fn target_fact(source: &Source, config: &TargetConfig) -> String {
    format!(
        "{}: {} layers ({} GDN, {} attention), hidden size {}, vocabulary {}",
        place(source),
        config.layers.len(),
        config.gdn_layers(),
        config.attention_layers(),
        config.hidden_size,
        config.vocab_size,
    )
}

fn drafter_fact(source: &Source, config: &DrafterConfig) -> String {
    format!(
        "{}: {} layers, block of {}, taps target layers {:?}",
        place(source),
        config.shapes.layers,
        config.block_size,
        config.target_layer_ids,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn drafts_fit_the_block() {
        let config = TargetConfig::read(&demo::target().unwrap()).unwrap();
        let sizes = |method, max_drafts| {
            let drafting = Drafting {
                method,
                drafter: Some(Source::Demo),
                max_drafts,
                ..Drafting::default()
            };
            let chosen = speculation(drafting, &config, &mut Vec::new());
            chosen
                .map(|(_, speculation)| speculation.max_drafts)
                .map_err(|error| error.to_string())
        };
        assert_eq!(sizes(Method::Dflash, None), Ok(15));
        assert_eq!(sizes(Method::Dflash, Some(7)), Ok(7));
        let error = sizes(Method::Dflash, Some(16)).unwrap_err();
        assert!(error.contains("allows 15"), "{error}");
        let error = sizes(Method::Mtp, Some(8)).unwrap_err();
        assert!(error.contains("7 times"), "{error}");
    }

    #[test]
    fn folders_name_their_model() {
        let folder = texts(&[]);
        let path = folder.path().join("Qwen3.6-27B");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(default_name(&Source::Path(path)), "Qwen3.6-27B");
        assert_eq!(default_name(&Source::Demo), "volley-demo");
    }

    #[test]
    fn a_missing_model_is_an_error_of_the_arguments() {
        let error = open(&Source::of("/no/such/folder"), demo::target);
        assert!(matches!(error, Err(Error::Usage(text)) if text.contains("/no/such/folder")));
    }
}
