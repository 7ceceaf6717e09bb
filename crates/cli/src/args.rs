//! The command line. Flags follow vLLM where it has one.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Inference server for Qwen3.5/3.6 with DFlash speculative decoding.
#[derive(Debug, Parser)]
#[command(name = "volley", version, about)]
pub struct Cli {
    /// What to do; `serve` if left out.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP with OpenAI's API (the default command).
    Serve(Box<ServeArgs>),
    /// Chat with a model in the terminal.
    Chat(Box<ChatArgs>),
    /// Complete one prompt and print the text.
    Generate(Box<GenerateArgs>),
    /// Say what a checkpoint is: architecture, sizes, tensors, memory.
    Inspect(InspectArgs),
    /// Measure, with a record to keep.
    Bench(BenchArgs),
}

/// Which model runs and how it drafts.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Folder of a checkpoint in Hugging Face format, or "demo" for the embedded pair.
    #[arg(default_value = "demo")]
    pub model: String,
    /// Ranks that share the weights.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub tensor_parallel_size: usize,
    /// Where to compute; "cuda" needs a build with the feature of that name.
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// Longest sequence, prompt and output together, in tokens [default: the model's own limit,
    /// at most 32768].
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub max_model_len: Option<usize>,
    /// Speculative decoding: short form of --speculative-config.
    #[arg(long, value_enum, conflicts_with = "speculative_config")]
    pub spec: Option<Spec>,
    /// Folder or .safetensors file of the DFlash drafter.
    #[arg(long, value_name = "PATH", conflicts_with = "speculative_config")]
    pub drafter: Option<PathBuf>,
    /// Drafts verified per step [default: all of the drafter's block].
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "speculative_config")]
    pub num_speculative_tokens: Option<usize>,
    /// As JSON: {"method": "dflash", "model": PATH, "num_speculative_tokens": N}.
    #[arg(long, value_name = "JSON")]
    pub speculative_config: Option<String>,
    /// Sampling defaults: "auto" (the model's generation_config.json), "vllm" (neutral, temperature
    /// 1), "greedy", or a folder with a generation_config.json.
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    pub generation_config: String,
    /// Seed of requests that bring none [default: random for each].
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// The processor, in f32.
    Cpu,
    /// NVIDIA GPUs, in bf16.
    Cuda,
}

/// Methods of drafting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spec {
    /// One token per step.
    None,
    /// Block diffusion drafter.
    Dflash,
}

/// `volley serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 takes a free one and prints it.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Names that requests may use; answers carry the first [default: name of the folder].
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// Requests that may wait for their first token; more are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub max_num_queued_reqs: usize,
    /// Largest request body, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = positive)]
    pub max_body_bytes: usize,
    /// Least severe messages in the log on stderr.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// Parser that splits off the reasoning; always on.
    #[arg(long, value_parser = ["qwen3"])]
    pub reasoning_parser: Option<String>,
    /// Parser of tool calls; both names mean the same and it is always on.
    #[arg(long, value_parser = ["qwen3_coder", "qwen3_xml"])]
    pub tool_call_parser: Option<String>,
    /// Flags of vLLM that change nothing here.
    #[command(flatten)]
    pub ignored: IgnoredArgs,
}

/// Severities of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Flags of vLLM that change nothing here. They are accepted so that its command lines work.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Accepted for vLLM's sake, without effect")]
pub struct IgnoredArgs {
    /// Tool calls are always parsed.
    #[arg(long)]
    enable_auto_tool_choice: bool,
    /// The vision tower is never loaded.
    #[arg(long)]
    language_model_only: bool,
    /// No code of a checkpoint is run.
    #[arg(long)]
    trust_remote_code: bool,
    /// The device decides.
    #[arg(long, value_parser = ["auto", "bfloat16", "float16", "half", "float32", "float"])]
    dtype: Option<String>,
    /// Memory is planned from the limits.
    #[arg(long, value_name = "FRACTION")]
    gpu_memory_utilization: Option<f32>,
    /// Requests run in turn.
    #[arg(long, value_name = "N")]
    max_num_seqs: Option<usize>,
    /// The prefill chunk is fixed.
    #[arg(long, value_name = "TOKENS")]
    max_num_batched_tokens: Option<usize>,
    /// Prompts are always read in chunks.
    #[arg(long)]
    enable_chunked_prefill: bool,
    /// There is no prefix cache yet.
    #[arg(long)]
    enable_prefix_caching: bool,
    /// There is no prefix cache yet.
    #[arg(long)]
    no_enable_prefix_caching: bool,
    /// There are no graphs to switch off.
    #[arg(long)]
    enforce_eager: bool,
    /// The cache has the type of the activations.
    #[arg(long, value_parser = ["auto"])]
    kv_cache_dtype: Option<String>,
    /// Prompts are never logged.
    #[arg(long)]
    disable_log_requests: bool,
    /// There are no periodic statistics.
    #[arg(long)]
    disable_log_stats: bool,
}

impl IgnoredArgs {
    /// The flags that were given, as they are written.
    pub fn given(&self) -> Vec<&'static str> {
        [
            (self.enable_auto_tool_choice, "--enable-auto-tool-choice"),
            (self.language_model_only, "--language-model-only"),
            (self.trust_remote_code, "--trust-remote-code"),
            (self.dtype.is_some(), "--dtype"),
            (
                self.gpu_memory_utilization.is_some(),
                "--gpu-memory-utilization",
            ),
            (self.max_num_seqs.is_some(), "--max-num-seqs"),
            (
                self.max_num_batched_tokens.is_some(),
                "--max-num-batched-tokens",
            ),
            (self.enable_chunked_prefill, "--enable-chunked-prefill"),
            (self.enable_prefix_caching, "--enable-prefix-caching"),
            (self.no_enable_prefix_caching, "--no-enable-prefix-caching"),
            (self.enforce_eager, "--enforce-eager"),
            (self.kv_cache_dtype.is_some(), "--kv-cache-dtype"),
            (self.disable_log_requests, "--disable-log-requests"),
            (self.disable_log_stats, "--disable-log-stats"),
        ]
        .into_iter()
        .filter_map(|(given, flag)| given.then_some(flag))
        .collect()
    }
}

/// Sampling of `chat` and `generate`; what is left out comes from --generation-config.
#[derive(Args, Clone, Debug, Default)]
pub struct SamplingArgs {
    /// Most tokens to generate [default: the rest of the context].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<usize>,
    /// 0 is greedy.
    #[arg(long, value_parser = number_in::<0, 2>)]
    pub temperature: Option<f32>,
    /// Likeliest tokens to keep; 0 keeps all.
    #[arg(long)]
    pub top_k: Option<usize>,
    /// Probability mass to keep.
    #[arg(long, value_parser = number_in::<0, 1>)]
    pub top_p: Option<f32>,
    /// Least probability to keep, relative to the likeliest token.
    #[arg(long, value_parser = number_in::<0, 1>)]
    pub min_p: Option<f32>,
}

/// `volley chat`.
#[derive(Args, Clone, Debug)]
pub struct ChatArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// System message.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Answer without thinking.
    #[arg(long)]
    pub no_thinking: bool,
}

/// `volley generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Text to continue; "-" reads it from stdin.
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,
    /// Put the prompt into the chat template as a user message.
    #[arg(long)]
    pub chat: bool,
    /// With --chat: answer without thinking.
    #[arg(long, requires = "chat")]
    pub no_thinking: bool,
    /// Go on after end-of-sequence tokens.
    #[arg(long)]
    pub ignore_eos: bool,
    /// Print one JSON object with text, token ids, usage and timings.
    #[arg(long)]
    pub json: bool,
}

/// `volley inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// Folder or .safetensors file of a target or drafter, or "demo" for both of the pair.
    pub model: String,
    /// Print one JSON object for each checkpoint, on a line of its own.
    #[arg(long)]
    pub json: bool,
}

/// `volley bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Speed of the same prompts with and without speculation.
    Methods(Box<MethodsArgs>),
    /// Right answers and acceptance length per kind of task.
    Quality(Box<QualityArgs>),
}

/// `volley bench methods`.
#[derive(Args, Clone, Debug)]
pub struct MethodsArgs {
    /// Chats, one JSON object per line.
    pub chats: PathBuf,
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompts to take from the file [default: all].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// Where to write the record.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// `volley bench quality`.
#[derive(Args, Clone, Debug)]
pub struct QualityArgs {
    /// Chats with expected answers, one JSON object per line.
    pub chats: PathBuf,
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// Least share of right answers of every kind; less is a failure.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub least_accuracy: f64,
    /// Print wrong answers.
    #[arg(long)]
    pub show_wrong: bool,
    /// Where to write the record.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// Parses the arguments of the process. Wrong ones end it with status 2, as usual for clap.
pub fn parse() -> Cli {
    Cli::parse_from(normalize(std::env::args_os()))
}

/// Adds the default command, and writes vLLM's spellings (`-tp`, underscores) as ours.
fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_command = args.get(1).is_some_and(|first| {
        let top_level = ["-h", "--help", "-V", "--version"];
        !first.to_string_lossy().starts_with('-') || top_level.iter().any(|flag| first == flag)
    });
    if !is_command {
        args.insert(1.min(args.len()), "serve".into());
    }
    args.into_iter().map(spell).collect()
}

fn spell(arg: OsString) -> OsString {
    let Some(text) = arg.to_str().filter(|text| text.starts_with('-')) else {
        return arg;
    };
    let (flag, value) = match text.split_once('=') {
        Some((flag, value)) => (flag, Some(value)),
        None => (text, None),
    };
    let flag = match flag {
        "-tp" => "--tensor-parallel-size".into(),
        flag if flag.starts_with("--") && !flag.contains(char::is_whitespace) => {
            flag.replace('_', "-")
        }
        _ => return arg,
    };
    match value {
        Some(value) => format!("{flag}={value}").into(),
        None => flag.into(),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn number_in<const LOW: i8, const HIGH: i8>(text: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|error| format!("{error}"))?;
    if (f32::from(LOW)..=f32::from(HIGH)).contains(&number) {
        Ok(number)
    } else {
        Err(format!("must be between {LOW} and {HIGH}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let args = line.split_whitespace().map(OsString::from);
        Cli::try_parse_from(normalize(args))
    }

    fn serve(line: &str) -> ServeArgs {
        match parse(line).unwrap().command {
            Command::Serve(args) => *args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn without_a_command_the_demo_is_served() {
        let args = serve("volley");
        assert_eq!((args.model.model.as_str(), args.port), ("demo", 8000));
        assert_eq!(args.host, "127.0.0.1");
        assert_eq!(serve("volley --port 9").port, 9);
    }

    #[test]
    fn the_command_line_of_vllm_works() {
        let args = serve(
            "volley serve DIR --port 30000 -tp 2 --max_model_len=32768 --reasoning-parser qwen3 \
             --enable-auto-tool-choice --tool-call-parser qwen3_coder --language-model-only \
             --speculative-config {\"method\":\"dflash\",\"model\":\"D_2\",\"num_speculative_tokens\":15} \
             --trust-remote-code --served-model-name a b",
        );
        assert_eq!(args.model.model, "DIR");
        assert_eq!(args.model.tensor_parallel_size, 2);
        assert_eq!(args.model.max_model_len, Some(32768));
        assert!(args.model.speculative_config.unwrap().contains("D_2"));
        assert_eq!(args.served_model_name, ["a", "b"]);
        assert_eq!(
            args.ignored.given(),
            [
                "--enable-auto-tool-choice",
                "--language-model-only",
                "--trust-remote-code"
            ]
        );
    }

    #[test]
    fn wrong_values_are_refused() {
        for line in [
            "volley serve --port 70000",
            "volley serve -tp 0",
            "volley serve --tool-call-parser hermes",
            "volley serve --reasoning-parser deepseek_r1",
            "volley serve --quantization fp8",
            "volley serve --spec none --speculative-config {}",
            "volley serve --spec eagle",
            "volley generate",
            "volley generate --prompt x --temperature 3",
            "volley generate --prompt x --no-thinking",
            "volley inspect",
            "volley sing",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
