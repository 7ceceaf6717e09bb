//! The responses request.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::items::read_items;
use crate::error::{ApiError, clipped};
use crate::fields::{Fields, parse_body};
use crate::messages::{Message, Role};
use crate::recorder::Recorder;
use crate::request::{
    Features, GenerationRequest, IGNORED_FIELDS, MAX_TOP_LOGPROBS, Tool, Tools, check_tool_name,
    read_format, read_schema, read_stop, read_tool_choice,
};
use crate::surface::Surface;

/// Include that asks for logprobs.
const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

/// Fields of the request that the response repeats as they were sent, and their defaults in JSON.
const REPEATED: &[(&str, &str)] = &[
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("reasoning", "{\"effort\":null,\"summary\":null}"),
    ("service_tier", "\"default\""),
    ("store", "true"),
    ("temperature", "null"),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_p", "null"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
];

/// A checked responses request.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsesRequest {
    /// The request that all surfaces map to.
    pub generation: GenerationRequest,
    /// A stored response that this one goes on from; see [`continue_from`](Self::continue_from).
    pub previous_response_id: Option<String>,
    /// Keep the response for later requests.
    pub store: bool,
    instructions: Option<String>,
    input: Vec<Value>,
    repeated: Map<String, Value>,
    forms: HashMap<String, ToolForm>,
}

/// How a tool was declared, where it was not as a plain function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolForm {
    /// In a namespace of this name.
    InNamespace(String),
    /// As a custom tool, which takes text.
    Custom,
}

/// What a server keeps of a response so that a later one can go on from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredResponse {
    /// Input items and output items of the conversation so far, instructions left out.
    pub items: Vec<Value>,
}

impl ResponsesRequest {
    /// Reads and checks a request body. Unknown fields are ignored, null means absent.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8], features: &Features) -> Result<Self, ApiError> {
        Self::from_body(&parse_body(body)?, features)
    }

    pub(crate) fn from_body(
        body: &Map<String, Value>,
        features: &Features,
    ) -> Result<Self, ApiError> {
        let recorder = Recorder::names();
        let mut request = read_responses(&Fields::root(body, &recorder), features)?;
        let unknown = recorder.unknown_fields(body, IGNORED_FIELDS);
        request.generation.notices.extend(unknown);
        Ok(request)
    }

    /// Puts the conversation of a stored response before the new input. The instructions of
    /// earlier requests do not carry over.
    ///
    /// # Errors
    /// 400 if the stored items cannot be read.
    pub fn continue_from(&mut self, stored: &StoredResponse) -> Result<(), ApiError> {
        let joined = stored.items.iter().chain(&self.input).cloned().collect();
        let body = Map::from_iter([("input".to_owned(), Value::Array(joined))]);
        let recorder = Recorder::names();
        let fields = Fields::root(&body, &recorder).objects("input")?;
        let messages = read_items(&fields, &mut Vec::new())?;
        let messages = with_instructions(self.instructions.as_deref(), messages);
        self.generation.set_messages(messages);
        Ok(())
    }

    /// What to keep of the finished response; `response` is its JSON body.
    pub fn to_stored(&self, previous: Option<&StoredResponse>, response: &Value) -> StoredResponse {
        let before = previous.into_iter().flat_map(|stored| &stored.items);
        let output = response["output"].as_array().into_iter().flatten();
        StoredResponse {
            items: before.chain(&self.input).chain(output).cloned().collect(),
        }
    }

    /// Tools that are no plain functions, by name.
    pub(super) fn tool_forms(&self) -> &HashMap<String, ToolForm> {
        &self.forms
    }

    /// Fields of the request that the response repeats.
    pub(super) fn repeated(&self) -> &Map<String, Value> {
        &self.repeated
    }
}

pub(crate) fn read_responses(
    body: &Fields,
    features: &Features,
) -> Result<ResponsesRequest, ApiError> {
    refuse_state(body, features)?;
    let mut generation = GenerationRequest::read_common(body, features, Surface::Responses)?;
    let previous_response_id = body.string("previous_response_id")?.map(str::to_owned);
    let input = read_input(body)?;
    if input.is_empty() && previous_response_id.is_none() {
        return Err(ApiError::invalid_value("input", "input is empty"));
    }
    let instructions = body.string("instructions")?.map(str::to_owned);
    let messages = match body.union("input", &["string", "array"]) {
        Some(Value::Array(_)) => read_items(&body.objects("input")?, &mut generation.notices)?,
        Some(Value::String(text)) => vec![Message::text(Role::User, text)],
        _ => Vec::new(),
    };
    if messages.is_empty() && previous_response_id.is_none() {
        let message = "input has no item that can be answered";
        return Err(ApiError::invalid_value("input", message));
    }
    generation.set_messages(with_instructions(instructions.as_deref(), messages));
    generation.logprobs = read_logprobs(body, features)?;
    generation.stop = read_stop(body, "stop")?;
    let limit = body.integer("max_output_tokens", 1..=i64::from(u32::MAX))?;
    if let Some(limit) = limit {
        generation.sampling.max_tokens = Some(limit as usize);
    }
    generation.constraint = read_format(body, features, Surface::Responses)?;
    let (tools, forms) = read_tools(body, features)?;
    let choice = read_tool_choice(body, &tools.functions, features)?;
    generation.set_tools(tools, choice)?;
    generation.parallel_tool_calls = body.boolean("parallel_tool_calls")?.unwrap_or(true);
    body.word("truncation", &["disabled", "auto"])?;
    Ok(ResponsesRequest {
        generation,
        previous_response_id,
        store: body.boolean("store")?.unwrap_or(true) && features.stored_responses,
        instructions,
        input,
        repeated: repeated(body, features),
        forms,
    })
}

/// Refuses what needs state on the server that is not there.
fn refuse_state(body: &Fields, features: &Features) -> Result<(), ApiError> {
    let unsupported = |name: &str, message: &str| -> Result<(), ApiError> {
        Err(ApiError::unsupported_parameter(name, message))
    };
    if body.string("previous_response_id")?.is_some() && !features.stored_responses {
        let message = "responses are not kept here; send the whole conversation as input";
        return unsupported("previous_response_id", message);
    }
    if body
        .union("conversation", &["string", "object", "null"])
        .is_some()
    {
        let message = "conversations are not kept here; send the whole conversation as input";
        return unsupported("conversation", message);
    }
    if body.boolean("background")? == Some(true) {
        let message = "running in the background is not supported; leave it out";
        return unsupported("background", message);
    }
    if body.object("prompt")?.is_some() {
        return unsupported(
            "prompt",
            "stored prompts are not supported; send instructions",
        );
    }
    Ok(())
}

/// The input as items; a text is the message of a user.
fn read_input(body: &Fields) -> Result<Vec<Value>, ApiError> {
    match body.union("input", &["string", "array"]) {
        None => match body.peek("previous_response_id") {
            Some(_) => Ok(Vec::new()),
            None => Err(ApiError::missing("input")),
        },
        Some(Value::String(text)) => Ok(vec![json!({"role": "user", "content": text})]),
        Some(Value::Array(items)) => Ok(items.clone()),
        Some(other) => {
            let expected = "a string or a list of items";
            Err(ApiError::wrong_type("input", expected, other))
        }
    }
}

fn with_instructions(instructions: Option<&str>, messages: Vec<Message>) -> Vec<Message> {
    let system = instructions
        .filter(|text| !text.is_empty())
        .map(|text| Message::text(Role::System, text));
    system.into_iter().chain(messages).collect()
}

/// `include` and `top_logprobs`. Other includes ask for what is always there, or for results of
/// tools that do not exist here.
fn read_logprobs(body: &Fields, features: &Features) -> Result<Option<usize>, ApiError> {
    let mut wanted = false;
    for (i, include) in body.list("include")?.unwrap_or_default().iter().enumerate() {
        match include.as_str() {
            Some(name) => wanted |= name == INCLUDE_LOGPROBS,
            None => {
                let path = format!("include[{i}]");
                return Err(ApiError::wrong_type(&path, "a string", include));
            }
        }
    }
    let top = body.integer("top_logprobs", 0..=MAX_TOP_LOGPROBS as i64)?;
    let top = top.unwrap_or(0) as usize;
    if !features.logprobs && (wanted || top > 0) {
        let param = if wanted { "include" } else { "top_logprobs" };
        let message = "logprobs are not supported; leave them out";
        return Err(ApiError::unsupported_parameter(param, message));
    }
    Ok((wanted || top > 0).then_some(top))
}

/// Reads `tools`. A namespace stands for the functions in it; a custom tool is a function of one
/// text. Tools that would run on the server are left out: there are none.
fn read_tools(
    body: &Fields,
    features: &Features,
) -> Result<(Tools, HashMap<String, ToolForm>), ApiError> {
    let mut tools = Tools::default();
    let mut forms = HashMap::new();
    for fields in Tools::entries(body)? {
        match fields.string("type")?.unwrap_or("function") {
            "namespace" => {
                let namespace = fields.string("name")?.unwrap_or_default();
                for inner in fields.objects("tools")? {
                    if inner.string("type")?.unwrap_or("function") == "function" {
                        let name = add_function(&inner, features, &mut tools)?;
                        forms.insert(name, ToolForm::InNamespace(namespace.to_owned()));
                    }
                }
            }
            "function" => {
                add_function(&fields, features, &mut tools)?;
            }
            "custom" => {
                let name = add_custom(&fields, &mut tools)?;
                forms.insert(name, ToolForm::Custom);
            }
            other => {
                let path = fields.path_of("type");
                let other = clipped(&format!("{other:?}"));
                let notice = format!("{path} is {other}, a tool that is not offered here");
                tools.notices.push(notice);
            }
        }
    }
    Ok((tools, forms))
}

fn add_function(
    fields: &Fields,
    features: &Features,
    tools: &mut Tools,
) -> Result<String, ApiError> {
    // Some clients send chat's form here.
    let nested = fields.object("function")?;
    let fields = nested.as_ref().unwrap_or(fields);
    let name = fields.required_string("name")?;
    let path = fields.path_of("name");
    check_tool_name(name, &path)?;
    let (parameters, strict) = read_schema(fields, "parameters", features, &mut tools.notices)?;
    let description = fields.string("description")?;
    let definition = definition(name, description, &parameters);
    let tool = Tool {
        name: name.to_owned(),
        parameters,
        strict,
        definition,
    };
    tools.add(tool, &path)?;
    Ok(name.to_owned())
}

fn add_custom(fields: &Fields, tools: &mut Tools) -> Result<String, ApiError> {
    let name = fields.required_string("name")?;
    let path = fields.path_of("name");
    check_tool_name(name, &path)?;
    if fields.object("format")?.is_some() {
        tools
            .notices
            .push(format!("{path}: the format of its input is not enforced"));
    }
    let parameters = json!({
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    });
    let definition = definition(name, fields.string("description")?, &parameters);
    let tool = Tool {
        name: name.to_owned(),
        parameters,
        strict: false,
        definition,
    };
    tools.add(tool, &path)?;
    Ok(name.to_owned())
}

/// A tool as the chat template shows it.
pub(crate) fn definition(name: &str, description: Option<&str>, parameters: &Value) -> Value {
    let mut function = Map::from_iter([("name".to_owned(), Value::from(name))]);
    if let Some(description) = description {
        function.insert("description".to_owned(), description.into());
    }
    if !parameters.is_null() {
        function.insert("parameters".to_owned(), parameters.clone());
    }
    json!({"type": "function", "function": function})
}

fn repeated(body: &Fields, features: &Features) -> Map<String, Value> {
    let fields = REPEATED.iter().map(|(name, default)| {
        let value = body.peek(name).cloned().unwrap_or_else(|| {
            serde_json::from_str(default).expect("defaults are JSON: this is a bug")
        });
        ((*name).to_owned(), value)
    });
    let mut repeated: Map<String, Value> = fields.collect();
    if !features.stored_responses {
        repeated["store"] = false.into();
    }
    repeated
}
