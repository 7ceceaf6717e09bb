//! The messages request.

use serde_json::{Map, Value};

use super::content::{read_list, read_system};
use crate::error::{ApiError, clipped};
use crate::fields::{Fields, parse_body};
use crate::recorder::Recorder;
use crate::request::{
    Features, GenerationRequest, IGNORED_FIELDS, Tool, Tools, check_tool_name, read_format,
    read_schema, read_stop, read_tool_choice,
};
use crate::responses::definition;
use crate::surface::Surface;

/// Fields of this surface without effect on the answer, beside [`IGNORED_FIELDS`].
const ALSO_IGNORED: &[&str] = &["betas", "container", "context_management", "inference_geo"];

/// A checked messages request.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagesRequest {
    /// The request that all surfaces map to.
    pub generation: GenerationRequest,
}

impl MessagesRequest {
    /// Reads and checks the body of a request for an answer. Unknown fields are ignored, null
    /// means absent.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8], features: &Features) -> Result<Self, ApiError> {
        Self::from_body(&parse_body(body)?, features)
    }

    /// The same for counting tokens, where `max_tokens` is not needed.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn for_counting(body: &[u8], features: &Features) -> Result<Self, ApiError> {
        Self::read(&parse_body(body)?, features, false)
    }

    pub(crate) fn from_body(
        body: &Map<String, Value>,
        features: &Features,
    ) -> Result<Self, ApiError> {
        Self::read(body, features, true)
    }

    fn read(
        body: &Map<String, Value>,
        features: &Features,
        for_answer: bool,
    ) -> Result<Self, ApiError> {
        let recorder = Recorder::names();
        let mut request = read_messages(&Fields::root(body, &recorder), features, for_answer)?;
        let ignored = [IGNORED_FIELDS, ALSO_IGNORED].concat();
        let unknown = recorder.unknown_fields(body, &ignored);
        request.generation.notices.extend(unknown);
        Ok(request)
    }
}

pub(crate) fn read_messages(
    body: &Fields,
    features: &Features,
    for_answer: bool,
) -> Result<MessagesRequest, ApiError> {
    let mut notices = Vec::new();
    let mut messages = read_system(body)?;
    messages.extend(read_list(body, &mut notices)?);
    let mut generation = GenerationRequest::read_common(body, features, Surface::Messages)?;
    generation.notices.extend(notices);
    generation.set_messages(messages);
    if for_answer && generation.sampling.max_tokens.is_none() {
        return Err(ApiError::missing("max_tokens"));
    }
    // Clients that do not ask for thoughts do not expect any.
    let thinks = *generation.thinking.enable.get_or_insert(false);
    if generation.ends_in_answer() {
        if thinks {
            let message = "thinking has no place: the answer goes on with the last message, which is the assistant's";
            return Err(ApiError::invalid_value("thinking", message));
        }
        generation.continue_final_message = features.continue_final_message;
    }
    generation.stop = read_stop(body, "stop_sequences")?;
    generation.constraint = read_format(body, features, Surface::Messages)?;
    let tools = read_tools(body, features)?;
    let choice = read_tool_choice(body, &tools.functions, features)?;
    generation.set_tools(tools, choice)?;
    if let Some(Value::Object(_)) = body.peek("tool_choice")
        && let Some(choice) = body.object("tool_choice")?
    {
        let alone = choice
            .boolean("disable_parallel_tool_use")?
            .unwrap_or(false);
        generation.parallel_tool_calls = !alone;
    }
    Ok(MessagesRequest { generation })
}

/// Reads `tools`. Kinds that are defined elsewhere (`web_search_…`, `bash_…`) are left out: the
/// model does not know them.
fn read_tools(body: &Fields, features: &Features) -> Result<Tools, ApiError> {
    let mut tools = Tools::default();
    for fields in Tools::entries(body)? {
        let kind = fields.string("type")?.unwrap_or("custom");
        if !matches!(kind, "custom" | "function") {
            let path = fields.path_of("type");
            let kind = clipped(&format!("{kind:?}"));
            let notice = format!("{path} is {kind}, a tool that is not offered here");
            tools.notices.push(notice);
            continue;
        }
        let name = fields.required_string("name")?;
        let path = fields.path_of("name");
        check_tool_name(name, &path)?;
        let description = fields.string("description")?;
        let (parameters, strict) =
            read_schema(&fields, "input_schema", features, &mut tools.notices)?;
        let definition = definition(name, description, &parameters);
        let tool = Tool {
            name: name.to_owned(),
            parameters,
            strict,
            definition,
        };
        tools.add(tool, &path)?;
    }
    Ok(tools)
}
