//! `volley chat`.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use serde_json::{Value, json};
use volley_protocol::openai::ChatRequest;
use volley_protocol::parser::Aggregate;
use volley_server::ServedModel;

use crate::args::{ModelArgs, SamplingArgs};
use crate::error::Result;
use crate::generate::chat_body;
use crate::load::{Scheduling, load};
use crate::terminal::{Printer, remark, summary};

/// `volley chat`.
#[derive(Args, Clone, Debug)]
pub struct ChatArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// System message.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Answer without thinking.
    #[arg(long)]
    pub no_thinking: bool,
}

const HELP: &str = "/reset forgets the conversation, /think on|off, /quit ends";

/// Chats until the input ends. Without a terminal each line of stdin is one message.
pub fn run(args: &ChatArgs) -> Result<()> {
    let loaded = load(&args.model, &[], Scheduling::ALONE)?;
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        for (label, text) in &loaded.facts {
            remark(&format!("{label}: {text}"));
        }
        remark(HELP);
    }
    let mut conversation = Conversation::new(args);
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if interactive {
            let mut out = std::io::stdout();
            write!(out, "> ")?;
            out.flush()?;
        }
        let Some(line) = lines.next().transpose()? else {
            return Ok(());
        };
        match Input::of(&line) {
            Input::Nothing => {}
            Input::Quit => return Ok(()),
            Input::Reset => {
                conversation.reset();
                remark("forgotten");
            }
            Input::Think(on) => {
                conversation.thinking = on;
                remark(if on { "thinking" } else { "not thinking" });
            }
            Input::Unknown => remark(HELP),
            Input::Message(text) => {
                if let Err(error) = conversation.ask(&loaded.model, text) {
                    if error.is_closed_pipe() || !interactive {
                        return Err(error);
                    }
                    remark(&error.to_string());
                }
            }
        }
    }
}

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Nothing,
    Message(&'a str),
    Reset,
    Quit,
    Think(bool),
    Unknown,
}

impl<'a> Input<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        match line {
            "" => Self::Nothing,
            "/reset" => Self::Reset,
            "/quit" | "/exit" => Self::Quit,
            "/think on" => Self::Think(true),
            "/think off" => Self::Think(false),
            // A path or a comment may begin with a slash too; a single word is a mistyped command.
            _ if line.starts_with('/') && line.split(' ').count() <= 2 => Self::Unknown,
            _ => Self::Message(line),
        }
    }
}

/// Messages so far.
struct Conversation<'a> {
    messages: Vec<Value>,
    thinking: bool,
    system: Option<&'a str>,
    sampling: &'a SamplingArgs,
}

impl<'a> Conversation<'a> {
    fn new(args: &'a ChatArgs) -> Self {
        let mut conversation = Self {
            messages: Vec::new(),
            thinking: !args.no_thinking,
            system: args.system.as_deref(),
            sampling: &args.sampling,
        };
        conversation.reset();
        conversation
    }

    fn reset(&mut self) {
        let system = self.system.iter();
        self.messages = system
            .map(|text| json!({"role": "system", "content": text}))
            .collect();
    }

    /// Answers one message, and keeps both if all went well.
    fn ask(&mut self, model: &ServedModel, text: &str) -> Result<()> {
        let mut messages = self.messages.clone();
        messages.push(json!({"role": "user", "content": text}));
        let body = chat_body(&messages, self.sampling, self.thinking).to_string();
        let request = ChatRequest::from_json(body.as_bytes())?;
        let mut generation = model.start(model.prepare(request, "call_".into())?)?;
        let mut printer = Printer::stdout();
        let mut answer = Aggregate::default();
        while let Some(deltas) = generation.next_blocking() {
            let deltas = deltas?;
            answer.extend(&deltas);
            deltas.iter().try_for_each(|delta| printer.print(delta))?;
        }
        if let Some(usage) = generation.timings() {
            remark(&summary(&usage));
        }
        messages.push(json!({
            "role": "assistant",
            "content": answer.content,
            "reasoning_content": answer.reasoning,
        }));
        self.messages = messages;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        for (line, input) in [
            ("  ", Input::Nothing),
            ("hello", Input::Message("hello")),
            (" hello there\n", Input::Message("hello there")),
            ("/reset", Input::Reset),
            ("/quit", Input::Quit),
            ("/think on", Input::Think(true)),
            ("/think off", Input::Think(false)),
            ("/think maybe", Input::Unknown),
            ("/what", Input::Unknown),
            (
                "/etc/hosts is a file",
                Input::Message("/etc/hosts is a file"),
            ),
        ] {
            assert_eq!(Input::of(line), input, "{line:?}");
        }
    }
}
