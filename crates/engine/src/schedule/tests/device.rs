//! A device without tensors: it writes into blocks and slots marks of the texts that they should
//! hold, and reads them back before every pass.

use volley_cache::CacheSizes;

use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepOutputs, StepPlan};
use crate::{Request, Stop};

/// Tokens of its vocabulary; the first one ends answers.
pub const VOCAB: u32 = 40;
pub const END: u32 = 0;

fn fold(mark: u64, token: u32) -> u64 {
    let mixed = (mark ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(29) + 1
}

/// Stands for the states, or for a key and value, behind a text under a salt.
fn mark(salt: &str, text: &[u32]) -> u64 {
    let salt = salt.bytes().fold(7, |mark, byte| fold(mark, byte.into()));
    text.iter().fold(salt, |mark, &token| fold(mark, token))
}

/// The token behind a text.
fn next(text: &[u32]) -> u32 {
    (mark("", text) >> 32) as u32 % VOCAB
}

/// What a request is answered.
pub fn answer(request: &Request, max_model_len: usize) -> Vec<u32> {
    let most = request.max_tokens.min(max_model_len - request.prompt.len());
    let mut text = request.prompt.clone();
    while text.len() < request.prompt.len() + most && !ends(&text[request.prompt.len()..]) {
        text.push(next(&text));
    }
    text.split_off(request.prompt.len())
}

fn ends(output: &[u32]) -> bool {
    output.last() == Some(&END)
}

#[derive(Clone, Default)]
struct Slot {
    state: u64,
    request: Option<Request>,
    /// Prompt and output.
    text: Vec<u32>,
    committed: usize,
}

pub struct Device {
    block_size: usize,
    blocks: Vec<u64>,
    slots: Vec<Slot>,
}

impl Device {
    pub fn new(sizes: CacheSizes) -> Self {
        Self {
            block_size: sizes.block_size,
            blocks: vec![0; sizes.blocks * sizes.block_size],
            slots: vec![Slot::default(); sizes.slots()],
        }
    }

    /// Runs a plan as a rank does.
    pub fn step(&mut self, plan: &StepPlan) -> StepOutputs {
        plan.enter.iter().for_each(|entry| self.enter(entry));
        let prefill = plan.prefill.iter().map(|chunk| self.prefill(chunk));
        let mut updates: Vec<SlotUpdate> = prefill.collect();
        updates.extend(plan.decode.iter().map(|step| self.decode(step)));
        for save in &plan.saves {
            self.slots[save.to].state = self.slots[save.from].state;
        }
        StepOutputs { updates }
    }

    fn enter(&mut self, entry: &Entry) {
        let from = entry.from.map(|restore| {
            if let Some(tail) = restore.tail {
                let block = |id: u32| id as usize * self.block_size;
                let from = block(tail.from);
                self.blocks
                    .copy_within(from..from + self.block_size, block(tail.to));
            }
            (self.slots[restore.slot].state, restore.tokens)
        });
        let slot = &mut self.slots[entry.slot];
        if let Some(request) = &entry.request {
            slot.text = request.prompt.clone();
            slot.request = Some(request.clone());
        }
        let request = slot.request.as_ref().unwrap();
        let salt = &request.cache_salt;
        let (state, committed) = from.unwrap_or((mark(salt, &[]), 0));
        assert!(committed < slot.text.len(), "nothing is left to compute");
        (slot.state, slot.committed) = (state, committed);
    }

    /// What a sequence is to go on from is its own text.
    fn read(&self, slot: &Slot, past: usize, blocks: &[u32]) {
        assert_eq!(slot.committed, past);
        let salt = &slot.request.as_ref().unwrap().cache_salt;
        assert_eq!(slot.state, mark(salt, &slot.text[..past]), "states");
        let mut expected = mark(salt, &[]);
        for (at, &token) in slot.text[..past].iter().enumerate() {
            expected = fold(expected, token);
            assert_eq!(self.blocks[self.place(blocks, at)], expected, "token {at}");
        }
    }

    fn place(&self, blocks: &[u32], at: usize) -> usize {
        blocks[at / self.block_size] as usize * self.block_size + at % self.block_size
    }

    /// Commits the next `rows` tokens of a sequence; `drafts` rows in all were written.
    fn commit(&mut self, index: usize, blocks: &[u32], rows: usize, written: usize) {
        let slot = &self.slots[index];
        let (mut state, past) = (slot.state, slot.committed);
        for row in 0..written {
            let place = self.place(blocks, past + row);
            self.blocks[place] = match row < rows {
                true => {
                    state = fold(state, self.slots[index].text[past + row]);
                    state
                }
                false => u64::MAX,
            };
        }
        let slot = &mut self.slots[index];
        (slot.state, slot.committed) = (state, past + rows);
    }

    fn prefill(&mut self, chunk: &PrefillChunk) -> SlotUpdate {
        assert!(chunk.len > 0, "an empty chunk");
        let &PrefillChunk {
            slot, past, len, ..
        } = chunk;
        self.read(&self.slots[slot], past, &chunk.blocks);
        self.commit(slot, &chunk.blocks, len, len);
        let mut update = SlotUpdate {
            slot,
            committed: len,
            ..SlotUpdate::default()
        };
        let prompt = self.slots[slot].request.as_ref().unwrap().prompt.len();
        if past + len == prompt && self.slots[slot].text.len() == prompt {
            self.say(slot, 1, &mut update);
        }
        update
    }

    fn decode(&mut self, step: &DecodeStep) -> SlotUpdate {
        let &DecodeStep { slot, past, .. } = step;
        let drafts = step.draft.most_drafts();
        self.read(&self.slots[slot], past, &step.blocks);
        let text = &self.slots[slot].text;
        assert_eq!(text.len(), past + 1, "the anchor is the last token");
        let accepted = (mark("", text) >> 8) as usize % (drafts + 1);
        let mut update = SlotUpdate {
            slot,
            drafted: drafts,
            depth: drafts,
            accepted,
            ..SlotUpdate::default()
        };
        self.say(slot, accepted + 1, &mut update);
        update.committed = update.tokens.len();
        self.commit(slot, &step.blocks, update.committed, 1 + drafts);
        update
    }

    /// At most `most` tokens come out.
    fn say(&mut self, slot: usize, most: usize, update: &mut SlotUpdate) {
        let Slot { request, text, .. } = &mut self.slots[slot];
        let request = request.as_ref().unwrap();
        for _ in 0..most {
            let token = next(text);
            text.push(token);
            update.tokens.push(token);
            let output = text.len() - request.prompt.len();
            update.stop = match token {
                END => Some(Stop::Token(END)),
                _ if output == request.max_tokens => Some(Stop::Length),
                _ => continue,
            };
            break;
        }
    }
}
