//! Blocks of messages beside text and calls.

use serde_json::{Value, json};
use volley_protocol::Features;
use volley_protocol::anthropic::MessagesRequest;

/// Contents of the messages, also for counting, and notices.
fn read(content: Value) -> (Vec<String>, Vec<String>) {
    let mut body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": content}]});
    let features = Features::default();
    let read = MessagesRequest::from_json(body.to_string().as_bytes(), &features);
    let read = read.unwrap().generation;
    body.as_object_mut().unwrap().remove("max_tokens");
    let counted = MessagesRequest::for_counting(body.to_string().as_bytes(), &features);
    assert_eq!(counted.unwrap().generation.messages, read.messages);
    let contents = read.messages.into_iter().map(|message| message.content);
    let known = |notice: &String| !notice.contains("cache_control");
    (
        contents.collect(),
        read.notices.into_iter().filter(known).collect(),
    )
}

#[test]
fn documents_of_text_are_text() {
    let plain = json!({"type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "It rains."}});
    let (contents, notices) = read(json!([plain, {"type": "text", "text": "Sum up."}]));
    assert_eq!(contents, ["It rains.\n\nSum up."]);
    assert_eq!(notices, [""; 0]);

    let titled = json!({"type": "document", "title": "Oslo", "context": "A guide.",
        "cache_control": {"type": "ephemeral"}, "citations": {"enabled": true},
        "source": {"type": "content", "content": [
            {"type": "text", "text": "It rains."}, {"type": "text", "text": "Often.\n"}]}});
    let blocks = [
        json!({"type": "text", "text": "Read "}),
        json!({"type": "text", "text": "this."}),
        titled,
        plain.clone(),
        json!({"type": "text", "text": "Sum "}),
        json!({"type": "text", "text": "up."}),
    ];
    let (contents, notices) = read(json!(blocks));
    let text = "Read this.\n\nOslo\n\nA guide.\n\nIt rains.\n\nOften.\n\nIt rains.\n\nSum up.";
    assert_eq!(contents, [text]);
    let notice =
        "messages[0].content[2].citations.enabled is true, but the answer has no citations";
    assert_eq!(notices, [notice]);

    let bare = json!({"type": "document", "source": {"type": "content", "content": "It rains."}});
    assert_eq!(read(json!([bare])).0, ["It rains."]);
    let found = json!({"type": "search_result", "source": "https://a.org", "title": "Rain",
        "content": [{"type": "text", "text": "Today."}]});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "Found:"}, found, plain]});
    let tool = json!({"type": "tool_result", "tool_use_id": "toolu_2",
        "content": [{"type": "tool_reference", "tool_name": "Bash"}]});
    assert_eq!(read(json!([tool])).0, ["Bash"]);
    let (contents, _) = read(json!([result, found, {"type": "text", "text": "Well?"}]));
    assert_eq!(
        contents,
        [
            "Found:\nRain\n\nhttps://a.org\n\nToday.\nIt rains.",
            "Rain\n\nhttps://a.org\n\nToday.\n\nWell?"
        ]
    );
}

/// What Anthropic's servers leave in an answer goes back to whoever serves the next turn.
#[test]
fn traces_of_other_servers_are_left_out() {
    let blocks = json!([
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []},
        {"type": "compaction", "content": "They spoke of rain.", "signature": "x"},
        {"type": "compaction", "content": null},
        {"type": "text", "text": "It rains."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []},
        {"type": "redacted_thinking", "data": "x"},
    ]);
    let body = json!({"max_tokens": 5, "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "Well?"},
    ]});
    let read = MessagesRequest::from_json(body.to_string().as_bytes(), &Features::default());
    let read = read.unwrap().generation;
    assert_eq!(read.messages[1].content, "They spoke of rain.\n\nIt rains.");
    assert_eq!(read.notices.len(), 7, "{:?}", read.notices);
}
