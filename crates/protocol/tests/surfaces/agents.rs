//! Requests of coding agents, recorded by `tests/agents` with their texts cut short: what each has
//! done in a tool loop reaches the prompt, and each prompt goes on from the one before.

use serde_json::Value;
use volley_protocol::messages::{Role, normalize};
use volley_protocol::template::ChatTemplate;
use volley_protocol::{Features, GenerationRequest, Surface};

/// What the agents were asked to write, by a call with these very characters.
const WORDS: &str = "seen by volley: \"<b>\\n</b>\" & 100 % é😀\nsecond line";

/// File, surface, tools that the model is shown.
const AGENTS: &[(&str, Surface, usize)] = &[
    ("claude-0", Surface::Messages, 24),
    ("codex-0", Surface::Responses, 12),
    ("opencode-0", Surface::Chat, 10),
    ("qwen-0", Surface::Chat, 15),
];

/// Requests beside the work: titles, memories.
const ASIDE: &[(&str, Surface)] = &[("opencode-1", Surface::Chat)];

fn body(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/agents");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn read(surface: Surface, body: &Value) -> GenerationRequest {
    let read = surface.read(body.to_string().as_bytes(), &Features::all());
    read.unwrap().generation().clone()
}

fn prompt(request: &GenerationRequest) -> String {
    let template = ChatTemplate::new(include_str!("../data/qwen3_6.jinja")).unwrap();
    let messages = normalize(request.messages.clone()).unwrap();
    template
        .render(&messages, request.active_tools(), request.render_options())
        .unwrap()
}

/// The request as it was before the model's last turn.
fn turn_before(body: &Value) -> Value {
    let mut body = body.clone();
    let field = if body["input"].is_array() {
        "input"
    } else {
        "messages"
    };
    let turns = body[field].as_array_mut().unwrap();
    let own = |turn: &Value| {
        turn["role"] == "assistant"
            || turn["type"] == "reasoning"
            || turn["type"] == "function_call"
    };
    let last = turns.iter().rposition(own).unwrap();
    let start = turns[..last].iter().rposition(|turn| !own(turn)).unwrap();
    turns.truncate(start + 1);
    body
}

#[test]
fn nothing_of_their_requests_is_unknown() {
    let names = AGENTS.iter().map(|(name, surface, _)| (name, surface));
    for (name, surface) in names.chain(ASIDE.iter().map(|(name, surface)| (name, surface))) {
        let request = read(*surface, &body(name));
        assert!(request.stream, "{name}");
        let unknown = |notice: &&String| notice.starts_with("unknown fields");
        assert_eq!(request.notices.iter().find(unknown), None, "{name}");
    }
}

#[test]
fn the_prompt_has_the_tools_and_the_loop() {
    for (name, surface, tools) in AGENTS {
        let request = read(*surface, &body(name));
        assert_eq!(request.active_tools().len(), *tools, "{name}");
        let calls = request
            .messages
            .iter()
            .flat_map(|message| &message.tool_calls);
        assert_eq!(calls.count(), 2, "{name}");
        let results = request.messages.iter().filter(|m| m.role == Role::Tool);
        assert_eq!(results.count(), 2, "{name}");
        let prompt = prompt(&request);
        for tool in request.active_tools() {
            assert!(
                prompt.contains(&format!("\"name\": \"{}\"", tool.name)),
                "{name}"
            );
        }
        // Once in the call, once in the result of the other.
        assert_eq!(prompt.matches(WORDS).count(), 2, "{name}: {prompt}");
        assert_eq!(
            prompt.matches("I write the file first").count(),
            2,
            "{name}"
        );
        assert!(
            prompt.ends_with("<|im_start|>assistant\n<think>\n"),
            "{name}"
        );
    }
}

#[test]
fn each_prompt_goes_on_from_the_one_before() {
    for (name, surface, _) in AGENTS {
        let mut body = body(name);
        for turn in 0..2 {
            let later = prompt(&read(*surface, &body));
            body = turn_before(&body);
            let before = prompt(&read(*surface, &body));
            assert!(
                later.starts_with(&before),
                "{name}, {turn} before the last:\n{before}\n{later}"
            );
            assert!(later.len() > before.len());
        }
    }
}
