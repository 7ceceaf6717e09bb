//! Random lives of a cache against a simple model. The model writes into blocks and slots what a
//! model would: a mark of the whole text up to there. What is resumed must read just that.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;
use volley_cache::{BlockTable, Cache, CacheSizes, Error, Miss, Prefix};

const SIZES: CacheSizes = CacheSizes {
    blocks: 24,
    block_size: 4,
    sequences: 4,
    checkpoints: 5,
};

const SALTS: [&str; 3] = ["", "a", "b"];

/// Stands for the states, or for a key and value, behind a text.
fn mark(salt: &str, text: &[u32]) -> u64 {
    let step = |mark: u64, &token: &u32| {
        (mark ^ u64::from(token))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            + 1
    };
    let salt = salt.bytes().map(u32::from);
    let salt = salt.fold(1, |mark, byte| step(mark, &byte));
    text.iter().fold(salt, step)
}

struct Sequence {
    salt: &'static str,
    text: Vec<u32>,
    committed: usize,
    table: BlockTable,
    slot: usize,
}

struct World {
    cache: Cache,
    running: Vec<Sequence>,
    /// Texts of checkpoints, used longest ago first.
    kept: Vec<(&'static str, Vec<u32>)>,
    /// Texts seen, to begin alike.
    texts: Vec<Vec<u32>>,
    blocks: Vec<[u64; SIZES.block_size]>,
    slots: Vec<u64>,
    hits: usize,
    full: usize,
}

#[derive(Clone, Debug)]
enum Op {
    /// A text that begins with a part of an earlier one.
    Start {
        salt: &'static str,
        of: usize,
        shared: usize,
        more: Vec<u32>,
    },
    Advance {
        of: usize,
        tokens: usize,
    },
    Checkpoint {
        of: usize,
        keep: bool,
    },
    Finish(usize),
    Abort(usize),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let any = 0..64usize;
    let salt = prop_oneof![8 => Just(SALTS[0]), 1 => Just(SALTS[1]), 1 => Just(SALTS[2])];
    prop_oneof![
        6 => (salt, any.clone(), 0..48usize, vec(0..3u32, 1..24))
            .prop_map(|(salt, of, shared, more)| Op::Start { salt, of, shared, more }),
        12 => (any.clone(), 1..9usize).prop_map(|(of, tokens)| Op::Advance { of, tokens }),
        5 => (any.clone(), prop::bool::weighted(0.8))
            .prop_map(|(of, keep)| Op::Checkpoint { of, keep }),
        3 => any.clone().prop_map(Op::Finish),
        2 => any.prop_map(Op::Abort),
        1 => prop::bool::weighted(0.05).prop_map(|clear| match clear {
            true => Op::Clear,
            false => Op::Abort(0),
        }),
    ]
}

impl World {
    fn new() -> Self {
        Self {
            cache: Cache::new(SIZES),
            running: Vec::new(),
            kept: Vec::new(),
            texts: vec![Vec::new()],
            blocks: vec![[0; SIZES.block_size]; SIZES.blocks],
            slots: vec![0; SIZES.slots()],
            hits: 0,
            full: 0,
        }
    }

    fn apply(&mut self, op: Op) {
        let pick = |of: usize, len: usize| (len > 0).then(|| of % len);
        let running = self.running.len();
        match op {
            Op::Start {
                salt,
                of,
                shared,
                more,
            } => {
                let text = &self.texts[of % self.texts.len()];
                let text = [&text[..shared.min(text.len())], &more].concat();
                if running < SIZES.sequences {
                    self.start(salt, text);
                }
            }
            Op::Advance { of, tokens } => {
                if let Some(index) = pick(of, running) {
                    self.advance(index, tokens);
                }
            }
            Op::Checkpoint { of, keep } => {
                if let Some(index) = pick(of, running) {
                    self.checkpoint(index, keep);
                }
            }
            Op::Finish(of) => {
                if let Some(index) = pick(of, running) {
                    let sequence = self.running.swap_remove(index);
                    let text = &sequence.text[..sequence.committed];
                    let prefix = Prefix {
                        salt: sequence.salt,
                        tokens: text,
                    };
                    self.cache.donate(prefix, sequence.table, sequence.slot);
                    self.use_now((sequence.salt, text.to_vec()));
                }
            }
            Op::Abort(of) => {
                if let Some(index) = pick(of, running) {
                    let sequence = self.running.swap_remove(index);
                    self.cache.release(sequence.table);
                    self.cache.give_slot(sequence.slot);
                }
            }
            Op::Clear => {
                self.cache.clear();
                assert_eq!(
                    (self.cache.checkpoints(), self.cache.cached_blocks()),
                    (0, 0)
                );
            }
        }
        let cache = &self.cache;
        self.kept
            .retain(|&(salt, ref tokens)| cache.holds(Prefix { salt, tokens }));
        assert_eq!(self.kept.len(), cache.checkpoints());
        assert!(self.kept.len() <= SIZES.checkpoints);
        self.check();
    }

    fn check(&self) {
        let tables = self.running.iter().map(|sequence| &sequence.table);
        let slots = self.running.iter().map(|sequence| sequence.slot);
        self.cache.check(tables, slots).unwrap();
    }

    fn use_now(&mut self, text: (&'static str, Vec<u32>)) {
        self.kept.retain(|other| *other != text);
        if !text.1.is_empty() {
            self.kept.push(text);
        }
    }

    fn start(&mut self, salt: &'static str, text: Vec<u32>) {
        let kept: Vec<&Vec<u32>> = self
            .kept
            .iter()
            .filter_map(|(other, kept)| (*other == salt).then_some(kept))
            .collect();
        let within = |kept: &&&Vec<u32>| kept.len() < text.len() && text.starts_with(kept);
        let best = kept.iter().filter(within).max_by_key(|kept| kept.len());
        let best = best.map(|&kept| kept.clone());
        let common = |kept: &[u32]| kept.iter().zip(&text).take_while(|(a, b)| a == b).count();
        let most = kept.iter().map(|kept| common(kept)).max();
        let goes_on = |kept: &&&Vec<u32>| Some(common(kept)) == most && Some(kept.len()) > most;
        let goes_on = kept.iter().any(|kept| goes_on(&kept));
        let slot = self.cache.take_slot().expect("a sequence finds a slot");
        let resume = self.cache.resume(Prefix {
            salt,
            tokens: &text,
        });
        assert_eq!(resume.common, most.unwrap_or(0));
        let miss = match most {
            None => Miss::NothingKept,
            Some(_) if resume.tokens + 1 == text.len() => Miss::None,
            Some(most) if most == text.len() => Miss::NoStates,
            Some(most) if resume.tokens < most - most % SIZES.block_size => Miss::NoStates,
            Some(_) if goes_on => Miss::Differs,
            Some(_) => Miss::Ends,
        };
        assert_eq!(resume.miss, miss);
        if let Some(copy) = resume.tail {
            self.blocks[copy.to as usize] = self.blocks[copy.from as usize];
        }
        self.slots[slot] = match resume.slot {
            Some(from) => self.slots[from],
            None => mark(salt, &[]),
        };
        match best {
            // Only a last block that cannot be copied for want of one turns a hit into a miss.
            Some(best) if resume.tokens > 0 || self.cache.idle_blocks() > 0 => {
                assert_eq!(resume.tokens, best.len());
                self.hits += 1;
                self.use_now((salt, best));
            }
            _ => assert_eq!(resume.tokens, 0),
        }
        assert_eq!(
            resume.table.blocks().len(),
            resume.tokens.div_ceil(SIZES.block_size)
        );
        self.texts.push(text.clone());
        self.running.push(Sequence {
            salt,
            committed: resume.tokens,
            table: resume.table,
            slot,
            text,
        });
        self.read(self.running.len() - 1);
    }

    /// What a sequence holds is its own text.
    fn read(&self, index: usize) {
        let sequence = &self.running[index];
        for at in 0..sequence.committed {
            let block = sequence.table.blocks()[at / SIZES.block_size];
            let held = self.blocks[block as usize][at % SIZES.block_size];
            let mark = mark(sequence.salt, &sequence.text[..=at]);
            assert_eq!(held, mark, "token {at}");
        }
        let state = self.slots[sequence.slot];
        let text = &sequence.text[..sequence.committed];
        assert_eq!(state, mark(sequence.salt, text));
    }

    fn advance(&mut self, index: usize, tokens: usize) {
        let sequence = &mut self.running[index];
        let end = (sequence.committed + tokens).min(sequence.text.len() + 3);
        while sequence.text.len() < end {
            sequence.text.push(7);
        }
        let mut held: Vec<u32> = Vec::new();
        let before = sequence.table.blocks().len();
        let needed = end.div_ceil(SIZES.block_size).saturating_sub(before);
        match self.cache.grow(&mut sequence.table, end) {
            Ok(()) => {
                for at in sequence.committed..end {
                    let block = sequence.table.blocks()[at / SIZES.block_size];
                    let mark = mark(sequence.salt, &sequence.text[..=at]);
                    self.blocks[block as usize][at % SIZES.block_size] = mark;
                }
                sequence.committed = end;
                self.slots[sequence.slot] = mark(sequence.salt, &sequence.text[..end]);
            }
            Err(error) => {
                // Nobody starves for the sake of what is only kept.
                held.extend(self.running.iter().flat_map(|s| s.table.blocks()));
                held.sort_unstable();
                held.dedup();
                let free = SIZES.blocks - held.len();
                assert!(needed > free);
                assert_eq!(error, Error::OutOfBlocks { needed, free });
                self.full += 1;
            }
        }
        (0..self.running.len()).for_each(|index| self.read(index));
    }

    fn checkpoint(&mut self, index: usize, keep: bool) {
        let sequence = &self.running[index];
        let salt = sequence.salt;
        let text = &sequence.text[..sequence.committed];
        fn prefix<'a>(salt: &'a str, tokens: &'a [u32]) -> Prefix<'a> {
            Prefix { salt, tokens }
        }
        let known = self.kept.contains(&(salt, text.to_vec()));
        let oldest = self.kept.first().cloned();
        let full = self.kept.len() == SIZES.checkpoints;
        let Some(slot) = self.cache.checkpoint_slot(prefix(salt, text)) else {
            assert!(known || text.is_empty());
            return;
        };
        assert!(!known);
        if let Some((salt, oldest)) = oldest.filter(|_| full) {
            let held = self.cache.holds(prefix(salt, &oldest));
            assert!(!held, "the oldest gives way");
        }
        if keep {
            self.slots[slot] = self.slots[sequence.slot];
            self.cache.insert(prefix(salt, text), &sequence.table, slot);
            self.use_now((salt, text.to_vec()));
        } else {
            self.cache.give_back(slot);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// 100 lives of 1,000 operations.
    #[test]
    fn a_cache_reads_back_what_was_written(ops in vec(op(), 1000)) {
        let mut world = World::new();
        for op in ops {
            world.apply(op);
        }
        assert!(world.hits > 10, "{} hits", world.hits);
        while !world.running.is_empty() {
            world.apply(Op::Abort(0));
        }
        assert_eq!(world.cache.idle_blocks(), SIZES.blocks);
        world.cache.clear();
        world.check();
        assert_eq!(world.cache.cached_blocks(), 0);
    }
}

#[test]
fn without_checkpoints_nothing_is_kept() {
    let mut cache = Cache::new(CacheSizes {
        checkpoints: 0,
        ..SIZES
    });
    let slot = cache.take_slot().unwrap();
    let mut table = BlockTable::default();
    cache.grow(&mut table, 9).unwrap();
    assert_eq!(cache.checkpoint_slot(Prefix::of(&[1, 2, 3])), None);
    cache.donate(Prefix::of(&[1, 2, 3]), table, slot);
    assert_eq!(cache.resume(Prefix::of(&[1, 2, 3, 4])).tokens, 0);
    cache.check([], []).unwrap();
    assert_eq!(cache.idle_blocks(), SIZES.blocks);
}
