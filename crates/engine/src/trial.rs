use std::time::Instant;

use volley_speculate::{DraftPlan, Method};

use crate::Request;
use crate::ranks::{RankGroup, StepFailure};
use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepPlan};

/// A text of no meaning in slot 0 and in the first cache blocks, for steps before the first request.
pub(crate) struct Trial<'a> {
    ranks: &'a mut RankGroup,
    blocks: Vec<u32>,
    committed: usize,
}

impl<'a> Trial<'a> {
    /// With room for the tokens of so many blocks.
    pub fn new(ranks: &'a mut RankGroup, blocks: usize) -> Self {
        Self {
            ranks,
            blocks: (0..blocks as u32).collect(),
            committed: 0,
        }
    }

    /// Begins again, with a prompt of `tokens` computed in one pass.
    pub fn enter(&mut self, tokens: usize, method: Method) -> Result<(), StepFailure> {
        let mut request = Request::new(vec![0; tokens], usize::MAX);
        request.speculate.method = Some(method);
        self.committed = 0;
        self.step(StepPlan {
            enter: vec![Entry {
                slot: 0,
                request: Some(request),
                method: Some(Method::Auto),
                from: None,
            }],
            prefill: vec![PrefillChunk {
                slot: 0,
                past: 0,
                len: tokens,
                blocks: self.blocks.clone(),
            }],
            ..StepPlan::default()
        })
    }

    /// Milliseconds of a decode step.
    pub fn decode(&mut self, draft: &DraftPlan) -> Result<f64, StepFailure> {
        let plan = StepPlan {
            decode: vec![DecodeStep {
                slot: 0,
                past: self.committed,
                draft: draft.clone(),
                blocks: self.blocks.clone(),
            }],
            ..StepPlan::default()
        };
        let start = Instant::now();
        self.step(plan)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn step(&mut self, plan: StepPlan) -> Result<(), StepFailure> {
        let updates = self.ranks.step(plan)?.updates;
        let committed = updates.iter().map(|update: &SlotUpdate| update.committed);
        self.committed += committed.sum::<usize>();
        Ok(())
    }
}
