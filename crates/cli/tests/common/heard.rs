//! Chats as clients hear them, streamed and not.

use serde_json::Value;

/// What a client makes of an answer.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<(String, String)>,
    pub finish: String,
}

/// Of the chunks of a chat.
pub fn hear(chunks: &[Value]) -> Heard {
    let mut heard = Heard::default();
    for choice in chunks.iter().flat_map(|c| c["choices"].as_array().unwrap()) {
        let delta = &choice["delta"];
        heard.reasoning += delta["reasoning_content"].as_str().unwrap_or("");
        heard.content += delta["content"].as_str().unwrap_or("");
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if call["id"].is_string() {
                assert_eq!(call["index"], heard.calls.len());
                assert_eq!(call["type"], "function");
                let name = call["function"]["name"].as_str().unwrap();
                heard.calls.push((name.to_owned(), String::new()));
            }
            let arguments = call["function"]["arguments"].as_str().unwrap();
            heard.calls.last_mut().unwrap().1 += arguments;
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(heard.finish, "", "one finish only");
            heard.finish = reason.to_owned();
        }
    }
    heard
}

/// Of a chat that was not streamed.
pub fn heard_whole(response: &Value) -> Heard {
    let choice = &response["choices"][0];
    let message = &choice["message"];
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    Heard {
        reasoning: text(&message["reasoning_content"]),
        content: text(&message["content"]),
        calls: calls
            .map(|call| {
                (
                    text(&call["function"]["name"]),
                    text(&call["function"]["arguments"]),
                )
            })
            .collect(),
        finish: text(&choice["finish_reason"]),
    }
}
