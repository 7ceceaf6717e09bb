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
    ("ssl-keyfile", TLS),
    ("ssl-certfile", TLS),
    ("ssl-ca-certs", TLS),
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
    ("cpu-offload-gb", "all weights are on the device"),
    ("kv-offloading-size", "keys and values stay on the device"),
    ("kv-transfer-config", "one engine reads prompts and answers"),
    ("enable-sleep-mode", "memory is held until the end"),
    ("data-parallel-rank", ONE_ENGINE),
    ("headless", ONE_ENGINE),
    ("nnodes", ONE_ENGINE),
    ("node-rank", ONE_ENGINE),
    ("decode-context-parallel-size", ONE_ENGINE),
    ("prefill-context-parallel-size", ONE_ENGINE),
    ("middleware", PLUGINS),
    ("logits-processors", PLUGINS),
    ("tool-parser-plugin", PLUGINS),
    ("reasoning-parser-plugin", PLUGINS),
    ("tool-server", "tools are called by clients"),
    (
        "enable-prompt-embeds",
        "prompts are texts, messages or token ids",
    ),
    (
        "otlp-traces-endpoint",
        "there are no traces; see /metrics and --log-level debug",
    ),
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
