//! The command line: commands and spelling. Each command keeps its flags next to what it does.
//! Flags follow vLLM where it has one.

mod dotted;
mod model;
mod sampling;
pub mod values;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

pub use self::model::{Device, LoadFormat, ModelArgs};
pub use self::sampling::SamplingArgs;
use crate::bench::BenchArgs;
use crate::chat::ChatArgs;
use crate::doctor::DoctorArgs;
use crate::generate::GenerateArgs;
use crate::inspect::InspectArgs;
use crate::plan::PlanArgs;
use crate::replay::ReplayArgs;
use crate::serve::ServeArgs;

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
    /// Say what a model takes of the memory of GPUs, and how many sequences fit.
    Plan(Box<PlanArgs>),
    /// Play a recorded output of a model through the server's parsers and writers.
    Replay(ReplayArgs),
    /// Measure, with a record to keep.
    Bench(BenchArgs),
    /// Say what the GPUs of this machine are and how fast their memory is.
    Doctor(DoctorArgs),
}

/// Parses the arguments of the process. Wrong ones end it with status 2, as usual for clap.
pub fn parse() -> Cli {
    Cli::parse_from(normalize(std::env::args_os()))
}

/// Adds the default command, and writes vLLM's spellings (`-tp`, `-O3`, underscores, keys of JSON) as ours.
fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = dotted::gather(args);
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
        "-pp" => "--pipeline-parallel-size".into(),
        "-dp" => "--data-parallel-size".into(),
        "-dcp" => "--decode-context-parallel-size".into(),
        "-pcp" => "--prefill-context-parallel-size".into(),
        "-ac" => "--attention-config".into(),
        "-cc" => "--compilation-config".into(),
        "-O0" | "-O1" | "-O2" | "-O3" => {
            return format!("--compilation-config={}", &flag[2..]).into();
        }
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
        assert!(serve("volley serve").ignored.given().is_empty());
    }

    #[test]
    fn other_command_lines_of_vllm_work() {
        let args = serve(
            "volley serve DIR -tp 2 -pp 1 -dp=1 -O3 --gpu-memory-utilization 0.95 --max-model-len 128K \
             --max-num-seqs 64 --max-num-batched-tokens 8k --async-scheduling --no-enable-log-requests \
             --mm_encoder_tp_mode data --limit-mm-per-prompt {\"image\":0} --kv-cache-dtype auto \
             --compilation-config {\"cudagraph_mode\":\"PIECEWISE\"} --block-size 16 --swap-space 4 \
             --distributed-executor-backend mp --disable-custom-all-reduce --uvicorn-log-level warning \
             --cudagraph-capture-sizes 1 2 4 8 --attention-backend FLASHINFER --seed 0",
        );
        assert_eq!(args.model.max_model_len, Some(131_072));
        assert_eq!(args.max_num_batched_tokens, Some(8000));
        assert_eq!(args.ignored.given().len(), 15);
        let origins = |line: &str| {
            let options = serve(line).http.options(1);
            options.map(|options| options.allowed_origins)
        };
        let list = origins(r#"volley --allowed-origins ["https://a.example","*"]"#);
        assert_eq!(list.unwrap(), ["https://a.example", "*"]);
        assert_eq!(origins("volley --allowed-origins a b").unwrap(), ["a", "b"]);
        assert!(origins("volley --allowed-origins [a]").is_err());
        let named = serve("volley serve --model DIR --served-model-name a --port 1");
        assert_eq!(named.model.model, "demo");
        assert_eq!(named.chosen().model, "DIR");
        assert_eq!(serve("volley serve DIR").chosen().model, "DIR");
    }

    #[test]
    fn flags_with_keys_are_json() {
        let args = serve(
            "volley serve DIR --speculative-config.method dflash --speculative_config.model DIR2 \
             -cc.mode=3 --speculative-config.num_speculative_tokens 15 \
             --default-chat-template-kwargs.enable_thinking false -dcp 1 --nnodes 1 --node-rank 0",
        );
        let config = args.model.speculative_config.unwrap();
        let expected = r#"{"method":"dflash","model":"DIR2","num_speculative_tokens":15}"#;
        assert_eq!(config, expected);
        let ignored = args.ignored.given();
        assert!(
            ignored.contains(&"--compilation-config".to_owned()),
            "{ignored:?}"
        );
        assert!(args.default_chat_template_kwargs.is_some());
    }

    #[test]
    fn wrong_values_are_refused() {
        for line in [
            "volley serve --port 70000",
            "volley serve -tp 0",
            "volley serve --tool-call-parser hermes",
            "volley serve --reasoning-parser deepseek_r1",
            "volley serve --quantization fp8",
            "volley serve DIR --enable-lora --lora-modules a=b",
            "volley serve --kv-cache-dtype fp8",
            "volley serve --pipeline-parallel-size 2",
            "volley serve -dp 2",
            "volley serve DIR --model DIR",
            "volley serve --max-model-len 0k",
            "volley serve --request-timeout 1e300",
            "volley bench serve x --rate 1e-300",
            "volley serve --spec none --speculative-config {}",
            "volley serve --spec eagle",
            "volley generate",
            "volley generate --prompt x --temperature 3",
            "volley generate --prompt x --no-thinking",
            "volley inspect",
            "volley replay",
            "volley replay x --api chat --split 0",
            "volley replay x --api telegraph",
            "volley serve --request-timeout 0",
            "volley serve --sse-heartbeat never",
            "volley sing",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
