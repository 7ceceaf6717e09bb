//! The trained demo pair on its held-out chats: speculation pays and leaves the text alone.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::{Path, PathBuf};

use common::{dflash, greedy, run, sampled};
use serde_json::{Value, json};
use tokenizers::Tokenizer;
use volley_engine::{Engine, EngineHandle, EngineOptions, Sources, Speculation, Stop};
use volley_model::{Checkpoint, TargetConfig};
use volley_protocol::messages::normalize;
use volley_protocol::openai::ChatRequest;
use volley_protocol::template::ChatTemplate;

const MAX_TOKENS: usize = 160;

fn demo(part: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    models.join(part)
}

fn checkpoint(part: &str) -> Checkpoint {
    Checkpoint::open(&demo(part)).unwrap()
}

fn start(speculation: Speculation) -> EngineHandle {
    let options = EngineOptions {
        max_model_len: Some(2048),
        speculation,
        ahead: speculation != Speculation::none(),
        ..EngineOptions::default()
    };
    let sources = Sources {
        target: checkpoint("target"),
        drafter: Some(checkpoint("drafter")),
    };
    Engine::start(options, sources).unwrap()
}

/// The recorded chats as prompts.
fn prompts() -> Vec<Vec<u32>> {
    let read = |name| std::fs::read_to_string(demo(name)).unwrap();
    let template = ChatTemplate::new(read("target/chat_template.jinja")).unwrap();
    let tokenizer = Tokenizer::from_file(demo("target/tokenizer.json")).unwrap();
    let prompt = |line: &str| {
        let mut chat: Value = serde_json::from_str(line).unwrap();
        let thinking = chat["enable_thinking"].take();
        let mut body = json!({
            "messages": chat["messages"],
            "chat_template_kwargs": {"enable_thinking": thinking},
        });
        if let Some(tools) = chat.get("tools") {
            body["tools"] = tools.clone();
        }
        let request = ChatRequest::from_json(body.to_string().as_bytes()).unwrap();
        let options = request.render_options();
        let tools = request.active_tools().to_vec();
        let messages = normalize(request.messages).unwrap();
        let text = template.render(&messages, &tools, options).unwrap();
        let encoding = tokenizer.encode_fast(text, false).unwrap();
        encoding.get_ids().to_vec()
    };
    read("eval/prompts.jsonl").lines().map(prompt).collect()
}

#[test]
fn a_hundred_chats_read_the_same_with_and_without_speculation() {
    let target = checkpoint("target");
    let eos = TargetConfig::read(&target).unwrap().eos;
    let (plain, speculating) = (start(Speculation::none()), start(dflash(15)));
    let prompts = prompts();
    assert_eq!(prompts.len(), 100);
    let mut ended = 0;
    for (index, prompt) in prompts.iter().enumerate() {
        let mut request = greedy(prompt.clone(), MAX_TOKENS);
        request.stop_ids = eos.clone();
        let a = run(&plain, request.clone());
        let b = run(&speculating, request);
        let what = format!("chat {index}");
        common::assert_same_text(&target, prompt, &a.tokens, &b.tokens, &what);
        ended += usize::from(matches!(b.terminal.stop, Stop::Token(_)));
    }
    assert!(ended > 30, "{ended} answers have an end");
    let stats = speculating.stats();
    eprintln!(
        "{stats:?}\nacceptance length {:?}",
        stats.acceptance_length()
    );
    assert!(stats.acceptance_length() > Some(4.0), "{stats:?}");
}

#[test]
fn sampled_chats_read_the_same_with_and_without_speculation() {
    let eos = TargetConfig::read(&checkpoint("target")).unwrap().eos;
    let (plain, speculating) = (start(Speculation::none()), start(dflash(15)));
    for (seed, prompt) in (0..).zip(prompts().into_iter().step_by(5)) {
        let mut request = sampled(prompt, 100, 1.0, seed);
        request.stop_ids = eos.clone();
        request.sampling.top_k = 20;
        request.sampling.top_p = 0.95;
        let a = run(&plain, request.clone());
        assert_eq!(a.tokens, run(&speculating, request).tokens, "seed {seed}");
    }
    assert!(speculating.stats().acceptance_length() > Some(2.0));
}
