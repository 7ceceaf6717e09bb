//! From arguments to a running model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volley_engine::{DeviceKind, Engine, EngineOptions, RepetitionRule, Sources, Speculation};
use volley_model::{Checkpoint, DrafterConfig, TargetConfig};
use volley_protocol::request::TemplateArguments;
use volley_server::{Controls, ServedModel};
use volley_speculate::Method;

use crate::args::values::Seed;
use crate::args::{Device, ModelArgs};
use crate::drafting::{Drafting, Source};
use crate::error::{Error, Result};
use crate::open::{self, default_name, place};
use crate::terminal::say;
use crate::texts;

/// Longest context that is planned without being asked for, in tokens.
const DEFAULT_MAX_MODEL_LEN: usize = 32_768;

/// Weights from so many bytes on take a while, which is told.
const NOTICED_BYTES: usize = 1 << 30;

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
    /// Most prompt tokens in one step; what suits the device if `None`.
    pub prefill_chunk: Option<usize>,
    /// Prefixes that are kept.
    pub checkpoints: usize,
    /// Ceiling for the time between two updates of an answer.
    pub max_itl: Option<Duration>,
    /// Requests that may wait for their turn.
    pub max_waiting: usize,
    /// A step that takes longer counts as a dead engine.
    pub stall_limit: Duration,
}

impl Scheduling {
    /// One request at a time.
    pub const ALONE: Self = Self {
        max_running: 1,
        prefill_chunk: None,
        checkpoints: 4,
        max_itl: None,
        max_waiting: 1,
        stall_limit: Duration::from_secs(120),
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
    let source = Source::of(&args.model, args.load_format);
    let target = open::target(&source)?;
    let config = TargetConfig::read(&target)?;
    let tokenizer = texts::tokenizer(&target)?;
    let template = texts::template(args.chat_template.as_deref(), &target)?;
    let (mut defaults, mut origin) = texts::defaults(&args.generation_config, &target)?;
    if let Some(json) = &args.override_generation_config {
        let changed = defaults.overridden(json);
        defaults = changed
            .map_err(|error| Error::Usage(format!("--override-generation-config: {error}")))?;
        origin += ", changed by flag";
    }
    let mut facts = vec![("model", target_fact(&source, &config))];
    if let Source::Card(card) = source {
        let guesses = card.guesses().into_iter().map(|guess| ("guessed", guess));
        facts.extend(guesses);
        let tokenizer = "tokenizer and chat template are the demo model's, text is noise";
        facts.push(("notice", tokenizer.to_string()));
    }
    if let Some(named) = &args.chat_template {
        let first = named.lines().next().unwrap_or_default();
        facts.push(("template", first.chars().take(100).collect()));
    }
    facts.extend(device_fact(args.device));
    let (drafter, speculation) = speculation(drafting, &config, &mut facts)?;
    let options = EngineOptions {
        token_count: Some(tokenizer.count()),
        ..engine_options(args, &config, speculation, scheduling)
    };
    let kind = options.device;
    let bytes = [Some(&target), drafter.as_ref()].into_iter().flatten();
    let bytes: usize = bytes.map(|weights| weights.bytes()).sum();
    if bytes > NOTICED_BYTES {
        say(&format!("loading {:.1} GB of weights", bytes as f64 / 1e9));
    }
    let begun = Instant::now();
    let engine = Engine::start(options, Sources { target, drafter })?;
    facts.push(("loaded", loaded_fact(bytes, begun.elapsed())));
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
    let place = match (kind, args.tensor_parallel_size) {
        (DeviceKind::Cuda, 1) => "on the GPU".to_owned(),
        (DeviceKind::Cuda, ranks) if args.gpus.is_empty() => format!("on {ranks} GPUs"),
        (DeviceKind::Cuda, ranks) => format!("in {ranks} ranks on GPUs {:?}", args.gpus),
        (_, 1) => "on the CPU".to_owned(),
        (_, ranks) => format!("on the CPU in {ranks} ranks"),
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
        any_name: false,
        tokenizer,
        template,
        defaults,
        eos_ids: config.eos,
        seed: args.seed.and_then(|Seed(seed)| seed),
        controls,
        template_arguments: TemplateArguments::default(),
        replays: None,
        engine,
    };
    Ok(Loaded { model, facts })
}

/// What the flags say to the engine.
fn engine_options(
    args: &ModelArgs,
    config: &TargetConfig,
    speculation: Speculation,
    scheduling: Scheduling,
) -> EngineOptions {
    let longest = DEFAULT_MAX_MODEL_LEN.min(config.max_position_embeddings);
    let device = device(args.device);
    EngineOptions {
        device,
        ranks: args.tensor_parallel_size,
        gpus: args.gpus.clone(),
        max_model_len: Some(args.max_model_len.unwrap_or(longest)),
        speculation,
        memory_fraction: args.gpu_memory_utilization,
        max_running: scheduling.max_running,
        prefill_chunk: scheduling.prefill_chunk.unwrap_or(prefill_chunk(device)),
        checkpoints: scheduling.checkpoints,
        max_itl: scheduling.max_itl,
        max_waiting: scheduling.max_waiting,
        stall_limit: scheduling.stall_limit,
        ..EngineOptions::default()
    }
}

/// The engine's options and its weights, nothing loaded.
pub fn unloaded(args: &ModelArgs, scheduling: Scheduling) -> Result<(EngineOptions, Sources)> {
    let target = open::target(&Source::of(&args.model, args.load_format))?;
    let config = TargetConfig::read(&target)?;
    let (drafter, speculation) = speculation(Drafting::of(args)?, &config, &mut Vec::new())?;
    let options = engine_options(args, &config, speculation, scheduling);
    Ok((options, Sources { target, drafter }))
}

/// How long an engine with so many bytes of weights took to be ready.
fn loaded_fact(bytes: usize, took: Duration) -> String {
    let (gigabytes, seconds) = (bytes as f64 / 1e9, took.as_secs_f64());
    format!(
        "{gigabytes:.2} GB and ready in {seconds:.2} s, {:.2} GB/s",
        gigabytes / seconds
    )
}

/// The device that the flags name, or the one that is found.
pub fn device(device: Device) -> DeviceKind {
    match device {
        Device::Auto => DeviceKind::found().0,
        Device::Cpu => DeviceKind::Cpu,
        Device::Cuda => DeviceKind::Cuda,
    }
}

/// What "auto" came to.
fn device_fact(device: Device) -> Option<Fact> {
    if device != Device::Auto {
        return None;
    }
    let (kind, reason) = DeviceKind::found();
    let name = match kind {
        DeviceKind::Cuda => "cuda",
        _ => "cpu",
    };
    Some(("device", format!("{name} ({reason})")))
}

/// Bytes per second that the first GPU reads, measured; none on the CPU.
pub fn read_bandwidth(device: DeviceKind) -> Result<Option<f64>> {
    match device {
        DeviceKind::Cuda => Ok(volley_engine::gpus()?.first().map(|gpu| gpu.read_bandwidth)),
        _ => Ok(None),
    }
}

/// Prompt tokens of one step: as many as keep the device busy.
pub fn prefill_chunk(device: DeviceKind) -> usize {
    match device {
        DeviceKind::Cuda => 2048,
        _ => 256,
    }
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
            let checkpoint = open::drafter(source, target)?;
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
    speculation.tree_order = drafting.tree_order.unwrap_or(speculation.tree_order);
    speculation.lookup_min = drafting.lookup_min;
    let head = target.mtp_layers > 0;
    if drafting.mtp == Some(true) && !head {
        let notice = "--speculative-config: \"mtp\" is true, but the target has no MTP head";
        facts.push(("notice", notice.into()));
    }
    // The demo is there to try things.
    let demo = matches!(drafting.drafter, Some(Source::Demo));
    speculation.mtp = drafting.mtp.unwrap_or(demo) && head;
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
        mtp: Some(true),
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
    let target = open::target(&Source::of(&args.model, args.load_format))?;
    let config = TargetConfig::read(&target)?;
    let drafter = Drafting::of(args)?.drafter;
    Ok(Sources {
        drafter: drafter
            .map(|source| open::drafter(&source, &config))
            .transpose()?,
        target,
    })
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
    use crate::demo;

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
}
