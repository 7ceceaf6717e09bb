use std::time::Instant;

use volley_speculate::{DraftPlan, Method};

use crate::Request;
use crate::ranks::{RankGroup, StepFailure};
use crate::step::{DecodeStep, Entry, PrefillChunk, StepPlan};

/// Texts of no meaning in the first slots and cache blocks, for steps before the first request.
pub(crate) struct Trial<'a> {
    ranks: &'a mut RankGroup,
    /// By slot.
    texts: Vec<Text>,
}

struct Text {
    blocks: Vec<u32>,
    committed: usize,
}

impl<'a> Trial<'a> {
    /// One text with room for the tokens of so many blocks.
    pub fn new(ranks: &'a mut RankGroup, blocks: usize) -> Self {
        Self::of(ranks, 1, blocks)
    }

    /// So many texts side by side, each with so many blocks.
    pub fn of(ranks: &'a mut RankGroup, texts: usize, blocks: usize) -> Self {
        let text = |slot: usize| Text {
            blocks: (slot * blocks..(slot + 1) * blocks)
                .map(|block| block as u32)
                .collect(),
            committed: 0,
        };
        Self {
            ranks,
            texts: (0..texts).map(text).collect(),
        }
    }

    /// Begins again, with prompts of `tokens` computed in one pass.
    pub fn enter(&mut self, tokens: usize, method: Method) -> Result<(), StepFailure> {
        let mut request = Request::new(vec![0; tokens], usize::MAX);
        request.speculate.method = Some(method);
        let mut plan = StepPlan::default();
        for (slot, text) in self.texts.iter_mut().enumerate() {
            text.committed = 0;
            plan.enter.push(Entry {
                slot,
                request: Some(request.clone()),
                method: Some(Method::Auto),
                from: None,
            });
            plan.prefill.push(PrefillChunk {
                slot,
                past: 0,
                len: tokens,
                blocks: text.blocks.clone(),
            });
        }
        self.step(plan)
    }

    /// Milliseconds of a decode step of all texts, which draft alike.
    pub fn decode(&mut self, draft: &DraftPlan) -> Result<f64, StepFailure> {
        let texts = self.texts.iter().enumerate();
        let decode = texts.map(|(slot, text)| DecodeStep {
            slot,
            past: text.committed,
            draft: draft.clone(),
            blocks: text.blocks.clone(),
        });
        let plan = StepPlan {
            decode: decode.collect(),
            ..StepPlan::default()
        };
        let start = Instant::now();
        self.step(plan)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn step(&mut self, plan: StepPlan) -> Result<(), StepFailure> {
        let updates = self.ranks.step(plan)?.updates;
        for update in &updates {
            self.texts[update.slot].committed += update.committed;
        }
        Ok(())
    }
}
