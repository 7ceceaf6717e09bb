//! The whole answer from its deltas.

use super::{Delta, FinishReason};

/// A complete call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatedCall {
    /// Unique within the response.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// Collects deltas into the message of a response that is not streamed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// All thoughts.
    pub reasoning: String,
    /// The whole answer.
    pub content: String,
    /// Complete calls in their order. A call that was cut off is left out: half a call must not
    /// be executed.
    pub tool_calls: Vec<AggregatedCall>,
    /// Set by the last delta.
    pub finish_reason: Option<FinishReason>,
    open: Option<AggregatedCall>,
}

impl Aggregate {
    /// Adds one delta.
    pub fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Content(text) => self.content.push_str(text),
            Delta::ToolCallStart { id, name, .. } => {
                self.open = Some(AggregatedCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                });
            }
            Delta::ToolCallArguments { fragment, .. } => {
                if let Some(call) = &mut self.open {
                    call.arguments.push_str(fragment);
                }
            }
            Delta::ToolCallEnd { .. } => self.tool_calls.extend(self.open.take()),
            Delta::Finish(reason) => self.finish_reason = Some(*reason),
        }
    }

    /// Adds all deltas.
    pub fn extend(&mut self, deltas: &[Delta]) {
        deltas.iter().for_each(|delta| self.add(delta));
    }
}
