//! Flags that are read and change nothing.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// What stands behind a flag.
#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    Anything,
    /// Several values.
    Many,
    /// One of these; any other value asks for what is not there.
    OneOf(&'static [&'static str]),
}
use Takes::{Anything, Many, Nothing, OneOf};

const HEADING: &str = "Accepted for vLLM's sake, without effect";

/// Name, what stands behind it, and why it has no effect.
const FLAGS: &[(&str, Takes, &str)] = &[
    (
        "enable-auto-tool-choice",
        Nothing,
        "Tool calls are always parsed",
    ),
    (
        "exclude-tools-when-tool-choice-none",
        Nothing,
        "They are always left out",
    ),
    ("enable-reasoning", Nothing, "Thoughts are always split off"),
    (
        "language-model-only",
        Nothing,
        "The vision tower is never loaded",
    ),
    ("limit-mm-per-prompt", Anything, "There is no vision tower"),
    ("mm-encoder-tp-mode", Anything, "There is no vision tower"),
    (
        "mm-processor-cache-gb",
        Anything,
        "There is no vision tower",
    ),
    (
        "mm-processor-cache-type",
        Anything,
        "There is no vision tower",
    ),
    ("skip-mm-profiling", Nothing, "There is no vision tower"),
    (
        "trust-remote-code",
        Nothing,
        "No code of a checkpoint is run",
    ),
    ("download-dir", Anything, "Nothing is downloaded"),
    ("revision", Anything, "Nothing is downloaded"),
    ("code-revision", Anything, "Nothing is downloaded"),
    ("tokenizer-revision", Anything, "Nothing is downloaded"),
    ("hf-token", Anything, "Nothing is downloaded"),
    ("ignore-patterns", Many, "Nothing is downloaded"),
    ("use-tqdm-on-load", Nothing, "Loading takes seconds"),
    ("no-use-tqdm-on-load", Nothing, "Loading takes seconds"),
    (
        "max-parallel-loading-workers",
        Anything,
        "Every rank loads by itself",
    ),
    (
        "model-loader-extra-config",
        Anything,
        "Every rank loads by itself",
    ),
    ("allow-credentials", Nothing, "Keys are no cookies"),
    (
        "allowed-methods",
        Anything,
        "Pages of --allowed-origins may use all that there are",
    ),
    (
        "allowed-headers",
        Anything,
        "Pages of --allowed-origins may send any",
    ),
    (
        "tokenizer-mode",
        OneOf(&["auto", "hf"]),
        "The tokenizer is the model's own",
    ),
    ("runner", OneOf(&["auto", "generate"]), "Models generate"),
    ("task", OneOf(&["auto", "generate"]), "Models generate"),
    (
        "dtype",
        OneOf(&["auto", "bfloat16", "float16", "half", "float32", "float"]),
        "The device decides",
    ),
    (
        "kv-cache-dtype",
        OneOf(&["auto", "bfloat16"]),
        "The cache has the type of the activations",
    ),
    (
        "mamba-cache-dtype",
        OneOf(&["auto", "float32"]),
        "States are in f32",
    ),
    (
        "mamba-ssm-cache-dtype",
        OneOf(&["auto", "float32"]),
        "States are in f32",
    ),
    (
        "mamba-block-size",
        Anything,
        "States are kept where texts part",
    ),
    (
        "mamba-cache-mode",
        Anything,
        "States are kept where texts part",
    ),
    (
        "disable-hybrid-kv-cache-manager",
        Nothing,
        "There is one cache for all layers",
    ),
    ("block-size", Anything, "The device decides"),
    (
        "prefix-caching-hash-algo",
        Anything,
        "Prefixes are compared token by token",
    ),
    (
        "swap-space",
        Anything,
        "What is preempted is computed again",
    ),
    (
        "enable-chunked-prefill",
        Nothing,
        "Prompts are always read in chunks",
    ),
    (
        "no-enable-chunked-prefill",
        Nothing,
        "Prompts are always read in chunks",
    ),
    ("max-num-partial-prefills", Anything, "Prompts share steps"),
    ("max-long-partial-prefills", Anything, "Prompts share steps"),
    (
        "long-prefill-token-threshold",
        Anything,
        "Prompts share steps",
    ),
    (
        "scheduling-policy",
        OneOf(&["fcfs", "priority"]),
        "Requests go by arrival and priority",
    ),
    (
        "async-scheduling",
        Nothing,
        "The engine plans while the GPU computes",
    ),
    (
        "no-async-scheduling",
        Nothing,
        "The engine plans while the GPU computes",
    ),
    (
        "num-scheduler-steps",
        Anything,
        "The engine plans every step",
    ),
    ("stream-interval", Anything, "Text goes out step by step"),
    (
        "enforce-eager",
        Nothing,
        "Steps on GPUs are recorded all the same",
    ),
    (
        "compilation-config",
        Anything,
        "Nothing is compiled at the start",
    ),
    (
        "optimization-level",
        Anything,
        "Nothing is compiled at the start",
    ),
    (
        "cuda-graph-sizes",
        Many,
        "The engine chooses what to record",
    ),
    (
        "cudagraph-capture-sizes",
        Many,
        "The engine chooses what to record",
    ),
    (
        "max-cudagraph-capture-size",
        Anything,
        "The engine chooses what to record",
    ),
    (
        "max-seq-len-to-capture",
        Anything,
        "The engine chooses what to record",
    ),
    ("attention-backend", Anything, "There is one"),
    ("disable-cascade-attn", Nothing, "There is none"),
    (
        "disable-custom-all-reduce",
        Nothing,
        "The way of sums is measured at the start",
    ),
    (
        "distributed-executor-backend",
        Anything,
        "Ranks are threads",
    ),
    (
        "pipeline-parallel-size",
        OneOf(&["1"]),
        "Layers are not spread over GPUs",
    ),
    ("data-parallel-size", OneOf(&["1"]), "One engine serves"),
    ("enable-expert-parallel", Nothing, "Models are dense"),
    ("api-server-count", Anything, "One process serves"),
    (
        "disable-frontend-multiprocessing",
        Nothing,
        "One process serves",
    ),
    (
        "guided-decoding-backend",
        Anything,
        "Formats are held by llguidance",
    ),
    (
        "structured-outputs-config",
        Anything,
        "Formats are held by llguidance",
    ),
    ("max-logprobs", Anything, "There are up to 20"),
    (
        "logprobs-mode",
        OneOf(&["raw_logprobs"]),
        "They are those of the model itself",
    ),
    (
        "enable-prompt-tokens-details",
        Nothing,
        "They are always told",
    ),
    ("enable-request-id-headers", Nothing, "They are always sent"),
    (
        "enable-server-load-tracking",
        Nothing,
        "/load always tells it",
    ),
    (
        "chat-template-content-format",
        Anything,
        "Both forms of content are read",
    ),
    (
        "response-role",
        OneOf(&["assistant"]),
        "Answers are the assistant's",
    ),
    ("enable-log-requests", Nothing, "Prompts are never logged"),
    (
        "no-enable-log-requests",
        Nothing,
        "Prompts are never logged",
    ),
    ("disable-log-requests", Nothing, "Prompts are never logged"),
    ("max-log-len", Anything, "Prompts are never logged"),
    (
        "disable-log-stats",
        Nothing,
        "There are no periodic statistics",
    ),
    ("uvicorn-log-level", Anything, "See --log-level"),
    ("disable-uvicorn-access-log", Nothing, "See --log-level"),
    (
        "disable-access-log-for-endpoints",
        Anything,
        "See --log-level",
    ),
    ("disable-fastapi-docs", Nothing, "There are none"),
    ("enable-offline-docs", Nothing, "There are none"),
];

/// Flags of vLLM that change nothing here. They are accepted so that its command lines work.
#[derive(Clone, Debug, Default)]
pub struct IgnoredArgs {
    given: Vec<String>,
}

impl IgnoredArgs {
    /// The flags that were given, as they are written.
    pub fn given(&self) -> &[String] {
        &self.given
    }
}

impl Args for IgnoredArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|&(name, takes, why)| {
            let flag = Arg::new(name).long(name).help(why).help_heading(HEADING);
            let flag = flag.hide_short_help(true);
            match takes {
                Nothing => flag.action(ArgAction::SetTrue),
                Anything => flag.action(ArgAction::Append).allow_negative_numbers(true),
                Many => flag.num_args(1..),
                OneOf(values) => flag.value_parser(values.to_vec()),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for IgnoredArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let names = FLAGS.iter().map(|(name, ..)| *name);
        let given =
            names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        Ok(Self {
            given: given.map(|name| format!("--{name}")).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
