//! Follows the answer's text back to the pushes that brought it.

use std::collections::VecDeque;

use super::lexer::spelled;

/// Pushes that brought some text together: all but the last of them only held it back.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: usize,
    last: usize,
}

#[derive(Debug, Default)]
pub(super) struct Origins {
    /// Groups by the end of their bytes, counted in marked text from the start of the answer.
    groups: VecDeque<(usize, Group)>,
    /// Marked bytes received, and those the machine has drained.
    received: usize,
    drained: usize,
    /// Pushes so far, and the first whose text is held back.
    pushes: usize,
    waiting: usize,
    /// Plain text within the answer that is not out: bytes and where they come from.
    inside: VecDeque<(usize, Group)>,
    /// Pushes below this have been told.
    told: usize,
    out: Vec<usize>,
}

impl Origins {
    /// A push, or the end, has brought this many marked bytes.
    pub(super) fn pushed(&mut self, length: usize) {
        let last = self.pushes;
        self.pushes += 1;
        if length > 0 {
            let first = self.waiting;
            self.received += length;
            self.groups
                .push_back((self.received, Group { first, last }));
            self.waiting = self.pushes;
        }
    }

    /// The machine has dropped this many bytes from the front of its input.
    pub(super) fn drained(&mut self, length: usize) {
        self.drained += length;
        while let Some((end, _)) = self.groups.front()
            && *end <= self.drained
        {
            self.groups.pop_front();
        }
    }

    /// `marked`, at `at` in the machine's input, is passed to the answer.
    pub(super) fn fed(&mut self, at: usize, marked: &[u8]) {
        let mut position = self.drained + at;
        let mut rest = marked;
        for (end, group) in &self.groups {
            if rest.is_empty() {
                return;
            }
            if *end <= position {
                continue;
            }
            let (part, after) = rest.split_at((end - position).min(rest.len()));
            self.inside.push_back((spelled(part).len(), *group));
            position += part.len();
            rest = after;
        }
    }

    /// The answer has left out `skipped` bytes of plain text and then released `length`.
    pub(super) fn came_out(&mut self, skipped: usize, length: usize) {
        self.advance(skipped, false);
        self.advance(length, true);
    }

    fn advance(&mut self, mut length: usize, tell: bool) {
        while length > 0
            && let Some((left, group)) = self.inside.front_mut()
        {
            let step = length.min(*left);
            *left -= step;
            length -= step;
            let (done, Group { first, last }) = (*left == 0, *group);
            if tell {
                self.out.extend(first.max(self.told)..=last);
                self.told = self.told.max(last + 1);
            }
            if done {
                self.inside.pop_front();
            }
        }
    }

    /// Pushes told since the last call.
    pub(super) fn take(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.out)
    }
}
