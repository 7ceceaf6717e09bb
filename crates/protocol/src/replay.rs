//! A recorded model output, played through the server's own pipeline without a model: the same
//! readers, parser and writers. A fault in parsing can thus be attached to a report. Tags are
//! recognised by their text, since a file holds no token ids.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ApiError;
use crate::openai::Usage;
use crate::parser::{End, InitialState, OutputParser, ParserConfig};
use crate::reply::{Event, Step, StepParser};
use crate::request::Features;
use crate::stream::{ReasoningField, ResponseMeta};
use crate::surface::{Incoming, Surface};

/// A recorded request and what the model said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayFile {
    /// Body of the API request.
    pub request: Value,
    /// How the rendered prompt ended.
    pub template_state: TemplateState,
    /// The output; a piece is what one step delivered.
    pub pieces: Vec<String>,
    /// How the engine ended.
    pub finish_reason: EngineEnd,
}

/// How a rendered prompt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateState {
    /// Inside a think block.
    ThinkOpen,
    /// After a think block, or without one.
    ThinkClosed,
}

/// How the engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineEnd {
    /// At an end token.
    Stop,
    /// At the token limit.
    Length,
}

/// Writes a [`ReplayFile`] while the engine runs.
#[derive(Clone, Debug)]
pub struct Recording {
    request: Value,
    template_state: TemplateState,
    pieces: Vec<String>,
    /// Start of a character whose end a later step brings.
    partial: Vec<u8>,
}

impl Recording {
    /// A recording of the answer to a request whose rendered prompt ended in this state.
    pub fn new(request: Value, initial: InitialState) -> Self {
        Self {
            request,
            template_state: match initial {
                InitialState::ThinkOpen => TemplateState::ThinkOpen,
                _ => TemplateState::ThinkClosed,
            },
            pieces: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// Adds the bytes of one step. Characters stay whole: half of one waits for the next step.
    pub fn step(&mut self, bytes: &[u8]) {
        self.partial.extend(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.partial.len(),
        };
        if whole > 0 {
            let rest = self.partial.split_off(whole);
            let piece = std::mem::replace(&mut self.partial, rest);
            self.pieces
                .push(String::from_utf8_lossy(&piece).into_owned());
        }
    }

    /// The file.
    pub fn finish(self, end: End) -> ReplayFile {
        ReplayFile {
            request: self.request,
            template_state: self.template_state,
            pieces: self.pieces,
            finish_reason: match end {
                End::Stop => EngineEnd::Stop,
                End::Length => EngineEnd::Length,
            },
        }
    }
}

/// How to cut the output before it is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// As recorded.
    Recorded,
    /// One single piece.
    Whole,
    /// Pieces of this many bytes.
    Every(usize),
    /// Pieces of random lengths, the same ones for the same seed.
    Random(u64),
}

/// A text that stands for no [`Split`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a split is \"all\", a number of bytes from 1 on, or \"seed:\" and a number, but not {0:?}"
)]
pub struct UnknownSplit(String);

impl std::str::FromStr for Split {
    type Err = UnknownSplit;

    /// `all` is one single piece, `N` every N bytes, `seed:N` random.
    fn from_str(text: &str) -> Result<Self, UnknownSplit> {
        let unknown = || UnknownSplit(text.to_owned());
        if text == "all" {
            return Ok(Self::Whole);
        }
        if let Some(seed) = text.strip_prefix("seed:") {
            return seed.parse().map(Self::Random).map_err(|_| unknown());
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(unknown()),
            Ok(bytes) => Ok(Self::Every(bytes)),
        }
    }
}

/// What the server would have answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// HTTP status.
    pub status: u16,
    /// Body: JSON, or server-sent events.
    pub body: Vec<u8>,
}

/// Plays a file. `stream` stands above the request's own `stream`. Ids, times and prompt tokens
/// are not recorded: ids end in `replay`, the others are 0. Each recorded piece counts as one
/// token, however it is cut.
pub fn replay(file: &ReplayFile, surface: Surface, stream: bool, split: Split) -> Replayed {
    match try_replay(file, surface, stream, split) {
        Ok(body) => Replayed { status: 200, body },
        Err(error) => Replayed {
            status: error.status,
            body: surface.error_body(&error, None).to_string().into_bytes(),
        },
    }
}

fn try_replay(
    file: &ReplayFile,
    surface: Surface,
    stream: bool,
    split: Split,
) -> Result<Vec<u8>, ApiError> {
    let Value::Object(body) = &file.request else {
        return Err(ApiError::malformed_body("the recorded request is none"));
    };
    let mut body = body.clone();
    body.insert("stream".to_owned(), stream.into());
    let incoming = surface.read_body(&body, &Features::all())?;
    let usage = recorded_usage(file, &incoming, surface);
    let mut reply = incoming.reply(meta(&incoming, surface));
    let pieces = split.cut(&file.pieces);
    let mut events = Vec::new();
    if stream {
        events.extend(reply.start(Usage::default()));
    }
    for choice in 0..incoming.generation().choices() {
        let mut parser = StepParser::new(config(file, &incoming, surface));
        let mut play = |step: &Step| match stream {
            true => events.extend(reply.step(choice, step, Usage::default())),
            false => reply.collect(choice, step),
        };
        for piece in &pieces {
            let mut step = Step::default();
            parser.push(piece, None, None, &mut step);
            play(&step);
            if parser.stopped() {
                break;
            }
        }
        let mut last = Step::default();
        parser.end(file.finish_reason.into(), &mut last);
        play(&last);
    }
    if !stream {
        return Ok(reply.whole(usage).into_bytes());
    }
    events.extend(reply.end(usage));
    let text: String = events.iter().map(Event::to_string).collect();
    Ok(text.into_bytes())
}

impl From<EngineEnd> for End {
    fn from(end: EngineEnd) -> Self {
        match end {
            EngineEnd::Stop => Self::Stop,
            EngineEnd::Length => Self::Length,
        }
    }
}

fn meta(incoming: &Incoming, surface: Surface) -> ResponseMeta {
    let model = incoming.generation().model.as_deref();
    ResponseMeta {
        id: format!("{}replay", surface.id_prefix()),
        created: 0,
        model: model.unwrap_or("replay").to_owned(),
        system_fingerprint: "replay".to_owned(),
        reasoning_field: ReasoningField::default(),
    }
}

fn config(file: &ReplayFile, incoming: &Incoming, surface: Surface) -> ParserConfig {
    let generation = incoming.generation();
    ParserConfig {
        initial: match (generation.initial_state(""), file.template_state) {
            (InitialState::ThinkClosed, TemplateState::ThinkOpen) => InitialState::ThinkOpen,
            (initial, _) => initial,
        },
        tools: generation.active_tools().to_vec(),
        parallel_tool_calls: generation.parallel_tool_calls,
        stop: generation.stop.clone(),
        tag_ids: None,
        call_id_prefix: format!("{}replay_", surface.call_id_prefix()),
    }
}

/// Usage of the output as recorded.
fn recorded_usage(file: &ReplayFile, incoming: &Incoming, surface: Surface) -> Usage {
    let mut parser = OutputParser::new(config(file, incoming, surface));
    let mut tokens = 0;
    for piece in &file.pieces {
        parser.push(piece.as_bytes(), None);
        tokens += 1;
        if parser.stopped() {
            break;
        }
    }
    let choices = incoming.generation().choices();
    Usage::new(0, tokens * choices).with_reasoning(parser.reasoning_tokens() * choices)
}

impl Split {
    /// The pieces of an output cut in this way.
    pub fn cut(self, pieces: &[String]) -> Vec<Vec<u8>> {
        let whole = || pieces.concat().into_bytes();
        match self {
            Self::Recorded => pieces.iter().map(|p| p.clone().into_bytes()).collect(),
            Self::Whole => vec![whole()],
            Self::Every(bytes) => whole().chunks(bytes.max(1)).map(<[u8]>::to_vec).collect(),
            Self::Random(seed) => cut_at_random(&whole(), seed),
        }
    }
}

/// Mostly short pieces, now and then a long one, as steps with drafts bring them.
fn cut_at_random(mut rest: &[u8], mut state: u64) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let random = split_mix(&mut state);
        let most = if random & 7 == 0 { 64 } else { 8 };
        let length = 1 + (random >> 8) as usize % most;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
