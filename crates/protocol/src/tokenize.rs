//! `POST /tokenize` and `/detokenize`, in vLLM's form and in llama.cpp's.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::{Fields, integral, parse_body};
use crate::messages;
use crate::recorder::Recorder;
use crate::request::{Features, GenerationRequest, read_tools};

/// Most token ids in a request to detokenize.
const MAX_TOKENS: usize = 1 << 20;

/// What to tokenize.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeInput {
    /// A text as it stands.
    Text(String),
    /// A conversation, to be rendered as for an answer.
    Chat(Box<GenerationRequest>),
}

/// A checked request to tokenize.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizeRequest {
    /// Requested model; None is the one served.
    pub model: Option<String>,
    /// What to tokenize.
    pub input: TokenizeInput,
    /// End the rendered conversation with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Read control tokens spelled in a text as these tokens.
    pub parse_special: bool,
    /// Return the text of each token.
    pub with_texts: bool,
}

impl TokenizeRequest {
    /// Reads and checks a request body: `prompt` or `content`, or `messages`.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8]) -> Result<Self, ApiError> {
        Self::from_body(&parse_body(body)?)
    }

    fn from_body(body: &Map<String, Value>) -> Result<Self, ApiError> {
        read_tokenize(&Fields::root(body, &Recorder::names()))
    }
}

pub(crate) fn read_tokenize(body: &Fields) -> Result<TokenizeRequest, ApiError> {
    // The model has no tokens that are added around a text.
    body.boolean("add_special_tokens")?;
    body.boolean("add_special")?;
    if body.boolean("continue_final_message")? == Some(true) {
        let message = "continue_final_message is not supported; leave it out or set it to false";
        let name = "continue_final_message";
        return Err(ApiError::unsupported_parameter(name, message));
    }
    let prompt = body.string("prompt")?;
    let text = match body.string("content")? {
        Some(content) => Some(content),
        None => prompt,
    };
    let input = match text {
        Some(text) => TokenizeInput::Text(text.to_owned()),
        None if body.peek("messages").is_some() => TokenizeInput::Chat(Box::new(read_chat(body)?)),
        None => return Err(ApiError::missing("prompt")),
    };
    let with_pieces = body.boolean("with_pieces")?.unwrap_or(false);
    Ok(TokenizeRequest {
        model: body.string("model")?.map(str::to_owned),
        input,
        add_generation_prompt: body.boolean("add_generation_prompt")?.unwrap_or(true),
        parse_special: body.boolean("parse_special")?.unwrap_or(true),
        with_texts: body.boolean("return_token_strs")?.unwrap_or(with_pieces),
    })
}

fn read_chat(body: &Fields) -> Result<GenerationRequest, ApiError> {
    let features = Features::all();
    let mut notices = Vec::new();
    let messages = messages::parse(body, &mut notices)?;
    let mut request = GenerationRequest::read_for_prompt(body, &features)?;
    request.set_messages(messages);
    request.tools = read_tools(body, &features)?.functions;
    Ok(request)
}

/// Body of `/tokenize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TokenizeResponse {
    /// Number of tokens.
    pub count: usize,
    /// Longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Texts of the tokens, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_strs: Option<Vec<String>>,
}

impl TokenizeResponse {
    /// The body for these ids.
    pub fn new(tokens: Vec<u32>, token_strs: Option<Vec<String>>, max_model_len: usize) -> Self {
        Self {
            count: tokens.len(),
            max_model_len,
            tokens,
            token_strs,
        }
    }
}

/// A checked request to detokenize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetokenizeRequest {
    /// Requested model; None is the one served.
    pub model: Option<String>,
    /// Token ids, not yet checked against the vocabulary.
    pub tokens: Vec<u32>,
}

impl DetokenizeRequest {
    /// Reads and checks a request body.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8]) -> Result<Self, ApiError> {
        let body = parse_body(body)?;
        read_detokenize(&Fields::root(&body, &Recorder::names()))
    }
}

pub(crate) fn read_detokenize(body: &Fields) -> Result<DetokenizeRequest, ApiError> {
    let list = body.required_list("tokens")?;
    if list.len() > MAX_TOKENS {
        let message = format!("tokens has {} ids; the limit is {MAX_TOKENS}", list.len());
        return Err(ApiError::invalid_value("tokens", message));
    }
    let tokens = list.iter().enumerate().map(|(i, id)| {
        let path = format!("tokens[{i}]");
        let Value::Number(number) = id else {
            return Err(ApiError::wrong_type(&path, "a token id", id));
        };
        let id = integral(number).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| ApiError::invalid_value(&path, format!("{path} is no token id")))
    });
    Ok(DetokenizeRequest {
        model: body.string("model")?.map(str::to_owned),
        tokens: tokens.collect::<Result<_, _>>()?,
    })
}

/// Body of `/detokenize`: the text under both names in use. Bytes that are no text are U+FFFD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DetokenizeResponse {
    /// The text.
    pub prompt: String,
    /// The text.
    pub content: String,
}

impl DetokenizeResponse {
    /// The body for this text.
    pub fn new(text: String) -> Self {
        Self {
            prompt: text.clone(),
            content: text,
        }
    }
}
