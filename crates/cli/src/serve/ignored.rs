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

/// Why they have no effect, what stands behind them, and their names.
const FLAGS: &[(&str, Takes, &str)] = &[
    (
        "Tool calls are always parsed",
        Nothing,
        "enable-auto-tool-choice",
    ),
    (
        "They are always left out",
        Nothing,
        "exclude-tools-when-tool-choice-none",
    ),
    ("Thoughts are always split off", Nothing, "enable-reasoning"),
    (
        "The vision tower is never loaded",
        Nothing,
        "language-model-only",
    ),
    (
        "There is no vision tower",
        Anything,
        "limit-mm-per-prompt mm-encoder-tp-mode mm-processor-cache-gb mm-processor-cache-type \
         mm-encoder-attn-backend video-pruning-rate allowed-local-media-path \
         ec-transfer-config",
    ),
    (
        "There is no vision tower",
        Nothing,
        "skip-mm-profiling interleave-mm-strings disable-chunked-mm-input",
    ),
    ("There is no vision tower", Many, "allowed-media-domains"),
    (
        "No code of a checkpoint is run",
        Nothing,
        "trust-remote-code no-trust-remote-code",
    ),
    (
        "Nothing is downloaded",
        Anything,
        "download-dir revision code-revision tokenizer-revision hf-token",
    ),
    ("Nothing is downloaded", Many, "ignore-patterns"),
    (
        "Loading takes seconds",
        Nothing,
        "use-tqdm-on-load no-use-tqdm-on-load",
    ),
    (
        "Every rank loads by itself",
        Anything,
        "max-parallel-loading-workers model-loader-extra-config",
    ),
    ("Keys are no cookies", Nothing, "allow-credentials"),
    (
        "Pages of --allowed-origins may use all that there are",
        Anything,
        "allowed-methods",
    ),
    (
        "Pages of --allowed-origins may send any",
        Anything,
        "allowed-headers",
    ),
    (
        "The tokenizer is the model's own",
        OneOf(&["auto", "hf"]),
        "tokenizer-mode",
    ),
    (
        "Models generate",
        OneOf(&["auto", "generate"]),
        "runner task",
    ),
    ("Models generate", OneOf(&["auto", "none"]), "convert"),
    (
        "The device decides",
        OneOf(&["auto", "bfloat16", "float16", "half", "float32", "float"]),
        "dtype",
    ),
    ("The device decides", Anything, "block-size"),
    (
        "The cache has the type of the activations",
        OneOf(&["auto", "bfloat16"]),
        "kv-cache-dtype",
    ),
    (
        "The cache has the type of the activations",
        Nothing,
        "calculate-kv-scales",
    ),
    (
        "The cache has the type of the activations",
        Many,
        "kv-cache-dtype-skip-layers",
    ),
    (
        "States are in f32",
        OneOf(&["auto", "float32"]),
        "mamba-cache-dtype mamba-ssm-cache-dtype",
    ),
    (
        "States are in f32",
        Nothing,
        "enable-mamba-cache-stochastic-rounding",
    ),
    (
        "States are kept where texts part",
        Anything,
        "mamba-block-size mamba-cache-mode",
    ),
    (
        "There is one cache for all layers",
        Nothing,
        "disable-hybrid-kv-cache-manager no-disable-hybrid-kv-cache-manager \
         kv-sharing-fast-prefill",
    ),
    (
        "Prefixes are compared token by token",
        Anything,
        "prefix-caching-hash-algo",
    ),
    (
        "What is preempted is computed again",
        Anything,
        "swap-space",
    ),
    (
        "Prompts are always read in chunks",
        Nothing,
        "enable-chunked-prefill no-enable-chunked-prefill",
    ),
    (
        "Prompts share steps",
        Anything,
        "max-num-partial-prefills max-long-partial-prefills long-prefill-token-threshold",
    ),
    (
        "Requests go by arrival and priority",
        OneOf(&["fcfs", "priority"]),
        "scheduling-policy",
    ),
    (
        "The engine plans while the GPU computes",
        Nothing,
        "async-scheduling no-async-scheduling",
    ),
    (
        "The engine plans every step",
        Anything,
        "num-scheduler-steps",
    ),
    ("Text goes out step by step", Anything, "stream-interval"),
    (
        "Steps on GPUs are recorded all the same",
        Nothing,
        "enforce-eager no-enforce-eager",
    ),
    (
        "Nothing is compiled at the start",
        Anything,
        "compilation-config optimization-level",
    ),
    (
        "The engine chooses what to record",
        Many,
        "cuda-graph-sizes cudagraph-capture-sizes",
    ),
    (
        "The engine chooses what to record",
        Anything,
        "max-cudagraph-capture-size max-seq-len-to-capture",
    ),
    (
        "There is one",
        Anything,
        "attention-backend gdn-prefill-backend attention-config linear-backend kernel-config \
         ir-op-priority performance-mode",
    ),
    ("There is one", OneOf(&["auto", "vllm"]), "model-impl"),
    ("There is none", Nothing, "disable-cascade-attn"),
    (
        "The way of sums is measured at the start",
        Nothing,
        "disable-custom-all-reduce no-disable-custom-all-reduce",
    ),
    (
        "Ranks are threads",
        Anything,
        "distributed-executor-backend",
    ),
    ("Ranks are threads", OneOf(&["auto"]), "worker-cls"),
    (
        "Layers are not spread over GPUs",
        OneOf(&["1"]),
        "pipeline-parallel-size",
    ),
    (
        "One engine serves",
        OneOf(&["1"]),
        "data-parallel-size data-parallel-size-local decode-context-parallel-size \
         prefill-context-parallel-size nnodes",
    ),
    ("One engine serves", OneOf(&["0"]), "node-rank"),
    (
        "One engine serves",
        Anything,
        "data-parallel-address data-parallel-rpc-port data-parallel-backend master-addr \
         master-port",
    ),
    (
        "Models are dense",
        Nothing,
        "enable-expert-parallel no-enable-expert-parallel enable-eplb",
    ),
    (
        "Models are dense",
        Anything,
        "moe-backend all2all-backend expert-placement-strategy",
    ),
    (
        "One process serves",
        Anything,
        "api-server-count renderer-num-workers",
    ),
    (
        "One process serves",
        Nothing,
        "disable-frontend-multiprocessing",
    ),
    (
        "Formats are held by llguidance",
        Anything,
        "guided-decoding-backend structured-outputs-config",
    ),
    ("There are up to 20", Anything, "max-logprobs"),
    (
        "They are those of the model itself",
        OneOf(&["raw_logprobs"]),
        "logprobs-mode",
    ),
    (
        "They are always told",
        Nothing,
        "enable-prompt-tokens-details",
    ),
    ("They are always sent", Nothing, "enable-request-id-headers"),
    (
        "/load always tells it",
        Nothing,
        "enable-server-load-tracking",
    ),
    (
        "Both forms of content are read",
        Anything,
        "chat-template-content-format",
    ),
    (
        "Answers are the assistant's",
        OneOf(&["assistant"]),
        "response-role",
    ),
    (
        "Prompts are never logged",
        Nothing,
        "enable-log-requests no-enable-log-requests disable-log-requests",
    ),
    ("Prompts are never logged", Anything, "max-log-len"),
    (
        "There are no periodic statistics",
        Nothing,
        "disable-log-stats aggregate-engine-logging",
    ),
    (
        "See --log-level",
        Anything,
        "uvicorn-log-level disable-access-log-for-endpoints log-config-file",
    ),
    (
        "See --log-level",
        Nothing,
        "disable-uvicorn-access-log disable-uvicorn-metrics-access-log",
    ),
    (
        "There are none",
        Nothing,
        "disable-fastapi-docs enable-offline-docs",
    ),
    (
        "The config is the model's own",
        OneOf(&["auto", "hf"]),
        "config-format",
    ),
    (
        "There is nothing to tune",
        Nothing,
        "enable-flashinfer-autotune no-enable-flashinfer-autotune",
    ),
    (
        "Answers are never logged",
        Nothing,
        "enable-log-outputs enable-log-deltas",
    ),
    (
        "Files are mapped",
        Anything,
        "safetensors-load-strategy pt-load-map-location",
    ),
    ("The system places threads", Nothing, "numa-bind"),
    (
        "Heads have 100 lines and 64 KiB at most",
        Anything,
        "h11-max-incomplete-event-size h11-max-header-count",
    ),
    (
        "/metrics has what there is",
        Nothing,
        "enable-mfu-metrics kv-cache-metrics cudagraph-metrics",
    ),
    (
        "/metrics has what there is",
        Anything,
        "show-hidden-metrics-for-version kv-cache-metrics-sample",
    ),
    (
        "No environment variables are read",
        Nothing,
        "fail-on-environ-validation",
    ),
    (
        "Thoughts have the family's tags",
        Anything,
        "reasoning-config",
    ),
    (
        "Targets have no sliding window",
        Nothing,
        "disable-sliding-window",
    ),
    ("Nothing is profiled", Anything, "profiler-config"),
    (
        "Nothing is profiled",
        Nothing,
        "enable-layerwise-nvtx-tracing ray-workers-use-nsight",
    ),
    (
        "All weights are on the device",
        OneOf(&["0"]),
        "cpu-offload-gb",
    ),
];

/// Each flag with what stands behind it and why it has no effect.
fn flags() -> impl Iterator<Item = (&'static str, Takes, &'static str)> {
    let groups = FLAGS.iter();
    groups.flat_map(|&(why, takes, names)| names.split(' ').map(move |name| (name, takes, why)))
}

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
        command.args(flags().map(|(name, takes, why)| {
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
        let names = flags().map(|(name, ..)| name);
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
