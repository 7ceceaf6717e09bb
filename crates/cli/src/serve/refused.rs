//! Flags of vLLM that ask for what is not there: each is refused with the reason.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

const ADAPTERS: &str = "there are no adapters";
const TLS: &str = "a proxy in front has to speak TLS";
const ONE_ENGINE: &str = "one engine on one machine serves; see --tensor-parallel-size";
const CACHE: &str = "what models leave of --gpu-memory-utilization holds keys and values";
const POSITIONS: &str = "the model's config.json decides, and can be edited";
const PLUGINS: &str = "no code is loaded";
const TRACES: &str = "there are no traces; see /metrics and --log-level debug";

/// Name and reason.
const FLAGS: &[(&str, &str)] = &[
    (
        "quantization",
        "weights are computed with as their files have them, in BF16 on GPUs",
    ),
    ("enable-lora", ADAPTERS),
    ("lora-modules", ADAPTERS),
    ("max-loras", ADAPTERS),
    ("max-lora-rank", ADAPTERS),
    ("max-cpu-loras", ADAPTERS),
    ("lora-dtype", ADAPTERS),
    ("lora-target-modules", ADAPTERS),
    ("fully-sharded-loras", ADAPTERS),
    ("default-mm-loras", ADAPTERS),
    ("ssl-keyfile", TLS),
    ("ssl-certfile", TLS),
    ("ssl-ca-certs", TLS),
    ("ssl-cert-reqs", TLS),
    ("ssl-ciphers", TLS),
    ("enable-ssl-refresh", TLS),
    ("uds", "the server listens on TCP; see --host and --port"),
    (
        "root-path",
        "a proxy in front has to take the prefix off the paths",
    ),
    ("config", "flags are given one by one"),
    (
        "tokenizer",
        "the model's own is used; put another tokenizer.json in its folder",
    ),
    ("hf-config-path", POSITIONS),
    ("hf-overrides", POSITIONS),
    ("rope-scaling", POSITIONS),
    ("rope-theta", POSITIONS),
    (
        "trust-request-chat-template",
        "templates of requests are not rendered; see --chat-template",
    ),
    ("num-gpu-blocks-override", CACHE),
    ("kv-cache-memory-bytes", CACHE),
    ("kv-offloading-size", "keys and values stay on the device"),
    (
        "kv-offloading-backend",
        "keys and values stay on the device",
    ),
    ("kv-events-config", "nobody is told what the cache holds"),
    ("kv-transfer-config", "one engine reads prompts and answers"),
    ("enable-sleep-mode", "memory is held until the end"),
    ("data-parallel-rank", ONE_ENGINE),
    ("headless", ONE_ENGINE),
    ("middleware", PLUGINS),
    ("logits-processors", PLUGINS),
    ("logits-processor-pattern", PLUGINS),
    ("io-processor-plugin", PLUGINS),
    ("scheduler-cls", PLUGINS),
    ("worker-extension-cls", PLUGINS),
    ("tool-parser-plugin", PLUGINS),
    ("reasoning-parser-plugin", PLUGINS),
    ("tool-server", "tools are called by clients"),
    (
        "enable-prompt-embeds",
        "prompts are texts, messages or token ids",
    ),
    ("pooler-config", "models generate"),
    ("skip-tokenizer-init", "the tokenizer is always there"),
    (
        "return-tokens-as-token-ids",
        "tokens are told by their text; see /tokenize",
    ),
    ("enable-per-request-metrics", "times are in /metrics"),
    ("otlp-traces-endpoint", TRACES),
    ("collect-detailed-traces", TRACES),
];

/// Stands for flags that no command line that works has.
#[derive(Clone, Debug, Default)]
pub struct RefusedArgs;

impl Args for RefusedArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|&(name, why)| {
            let flag = Arg::new(name).long(name).help(why).hide(true);
            flag.action(ArgAction::Append).num_args(0..)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RefusedArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        match FLAGS.iter().find(|(name, _)| given(name)) {
            None => Ok(Self),
            Some((name, why)) => {
                let message = format!("--{name} is not supported: {why}\n");
                Err(clap::Error::raw(ErrorKind::UnknownArgument, message))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
