//! `volley generate`.

use std::io::{Read, Write};

use clap::Args;
use serde_json::{Value, json};
use volley_engine::Usage;
use volley_protocol::openai::{ChatRequest, SamplingFields};
use volley_protocol::parser::{Aggregate, InitialState, ParserConfig};
use volley_server::{Generation, Prepared, ServedModel};

use crate::args::{ModelArgs, SamplingArgs};
use crate::error::Result;
use crate::load;
use crate::terminal::{Printer, acceptance_length, remark, summary, tokens_per_second};

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

/// Completes one prompt.
pub fn run(args: &GenerateArgs) -> Result<()> {
    let mut prompt = args.prompt.clone();
    if prompt == "-" {
        prompt.clear();
        std::io::stdin().read_to_string(&mut prompt)?;
    }
    let model = load::served(&args.model)?;
    let prepared = if args.chat {
        let messages = [json!({"role": "user", "content": prompt})];
        let mut body = chat_body(&messages, &args.sampling, !args.no_thinking);
        body["ignore_eos"] = args.ignore_eos.into();
        model.prepare(
            ChatRequest::from_json(body.to_string().as_bytes())?,
            "call_".into(),
        )?
    } else {
        raw(&model, &prompt, args)?
    };
    let generation = model.start(prepared)?;
    if args.json {
        print_json(generation, &model, args.chat)
    } else if args.chat {
        print_chat(generation)
    } else {
        print_raw(generation, &model)
    }
}

/// Body of a chat request.
pub fn chat_body(messages: &[Value], sampling: &SamplingArgs, thinking: bool) -> Value {
    json!({
        "messages": messages,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "chat_template_kwargs": {"enable_thinking": thinking},
    })
}

/// The prompt as it stands, without a template; the output is text throughout.
fn raw(model: &ServedModel, prompt: &str, args: &GenerateArgs) -> Result<Prepared> {
    let fields = SamplingFields {
        temperature: args.sampling.temperature,
        top_k: args.sampling.top_k,
        top_p: args.sampling.top_p,
        min_p: args.sampling.min_p,
        max_tokens: args.sampling.max_tokens,
        ignore_eos: Some(args.ignore_eos),
        ..SamplingFields::default()
    };
    let request = model.request(model.encode(&[prompt.to_owned()])?, &fields)?;
    let parser = ParserConfig {
        initial: InitialState::ThinkClosed,
        tools: Vec::new(),
        parallel_tool_calls: true,
        stop: Vec::new(),
        tag_ids: model.tokenizer.tags(),
        call_id_prefix: String::new(),
    };
    Ok(Prepared {
        request,
        parser,
        opens_prompt: true,
    })
}

fn print_chat(mut generation: Generation) -> Result<()> {
    let mut printer = Printer::stdout();
    while let Some(deltas) = generation.next_blocking() {
        deltas?.iter().try_for_each(|delta| printer.print(delta))?;
    }
    if printer.hides_all() {
        remark("nothing but thoughts, which only a terminal or --json shows");
    }
    report(&generation);
    Ok(())
}

/// Writes the bytes of the tokens: tags and thoughts come out as the model wrote them.
fn print_raw(mut generation: Generation, model: &ServedModel) -> Result<()> {
    let mut out = std::io::stdout();
    let mut printed = 0;
    while let Some(deltas) = generation.next_blocking() {
        deltas?;
        for id in &generation.tokens()[printed..] {
            out.write_all(model.tokenizer.bytes(*id))?;
        }
        printed = generation.tokens().len();
        out.flush()?;
    }
    writeln!(out)?;
    report(&generation);
    Ok(())
}

fn report(generation: &Generation) {
    if let Some(usage) = generation.timings() {
        remark(&summary(&usage));
    }
}

fn print_json(mut generation: Generation, model: &ServedModel, chat: bool) -> Result<()> {
    let mut answer = Aggregate::default();
    while let Some(deltas) = generation.next_blocking() {
        answer.extend(&deltas?);
    }
    let tokens = generation.tokens();
    let bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|id| model.tokenizer.bytes(*id))
        .copied()
        .collect();
    let mut result = json!({
        "text": String::from_utf8_lossy(&bytes),
        "tokens": tokens,
        "finish_reason": answer.finish_reason,
        "usage": generation.usage(),
    });
    if chat {
        let calls = answer.tool_calls.iter();
        let calls = calls.map(|call| json!({"name": call.name, "arguments": call.arguments}));
        result["content"] = answer.content.clone().into();
        result["reasoning_content"] = answer.reasoning.clone().into();
        result["tool_calls"] = calls.collect();
    }
    if let Some(usage) = generation.timings() {
        result["timings"] = timings(&usage);
    }
    writeln!(std::io::stdout(), "{result}")?;
    Ok(())
}

fn timings(usage: &Usage) -> Value {
    json!({
        "prefill_ms": usage.prefill_ms,
        "decode_ms": usage.decode_ms,
        "steps": usage.steps,
        "tokens_per_second": tokens_per_second(usage),
        "acceptance_length": acceptance_length(usage),
    })
}
