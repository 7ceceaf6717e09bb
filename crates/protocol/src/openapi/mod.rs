//! The OpenAPI 3.1 document. Schemas of requests are what the readers ask for, noted while they
//! read a sample; schemas of responses come from the types that are written.

mod samples;

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::anthropic::{MessageObject, TokenCount, read_messages};
use crate::completions::{CompletionResponse, read_completion};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::openai::{ChatResponse, ModelInfo, ModelList, read_chat};
use crate::recorder::Recorder;
use crate::request::{Features, IGNORED_FIELDS, UNSUPPORTED_FIELDS};
use crate::responses::{InputTokenCount, ResponseObject, read_responses};
use crate::tokenize::{DetokenizeResponse, TokenizeResponse, read_detokenize, read_tokenize};

/// The document of a server with these features. `version` is the server's.
pub fn document(features: &Features, version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
    let mut document = Document {
        schemas: SchemaGenerator::new(settings),
        requests: Map::new(),
        paths: Map::new(),
    };
    document.add_answers(features);
    document.add_service();
    document.finish(version)
}

struct Document {
    schemas: SchemaGenerator,
    requests: Map<String, Value>,
    paths: Map<String, Value>,
}

/// A way to read a body; what it gives does not matter here.
type Read<'a> = &'a dyn Fn(&Fields) -> Result<(), ApiError>;

impl Document {
    fn add_answers(&mut self, features: &Features) {
        let chat = |body: &Fields| read_chat(body, features).map(drop);
        self.request(
            "ChatRequest",
            &samples::chat(features),
            &["messages"],
            &chat,
        );
        self.post::<ChatResponse>("/v1/chat/completions", "Answer a chat", "ChatRequest", true);

        let completion = |body: &Fields| read_completion(body, features).map(drop);
        let sample = samples::completion();
        self.request("CompletionRequest", &sample, &["prompt"], &completion);
        self.post::<CompletionResponse>(
            "/v1/completions",
            "Complete a text",
            "CompletionRequest",
            true,
        );

        let responses = |body: &Fields| read_responses(body, features).map(drop);
        let sample = samples::responses(features);
        self.request("ResponsesRequest", &sample, &[], &responses);
        self.post::<ResponseObject>("/v1/responses", "Answer in items", "ResponsesRequest", true);
        self.post::<InputTokenCount>(
            "/v1/responses/input_tokens",
            "Count the tokens of items",
            "ResponsesRequest",
            false,
        );

        let messages = |body: &Fields| read_messages(body, features, true).map(drop);
        let sample = samples::messages(features);
        self.request(
            "MessagesRequest",
            &sample,
            &["max_tokens", "messages"],
            &messages,
        );
        self.post::<MessageObject>("/v1/messages", "Answer messages", "MessagesRequest", true);

        let counting = |body: &Fields| read_messages(body, features, false).map(drop);
        self.request("CountTokensRequest", &sample, &["messages"], &counting);
        self.post::<TokenCount>(
            "/v1/messages/count_tokens",
            "Count the tokens of messages",
            "CountTokensRequest",
            false,
        );
    }

    fn add_service(&mut self) {
        self.request("TokenizeRequest", &samples::tokenize(), &[], &|body| {
            read_tokenize(body).map(drop)
        });
        self.post::<TokenizeResponse>("/tokenize", "Text to token ids", "TokenizeRequest", false);
        self.request(
            "DetokenizeRequest",
            &samples::detokenize(),
            &["tokens"],
            &|body| read_detokenize(body).map(drop),
        );
        self.post::<DetokenizeResponse>(
            "/detokenize",
            "Token ids to text",
            "DetokenizeRequest",
            false,
        );
        self.get::<ModelList>("/v1/models", "Served models", &[]);
        self.get::<ModelInfo>("/v1/models/{id}", "One served model", &["id"]);
        let path = "/v1/responses/{id}";
        self.get::<ResponseObject>(path, "A kept response", &["id"]);
        self.delete(path, "Forget a kept response");
        self.get::<Map<String, Value>>("/load", "Requests in flight", &[]);
        let tokenizer = "tokenizer_config.json and the chat template, where switched on";
        self.get::<Map<String, Value>>("/tokenizer_info", tokenizer, &[]);
        self.invocations();
        for (path, summary) in [
            ("/health", "Is the engine alive?"),
            ("/ping", "The same for SageMaker"),
            ("/ready", "Are requests taken?"),
            ("/version", "What runs here"),
        ] {
            self.get::<Map<String, Value>>(path, summary, &[]);
            // While the model loads, or the engine is gone or ending.
            self.paths[path]["get"]["responses"]["503"] = errors(path, &["503"])["503"].take();
        }
        self.paths.insert(
            "/metrics".to_owned(),
            json!({"get": {
                "summary": "Counts and times for Prometheus",
                "responses": {"200": {
                    "description": "The text exposition format",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }},
            }}),
        );
    }

    /// One path for chats and completions.
    fn invocations(&mut self) {
        let path = "/invocations";
        self.post::<ChatResponse>(
            path,
            "Answer a chat or complete a text",
            "ChatRequest",
            true,
        );
        let either = [
            ("requestBody", "ChatRequest", "CompletionRequest"),
            ("responses", "ChatResponse", "CompletionResponse"),
        ];
        for (part, chat, completion) in either {
            let part = &mut self.paths[path]["post"][part];
            let part = if part["200"].is_object() {
                &mut part["200"]
            } else {
                part
            };
            let of = |name| json!({"$ref": format!("#/components/schemas/{name}")});
            let schema = json!({"oneOf": [of(chat), of(completion)]});
            part["content"]["application/json"]["schema"] = schema;
        }
    }

    /// Adds the schema of a request: `sample` is a good body that holds every object there is.
    fn request(&mut self, name: &str, sample: &Value, required: &[&str], read: Read) {
        let empty = Map::new();
        let object = sample.as_object().unwrap_or(&empty);
        let recorder = Recorder::schemas();
        // A sample that is refused would leave fields out; a test sees to it.
        let _ = read(&Fields::root(object, &recorder));
        let mut schema = recorder.schema();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        for name in required {
            if let Some(types) = schema["properties"][*name]["type"].as_array_mut() {
                types.retain(|kind| kind != "null");
            }
        }
        schema["example"] = sample.clone();
        self.requests.insert(name.to_owned(), schema);
    }

    fn post<T: JsonSchema>(&mut self, path: &str, summary: &str, request: &str, streams: bool) {
        let mut content =
            json!({"application/json": {"schema": self.schemas.subschema_for::<T>()}});
        if streams {
            content["text/event-stream"] = json!({"schema": {"type": "string"}});
        }
        let mut responses = errors(
            path,
            &[
                "400", "401", "404", "408", "413", "415", "429", "500", "503", "504",
            ],
        );
        responses["200"] = json!({"description": "The answer", "content": content});
        let body = json!({"$ref": format!("#/components/schemas/{request}")});
        let operation = json!({
            "summary": summary,
            "requestBody": {"required": true, "content": {"application/json": {"schema": body}}},
            "responses": responses,
        });
        self.paths
            .insert(path.to_owned(), json!({"post": operation}));
    }

    fn get<T: JsonSchema>(&mut self, path: &str, summary: &str, parameters: &[&str]) {
        let mut responses = errors(path, if parameters.is_empty() { &[] } else { &["404"] });
        let schema = self.schemas.subschema_for::<T>();
        responses["200"] = json!({"description": "What is there",
            "content": {"application/json": {"schema": schema}}});
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        let operation =
            json!({"summary": summary, "parameters": parameters, "responses": responses});
        self.paths
            .insert(path.to_owned(), json!({"get": operation}));
    }

    /// Adds a deletion at a path that can be read too.
    fn delete(&mut self, path: &str, summary: &str) {
        let operation = &mut self.paths[path];
        let mut delete = operation["get"].clone();
        delete["summary"] = summary.into();
        delete["responses"]["200"] = json!({"description": "It is gone",
            "content": {"application/json": {"schema": {"type": "object"}}}});
        operation["delete"] = delete;
    }

    fn finish(mut self, version: &str) -> Value {
        let mut schemas = self.schemas.take_definitions(true);
        schemas.extend(self.requests);
        schemas.insert("Error".to_owned(), openai_error());
        schemas.insert("MessagesError".to_owned(), anthropic_error());
        let unsupported: Map<String, Value> = UNSUPPORTED_FIELDS
            .iter()
            .map(|(name, neutral)| ((*name).to_owned(), json!(neutral)))
            .collect();
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "volley",
                "version": version,
                "description": "Fields that no schema names are ignored. Null is the same as absent.",
            },
            "paths": self.paths,
            "components": {"schemas": schemas},
            "x-ignored-fields": IGNORED_FIELDS,
            "x-unsupported-fields": unsupported,
        })
    }
}

fn errors(path: &str, statuses: &[&str]) -> Value {
    let name = match path.starts_with("/v1/messages") {
        true => "MessagesError",
        false => "Error",
    };
    let schema = json!({"$ref": format!("#/components/schemas/{name}")});
    let error =
        json!({"description": "Error", "content": {"application/json": {"schema": schema}}});
    let errors = statuses
        .iter()
        .map(|status| ((*status).to_owned(), error.clone()));
    Value::Object(errors.collect())
}

fn openai_error() -> Value {
    let text = json!({"type": "string"});
    let maybe = json!({"type": ["string", "null"]});
    json!({"type": "object", "required": ["error"], "properties": {"error": {
        "type": "object",
        "required": ["message", "type", "param", "code"],
        "properties": {"message": text, "type": text, "param": maybe, "code": maybe},
    }}})
}

fn anthropic_error() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "required": ["type", "error"], "properties": {
        "type": {"const": "error"},
        "request_id": text,
        "error": {"type": "object", "required": ["type", "message"],
            "properties": {"type": text, "message": text}},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers stop at the first error, so a refused sample would hide fields from the document.
    #[test]
    fn samples_are_accepted() {
        for features in [Features::default(), Features::all()] {
            let check = |sample: Value, read: Read| {
                let recorder = Recorder::names();
                read(&Fields::root(sample.as_object().unwrap(), &recorder)).unwrap();
                let unknown = recorder.unknown_fields(sample.as_object().unwrap(), IGNORED_FIELDS);
                assert_eq!(unknown, None);
            };
            check(samples::chat(&features), &|body| {
                read_chat(body, &features).map(drop)
            });
            check(samples::completion(), &|body| {
                read_completion(body, &features).map(drop)
            });
            check(samples::responses(&features), &|body| {
                read_responses(body, &features).map(drop)
            });
            check(samples::messages(&features), &|body| {
                read_messages(body, &features, true).map(drop)
            });
            check(samples::tokenize(), &|body| read_tokenize(body).map(drop));
            check(samples::detokenize(), &|body| {
                read_detokenize(body).map(drop)
            });
        }
    }
}
