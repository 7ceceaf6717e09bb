use std::ops::Range;

use volley_ops::{DRAWN, Draw, WalkEnd};
use volley_speculate::{
    Choice, Commit, End, History, Logits, Proposal, Rule, TreeOrder, cut, distribution_of,
    drawn_of, logprob_of, sample, verify,
};

use crate::control::Controller;
use crate::logits::Asks;
use crate::step::SlotUpdate;
use crate::{EngineError, Request, Stop};

/// Most stop ids that the device is told of.
const MOST_STOPS: usize = 64;

/// How a rank samples and accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// How drafts are accepted.
    pub rule: Rule,
    /// What orders the nodes of trees.
    pub order: TreeOrder,
    /// Ids at or above are never sampled.
    pub allowed: usize,
}

/// What a rank keeps of one sequence between steps.
pub(crate) struct Sequence {
    pub slot: usize,
    pub request: Request,
    /// Prompt and output; ends with the anchor.
    pub history: History,
    /// Tokens that the target has taken in.
    pub committed: usize,
    /// Last token that came out, not yet committed; 0 during the prompt.
    pub anchor: u32,
    /// Follows the output.
    pub controller: Controller,
}

impl Sequence {
    pub fn new(slot: usize, request: &Request) -> Self {
        Self {
            slot,
            history: History::new(&request.prompt),
            request: request.clone(),
            controller: Controller::new(request),
            committed: 0,
            anchor: 0,
        }
    }

    /// Tokens of the text, prompt and output.
    pub fn tokens(&self, range: Range<usize>) -> Vec<u32> {
        let prompt = self.request.prompt.iter();
        let text = prompt.chain(self.history.output());
        text.copied().skip(range.start).take(range.len()).collect()
    }

    /// Asks ahead for the tokens behind anchor and drafts, `1 + drafts` rows: what a grammar is awake over, or
    /// is forced, is not known ahead. The depths of a tree that the device grew are not, either: its rows are
    /// asked as if they all had the anchor's, but for their positions.
    pub fn ask(&mut self, proposal: &Proposal, allowed: usize, asks: &mut Asks) {
        let params = &self.request.sampling;
        let before = self.history.output().len();
        let mut parents = proposal.parents.iter().flatten();
        if parents.any(|parent| parent & DRAWN != 0) {
            let next = self.controller.foreseen(before);
            let choice = next.as_ref().map(|next| Choice {
                params,
                history: &self.history,
                allowed,
                next,
                position: Draw::BEHIND_ROW as usize,
            });
            (0..=proposal.tokens.len()).for_each(|_| asks.add(choice.as_ref()));
            return;
        }
        for (row, depth) in proposal.depths().into_iter().enumerate() {
            let Some(next) = self.controller.foreseen(before + depth) else {
                asks.add(None);
                continue;
            };
            // Drafts that only the device knows are those of sequences that leave logits alone.
            if !params.leaves_logits() {
                let path = proposal.path(row);
                path.into_iter().for_each(|token| self.history.push(token));
            }
            asks.add(Some(&Choice {
                params,
                history: &self.history,
                allowed,
                next: &next,
                position: self.request.prompt.len() + before + depth,
            }));
            self.history.truncate(before);
        }
    }

    /// Chooses the token behind the prompt from the logits of its last row, row 0.
    pub fn first_token(
        &mut self,
        logits: &mut dyn Logits,
        position: usize,
        sampling: Sampling,
        update: &mut SlotUpdate,
    ) -> Result<(), EngineError> {
        let params = &self.request.sampling;
        let next = self.controller.allowed(self.history.output())?;
        let choice = Choice {
            params,
            history: &self.history,
            allowed: sampling.allowed,
            next: &next,
            position,
        };
        let target = distribution_of(logits, 0, &choice)?;
        let commit = Commit {
            keep: vec![0],
            accepted: Vec::new(),
            bonus: sample(&target, params.seed, position)?,
        };
        self.settle(&commit, logits, sampling, update)?;
        Ok(())
    }

    /// Token behind the next `rows` rows to be committed; the anchor at the end of the text.
    pub fn after(&self, rows: usize) -> u32 {
        let next = self.committed + rows;
        let prompt = &self.request.prompt;
        let token = match next.checked_sub(prompt.len()) {
            None => prompt.get(next),
            Some(index) => self.history.output().get(index),
        };
        token.copied().unwrap_or(self.anchor)
    }

    /// Makes a proposal fit what may come next, with at most `most` drafts.
    pub fn refine(
        &mut self,
        proposal: &mut Proposal,
        most: usize,
        rule: Rule,
    ) -> Result<(), EngineError> {
        let output = self.history.output();
        self.controller.refine(output, proposal, most, rule)
    }

    /// Whether a chain of at most `most` drafts needs no [`Sequence::refine`], whatever its tokens.
    pub fn takes_any(&self, most: usize) -> bool {
        self.controller.fits(most)
    }

    /// Whether the next tokens, at most so many, are what the logits say, up to a stop id or the allowance: then
    /// the device may go on by them before the host knows them.
    pub fn is_left_alone(&self, tokens: usize) -> bool {
        let output = self.history.output();
        self.request.sampling.leaves_logits()
            && self.request.stop_ids.len() <= MOST_STOPS
            && output.len() < self.request.max_tokens
            && self.controller.leaves(output, tokens)
    }

    /// Where the next step ends at the latest.
    pub fn end(&self) -> WalkEnd<'_> {
        WalkEnd {
            most: self.request.max_tokens - self.history.output().len(),
            stops: &self.request.stop_ids,
        }
    }

    /// Decides over a proposal from the logits of anchor and drafts, `1 + drafts` rows, and
    /// emits what stands; `walked` says whether the device has gone on by what it drew. Comes to the rows to
    /// keep.
    pub fn verify(
        &mut self,
        proposal: &Proposal,
        logits: &mut dyn Logits,
        sampling: Sampling,
        walked: bool,
        update: &mut SlotUpdate,
    ) -> Result<Vec<u32>, EngineError> {
        let params = &self.request.sampling;
        let prompt = self.request.prompt.len();
        let controller = &mut self.controller;
        let target = |row: usize, history: &History| {
            let next = controller.allowed(history.output())?;
            let choice = Choice {
                params,
                history,
                allowed: sampling.allowed,
                next: &next,
                position: prompt + history.output().len(),
            };
            Ok::<_, EngineError>(match walked {
                true => drawn_of(logits, row, &choice)?,
                false => distribution_of(logits, row, &choice)?,
            })
        };
        let position = self.committed + 1;
        let history = &mut self.history;
        let commit = verify(
            proposal,
            sampling.rule,
            params.seed,
            position,
            history,
            target,
        )?;
        update.accepted = commit.accepted.len();
        self.settle(&commit, logits, sampling, update)
    }

    /// Cuts a commit at the end of the output, appends it (the last token is the new anchor), and
    /// notes what there is to tell. Comes to the rows to keep.
    fn settle(
        &mut self,
        commit: &Commit,
        logits: &mut dyn Logits,
        sampling: Sampling,
        update: &mut SlotUpdate,
    ) -> Result<Vec<u32>, EngineError> {
        let before = self.history.output().len();
        let max_left = self.request.max_tokens - before;
        // Tokens that must not end the output yet are not sampled at all.
        let mut cut = cut(commit, &self.request.stop_ids, 0, max_left);
        let forced = self.controller.take_forced();
        for &token in &cut.tokens {
            self.history.push(token);
        }
        self.controller.follow(self.history.output())?;
        if let Some(len) = self.controller.repeats_at() {
            self.history.truncate(len);
            cut.tokens.truncate(len - before);
            cut.keep.truncate(len - before);
            cut.end = Some(End::Repetition);
        }
        if let Some(&token) = cut.tokens.last() {
            self.anchor = token;
        }
        update.closed_by = self.controller.take_closed_by();
        if let Some(top) = self.controller.logprobs() {
            for (&token, &row) in cut.tokens.iter().zip(&cut.keep) {
                let logprob = logprob_of(logits, row as usize, sampling.allowed, token, top)?;
                update.logprobs.push(logprob);
            }
        }
        let forced = forced.iter().map(|len| len - before);
        update.forced = forced.filter(|index| *index < cut.tokens.len()).collect();
        update.tokens = cut.tokens;
        update.stop = cut.end.map(|end| match end {
            End::Token(id) => Stop::Token(id),
            End::Length => Stop::Length,
            End::Repetition => Stop::Repetition,
        });
        Ok(cut.keep)
    }
}
