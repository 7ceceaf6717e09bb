//! Answers in the terminal.

use std::io::{IsTerminal, Write};

use volley_engine::Usage;
use volley_protocol::parser::Delta;

use crate::error::Result;

const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

/// As `println`, but a reader that has gone, as `head` does, is no panic: a measurement goes on, and
/// its record is written.
macro_rules! outln {
    ($($part:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}
pub(crate) use outln;

/// Writes the deltas of an answer as they come.
pub struct Printer<W> {
    out: W,
    colours: bool,
    /// Dimmed thoughts are being written.
    thinking: bool,
    /// There were thoughts.
    thought: bool,
    /// Something of the answer, not of the thoughts, is out.
    answered: bool,
}

impl Printer<std::io::Stdout> {
    /// A printer on stdout. Thoughts are dimmed in a terminal, and left out elsewhere.
    pub fn stdout() -> Self {
        let out = std::io::stdout();
        Self::new(out.is_terminal(), out)
    }
}

impl<W: Write> Printer<W> {
    fn new(colours: bool, out: W) -> Self {
        Self {
            out,
            colours,
            thinking: false,
            thought: false,
            answered: false,
        }
    }

    /// Writes one delta.
    pub fn print(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Reasoning(text) => {
                self.thought = true;
                if self.colours {
                    if !self.thinking {
                        self.thinking = true;
                        write!(self.out, "{DIM}")?;
                    }
                    write!(self.out, "{text}")?;
                }
            }
            Delta::Content(text) => {
                self.end_thinking("\n\n")?;
                self.answered = true;
                write!(self.out, "{text}")?;
            }
            Delta::ToolCallStart { name, .. } => {
                self.end_thinking("\n\n")?;
                let gap = if self.answered { "\n" } else { "" };
                self.answered = true;
                write!(self.out, "{gap}{name} ")?;
            }
            Delta::ToolCallArguments { fragment, .. } => write!(self.out, "{fragment}")?,
            Delta::ToolCallEnd { .. } => {}
            Delta::Finish(_) => {
                self.end_thinking("")?;
                writeln!(self.out)?;
            }
        }
        self.out.flush()?;
        Ok(())
    }

    /// Whether nothing was shown of what was said.
    pub fn hides_all(&self) -> bool {
        !self.colours && self.thought && !self.answered
    }

    fn end_thinking(&mut self, gap: &str) -> Result<()> {
        if std::mem::take(&mut self.thinking) {
            write!(self.out, "{RESET}{gap}")?;
        }
        Ok(())
    }
}

/// Speed and acceptance of an answer, for people.
pub fn summary(usage: &Usage) -> String {
    let mut text = format!("{} tokens", usage.completion_tokens);
    if let Some(speed) = tokens_per_second(usage) {
        text += &format!(", {speed:.1} tokens/s");
    }
    if usage.drafted_tokens > 0
        && let Some(length) = acceptance_length(usage)
    {
        text += &format!(", acceptance length {length:.2}");
    }
    text
}

/// Tokens per second after the first token.
pub fn tokens_per_second(usage: &Usage) -> Option<f64> {
    let after_first = usage.completion_tokens.checked_sub(1).filter(|n| *n > 0)?;
    (usage.decode_ms > 0.0).then(|| after_first as f64 / usage.decode_ms * 1e3)
}

/// Mean tokens per target pass after the prompt, bonus token included.
pub fn acceptance_length(usage: &Usage) -> Option<f64> {
    let tokens = usage.accepted_tokens + usage.steps;
    (usage.steps > 0).then(|| tokens as f64 / usage.steps as f64)
}

/// The same, dimmed on a terminal, to stderr.
pub fn remark(text: &str) {
    match std::io::stderr().is_terminal() {
        true => say(&format!("{DIM}[{text}]{RESET}")),
        false => say(&format!("[{text}]")),
    }
}

/// A line on stderr, whether or not anybody reads it.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use volley_protocol::parser::FinishReason;

    use super::*;

    fn printed(colours: bool) -> String {
        let mut printer = Printer::new(colours, Vec::new());
        for delta in [
            Delta::Reasoning("so ".into()),
            Delta::Reasoning("hm".into()),
            Delta::Content("Yes".into()),
            Delta::Content(".".into()),
            Delta::Finish(FinishReason::Stop),
        ] {
            printer.print(&delta).unwrap();
        }
        String::from_utf8(printer.out).unwrap()
    }

    #[test]
    fn thoughts_are_dim_in_a_terminal_and_absent_elsewhere() {
        assert_eq!(printed(true), "\u{1b}[2mso hm\u{1b}[0m\n\nYes.\n");
        assert_eq!(printed(false), "Yes.\n");
    }

    #[test]
    fn answers_without_a_visible_word_are_noticed() {
        let hides = |colours: bool, deltas: &[Delta]| {
            let mut printer = Printer::new(colours, Vec::new());
            deltas
                .iter()
                .for_each(|delta| printer.print(delta).unwrap());
            printer.hides_all()
        };
        let thought = Delta::Reasoning("hm".into());
        let end = Delta::Finish(FinishReason::Length);
        assert!(hides(false, &[thought.clone(), end.clone()]));
        assert!(!hides(true, &[thought.clone(), end.clone()]));
        assert!(!hides(
            false,
            &[thought, Delta::Content("Yes".into()), end.clone()]
        ));
        assert!(!hides(false, &[end]));
    }

    #[test]
    fn speed_counts_from_the_first_token() {
        let usage = Usage {
            completion_tokens: 101,
            steps: 20,
            drafted_tokens: 300,
            accepted_tokens: 80,
            decode_ms: 2000.0,
            ..Usage::default()
        };
        let text = "101 tokens, 50.0 tokens/s, acceptance length 5.00";
        assert_eq!(summary(&usage), text);
        let one = Usage {
            completion_tokens: 1,
            ..Usage::default()
        };
        assert_eq!(summary(&one), "1 tokens");
    }
}
