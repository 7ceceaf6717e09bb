//! Fixtures (tests/golden/README.md) and small helpers around a model under test.

use std::path::PathBuf;

use candle_core::Device;
use volley_model::{Checkpoint, Limits, Target};
use volley_ops::{Batch, Ops, Segment};
use volley_ops_candle::CandleOps;

/// Difference allowed per value: absolute for logits, plus as much relative to the value for
/// inner states. Every mistake the fixtures are made to catch moves a value by 0.03 or more.
pub const TOLERANCE: f32 = 1e-4;

pub const LIMITS: Limits = Limits {
    max_rows: 160,
    verify_rows: 48,
    slots: 3,
    blocks: 96,
};

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

pub fn open(name: &str) -> Checkpoint {
    Checkpoint::open(&path(name)).unwrap()
}

pub fn cpu() -> CandleOps {
    CandleOps::single(Device::Cpu)
}

pub fn target(ops: &CandleOps, name: &str, taps: &[usize]) -> Target<CandleOps> {
    Target::load(ops, &open(name), taps, LIMITS).unwrap()
}

/// The tensors of one fixture file.
pub struct Golden {
    bytes: Vec<u8>,
}

impl Golden {
    pub fn read(name: &str) -> Self {
        let bytes = std::fs::read(path(&format!("{name}.safetensors"))).unwrap();
        Self { bytes }
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let all = safetensors::SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = all.tensor(name).unwrap();
        assert_eq!(tensor.dtype(), safetensors::Dtype::F32, "{name}");
        let (values, _) = tensor.data().as_chunks::<4>();
        values.iter().map(|v| f32::from_le_bytes(*v)).collect()
    }

    pub fn ids(&self, name: &str) -> Vec<u32> {
        let all = safetensors::SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = all.tensor(name).unwrap();
        assert_eq!(tensor.dtype(), safetensors::Dtype::I64, "{name}");
        let (values, _) = tensor.data().as_chunks::<8>();
        values
            .iter()
            .map(|v| i64::from_le_bytes(*v) as u32)
            .collect()
    }
}

pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

/// Logits against those of transformers: within `TOLERANCE`, whatever their size.
#[track_caller]
pub fn assert_logits(what: &str, found: &[f32], expected: &[f32]) {
    let difference = difference(found, expected);
    println!("{what}: largest difference {difference:e}");
    assert!(difference <= TOLERANCE, "{what}: off by {difference:e}");
}

#[track_caller]
pub fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    println!(
        "{what}: largest difference {:e}",
        difference(found, expected)
    );
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let allowed = TOLERANCE * (1.0 + expected.abs());
        assert!(
            (found - expected).abs() <= allowed,
            "{what}: {found} for {expected} at {i}"
        );
    }
}

pub fn argmax(row: &[f32]) -> u32 {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    best.unwrap() as u32
}

/// One text in a slot, with cache blocks scattered over the pool.
pub struct Text {
    pub slot: usize,
    pub past: usize,
    blocks: Vec<u32>,
}

impl Text {
    pub fn new(slot: usize, blocks: usize) -> Self {
        // Every slot takes its own residue; odd stride so that neighbours are not neighbours.
        let slots = LIMITS.slots;
        let own = (0..blocks / slots).map(|i| ((i * 7 % (blocks / slots)) * slots + slot) as u32);
        Self {
            slot,
            past: 0,
            blocks: own.collect(),
        }
    }

    /// A segment of the next `rows` rows, placed at row `first` of the batch.
    pub fn segment(&self, ops: &CandleOps, first: usize, rows: usize) -> Segment {
        let blocks = (self.past + rows).div_ceil(ops.block_size());
        Segment {
            rows: first..first + rows,
            slot: self.slot,
            past: self.past,
            blocks: self.blocks[..blocks].to_vec(),
            parents: None,
        }
    }

    pub fn batch(&self, ops: &CandleOps, rows: usize) -> Batch {
        Batch {
            segments: vec![self.segment(ops, 0, rows)],
        }
    }

    /// Prefills `ids` and returns the logits of all rows.
    pub fn prefill(
        &mut self,
        ops: &CandleOps,
        target: &mut Target<CandleOps>,
        ids: &[u32],
    ) -> Vec<f32> {
        let batch = self.batch(ops, ids.len());
        target.prefill(ops, ids, &batch).unwrap();
        self.past += ids.len();
        let rows: Vec<u32> = (0..ids.len() as u32).collect();
        target.logits(ops, &rows).unwrap()
    }

    /// One row by verify and commit, as a decode step without drafts; returns its logits.
    pub fn step(&mut self, ops: &CandleOps, target: &mut Target<CandleOps>, id: u32) -> Vec<f32> {
        let batch = self.batch(ops, 1);
        target.verify(ops, &[id], &batch).unwrap();
        let logits = target.logits(ops, &[0]).unwrap();
        target.commit(ops, &batch, &vec![vec![0]]).unwrap();
        self.past += 1;
        logits
    }
}

/// Chunk lengths between 1 and `most` that add up to `total`.
pub fn chunks(total: usize, most: usize, seed: u64) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut left = total;
    for bits in SplitMix(seed) {
        if left == 0 {
            break;
        }
        let length = (1 + bits as usize % most).min(left);
        lengths.push(length);
        left -= length;
    }
    lengths
}

/// The generator of the hashed inputs.
pub struct SplitMix(pub u64);

impl Iterator for SplitMix {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Some(z ^ (z >> 31))
    }
}

/// Hashed inputs of the drafter goldens.
pub fn hashed(seed: u64, count: usize) -> Vec<f32> {
    let to_value = |bits: u64| ((bits >> 40) as i64 - (1 << 23)) as f32 * 2f32.powi(-29);
    SplitMix(seed).take(count).map(to_value).collect()
}

#[test]
fn hashed_inputs_are_those_of_the_fixtures() {
    assert_eq!(SplitMix(1064).next(), Some(0x1CF2_D5BE_C4F5_7509));
    assert!(
        difference(
            &hashed(1064, 3),
            &[-0.012_091_24, -0.011_364_64, 0.013_920_46]
        ) < 1e-8
    );
}
