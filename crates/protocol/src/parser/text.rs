//! Sinks for text: thoughts and answer are trimmed, the answer also ends at stop strings.

/// Text without white space at its ends. White space is held back until text follows it.
#[derive(Debug, Default)]
pub(super) struct Trimmed {
    started: bool,
    held: String,
    /// Bytes left out before the text.
    skipped: usize,
    /// Nothing is trimmed after all.
    verbatim: bool,
}

impl Trimmed {
    /// Text that is not trimmed.
    pub(super) fn verbatim() -> Self {
        Self {
            verbatim: true,
            ..Self::default()
        }
    }

    /// Text that has begun elsewhere: only its end is trimmed.
    pub(super) fn in_text() -> Self {
        Self {
            started: true,
            ..Self::default()
        }
    }

    pub(super) fn started(&self) -> bool {
        self.started
    }

    /// Text that `text` makes certain.
    pub(super) fn feed(&mut self, text: &str) -> String {
        if self.verbatim {
            return text.to_owned();
        }
        let text = self.after_start(text);
        if text.is_empty() {
            return String::new();
        }
        self.started = true;
        let body = text.trim_end();
        if body.is_empty() {
            self.held.push_str(text);
            return String::new();
        }
        let released = std::mem::take(&mut self.held) + body;
        self.held.push_str(&text[body.len()..]);
        released
    }

    /// `text` without the white space that comes before all text.
    fn after_start<'t>(&mut self, text: &'t str) -> &'t str {
        if self.started || self.verbatim {
            return text;
        }
        let start = text.trim_start();
        self.skipped += text.len() - start.len();
        start
    }

    /// The white space at the end, for text that was cut off rather than ended.
    pub(super) fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The answer: trimmed, and ended before the first stop string.
///
/// The stop string whose end comes first wins, the longer one of two that end together: this is
/// the only rule that does not depend on how the output is cut into pieces.
#[derive(Debug)]
pub(super) struct Answer {
    stops: Vec<String>,
    /// Text that may turn out to be the start of a stop string.
    pending: String,
    text: Trimmed,
    hit: Option<String>,
}

impl Answer {
    pub(super) fn new(stops: Vec<String>, text: Trimmed) -> Self {
        Self {
            stops,
            pending: String::new(),
            text,
            hit: None,
        }
    }

    /// The stop string that was hit.
    pub(super) fn hit(&self) -> Option<&str> {
        self.hit.as_deref()
    }

    /// Text that `text` makes certain. White space before the answer is not part of it, so stop
    /// strings do not see it.
    pub(super) fn feed(&mut self, text: &str) -> String {
        let text = match self.pending.is_empty() {
            true => self.text.after_start(text),
            false => text,
        };
        self.pending.push_str(text);
        if let Some((start, stop)) = self.first_stop() {
            self.hit = Some(stop);
            let before = self.pending[..start].to_owned();
            self.pending.clear();
            return self.text.feed(&before) + &self.text.take_held();
        }
        let keep = self.pending.len() - self.partial_stop();
        let certain: String = self.pending.drain(..keep).collect();
        self.text.feed(&certain)
    }

    /// The text goes on in another way (a call begins): what waited for a stop string is text.
    pub(super) fn flush(&mut self) -> String {
        let pending = std::mem::take(&mut self.pending);
        self.text.feed(&pending)
    }

    /// Bytes fed that were left out before the text, since the last call.
    pub(super) fn take_skipped(&mut self) -> usize {
        std::mem::take(&mut self.text.skipped)
    }

    /// White space at the end, for text that was cut off.
    pub(super) fn take_held(&mut self) -> String {
        self.text.take_held()
    }

    fn first_stop(&self) -> Option<(usize, String)> {
        let matches = self.stops.iter().filter_map(|stop| {
            let start = self.pending.find(stop.as_str())?;
            Some((start + stop.len(), start, stop))
        });
        let (_, start, stop) = matches.min_by_key(|(end, start, _)| (*end, *start))?;
        Some((start, stop.clone()))
    }

    /// Bytes at the end of `pending` that could begin a stop string.
    fn partial_stop(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.pending.len().saturating_sub(longest.saturating_sub(1));
        let tails = (from..self.pending.len()).filter_map(|at| self.pending.get(at..));
        tails
            .filter(|tail| self.stops.iter().any(|stop| stop.starts_with(tail)))
            .map(str::len)
            .next()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut answer = Answer::new(
            stops.iter().map(|s| s.to_string()).collect(),
            Trimmed::default(),
        );
        let mut text = String::new();
        for piece in pieces {
            text += &answer.feed(piece);
            if answer.hit().is_some() {
                break;
            }
        }
        text += &answer.flush();
        (text, answer.hit().map(str::to_owned))
    }

    #[test]
    fn stop_strings_match_over_pieces_and_release_false_starts() {
        let hit = |text: &str, stop: &str| (text.to_owned(), Some(stop.to_owned()));
        assert_eq!(
            run(&["own fox"], &["The quick br", "own", " fox jumps"]),
            hit("The quick br", "own fox")
        );
        assert_eq!(run(&["aab"], &["a", "a", "a", "b"]), hit("a", "aab"));
        assert_eq!(run(&["abcd", "bc"], &["abcd"]), hit("a", "bc"));
        assert_eq!(run(&["b", "ab"], &["xa", "b"]), hit("x", "ab"));
        assert_eq!(run(&["\n\n"], &["one \n", "\ntwo"]), hit("one ", "\n\n"));
        assert_eq!(run(&["END"], &["the EN", "D"]), hit("the ", "END"));
        assert_eq!(
            run(&["END"], &["the EN", "d"]),
            ("the ENd".to_owned(), None)
        );
        assert_eq!(run(&["é!"], &["caf", "é", "?"]), ("café?".to_owned(), None));
    }
}
