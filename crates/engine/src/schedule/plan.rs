//! What the next step does, and whose blocks it takes for it.

use super::share::{Unread, share};
use super::{Saving, Schedule};
use crate::step::{DecodeStep, PrefillChunk, Save, StepPlan};

impl Schedule {
    /// The next step: a decode step of every stream, then prompt chunks as far as streams can
    /// wait for them. Who does not get its blocks waits, or has lost them to one before it.
    pub fn plan(&mut self) -> StepPlan {
        let decoding = self.running.iter().filter(|running| running.decodes());
        let decoding = decoding.count();
        let mut drafts = Vec::with_capacity(self.running.len());
        for running in &mut self.running {
            drafts.push(running.draft(&mut self.policy, decoding));
        }
        let rows = drafts.iter().flatten().map(|draft| 1 + draft.most_drafts());
        let rows = rows.sum();
        let unread = self.running.iter().map(|running| Unread {
            chunk: running.chunk(),
            left: running.left(),
        });
        let unread: Vec<Unread> = unread.collect();
        let most = self.limits.prefill_chunk;
        // Who gets nothing of that gets nothing of less.
        let reading = self.running.iter().zip(share(most, &unread));
        let reading = reading.filter(|(_, share)| *share > 0);
        let past = reading.map(|(running, _)| running.committed).max();
        let budget = self.pace.budget(rows, past.unwrap_or(0), most);
        let shares = share(budget, &unread);
        let mut plan = StepPlan {
            enter: std::mem::take(&mut self.entries),
            ..StepPlan::default()
        };
        for ((index, share), draft) in shares.into_iter().enumerate().zip(drafts) {
            let running = &self.running[index];
            let past = running.committed;
            let len = running.align(share, self.limits.cache.block_size);
            let rows = match &draft {
                Some(draft) => self.limits.draft_rows.max(1 + draft.most_drafts()),
                None => len,
            };
            if running.lost || rows == 0 || !self.grow(index, past + rows) {
                continue;
            }
            let running = &self.running[index];
            let (slot, blocks) = (running.slot, running.table.blocks().to_vec());
            if let Some(draft) = draft {
                plan.decode.push(DecodeStep {
                    slot,
                    past,
                    draft,
                    blocks,
                });
                continue;
            }
            plan.prefill.push(PrefillChunk {
                slot,
                past,
                len,
                blocks,
            });
            let end = past + len;
            if running.marks.contains(&end)
                && let Some(to) = self.cache.checkpoint_slot(running.prefix(end))
            {
                let save = Save { from: slot, to };
                plan.saves.push(save);
                self.saving.push(Saving { save, tokens: end });
            }
        }
        plan
    }

    /// Grows the table of a request to cover `tokens`, if need be at the cost of those behind it.
    fn grow(&mut self, index: usize, tokens: usize) -> bool {
        loop {
            let table = &mut self.running[index].table;
            if self.cache.grow(table, tokens).is_ok() {
                return true;
            }
            let behind = index + 1..self.running.len();
            let holds = |&other: &usize| !self.running[other].table.blocks().is_empty();
            let Some(last) = behind.rev().find(holds) else {
                return false;
            };
            let table = self.running[last].lose();
            self.cache.release(table);
            self.shared.stats().preempted += 1;
            tracing::debug!(slot = self.running[last].slot, "gives way");
        }
    }
}
