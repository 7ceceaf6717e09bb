//! Fixtures of Hugging Face transformers (crates/model/tests/golden) whose heads have the widths of
//! the 27B: logits, drafts, and the greedy text, verified in blocks.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use volley_kernels::CudaOps;
use volley_model::{Checkpoint, Drafter, HiddenRows, Limits, Mtp, Target};
use volley_ops::{Batch, Ops, Result, Segment};

use super::Checks;
use super::model::failed;
use crate::pair::{Devices, relative};

/// Rounding of bf16 activations through four layers; a window that is off by one moves the drafter's
/// by three times that.
const TOLERANCE: f64 = 6e-2;
/// Another token than the CPU's has a logit no further below, in standard deviations of the row.
const NEAR_TIE: f64 = 0.1;
const LENGTHS: [usize; 6] = [1, 3, 63, 64, 65, 150];
const BLOCK: usize = 16;
/// Prompt tokens and blocks of the greedy text; fewer for the emulation.
const TEXT: [usize; 2] = [64, 10];
const SHORT_TEXT: [usize; 2] = [20, 2];
const LIMITS: Limits = Limits {
    max_rows: 160,
    verify_rows: 48,
    slots: 1,
    blocks: 24,
};

pub fn golden(checks: &mut Checks) {
    let folder = checks.goldens.clone();
    let golden = Golden::read(&folder, "target_wide_goldens");
    let full = checks.full();
    for n in LENGTHS.into_iter().filter(|n| full || *n < 64) {
        checks.case("golden", format!("logits after {n} tokens"), |d| {
            let golden = golden.as_ref().map_err(failed)?;
            let mut target = target(d.gpu, &folder, &[])?;
            let logits = Text::default().prefill(d.gpu, &mut target, &golden.ids("ids")?[..n])?;
            let expected = golden.floats(&format!("logits.{n}"))?;
            let found = &logits[logits.len() - expected.len()..];
            Ok(vec![(relative(found, &expected), TOLERANCE)])
        });
    }
    if full {
        checks.case("golden", "drafts of the MTP head".to_string(), |d| {
            let golden = golden.as_ref().map_err(failed)?;
            mtp(d.gpu, &folder, golden)
        });
    }
    checks.case("golden", "drafts of the drafter".to_string(), |d| {
        let golden = Golden::read(&folder, "drafter_wide_goldens").map_err(failed)?;
        drafts(d.gpu, &folder, &golden)
    });
    let [prompt, blocks] = if full { TEXT } else { SHORT_TEXT };
    let case = format!("greedy text of {} tokens", BLOCK * blocks);
    checks.case("golden", case, |d| {
        let golden = golden.as_ref().map_err(failed)?;
        let gaps = greedy(d, &folder, &golden.ids("ids")?[..prompt], blocks)?;
        Ok(vec![(largest("greedy text", gaps), NEAR_TIE)])
    });
}

fn open(folder: &Path, name: &str) -> Result<Checkpoint> {
    Checkpoint::open(&folder.join(name)).map_err(failed)
}

fn target<O: Ops>(ops: &O, folder: &Path, taps: &[usize]) -> Result<Target<O>> {
    Target::load(ops, &open(folder, "target_wide")?, taps, LIMITS).map_err(failed)
}

/// Hidden rows of the head, and of the chain that follows.
fn mtp(ops: &CudaOps, folder: &Path, golden: &Golden) -> Result<Vec<(f64, f64)>> {
    let mut target = target(ops, folder, &[])?;
    let checkpoint = open(folder, "target_wide")?;
    let mut head = Mtp::load(ops, &checkpoint, target.config(), LIMITS).map_err(failed)?;
    let (ids, tokens) = (golden.ids("ids")?, golden.ids("mtp.tokens")?);
    let mut text = Text::default();
    let batch = text.batch(ids.len());
    text.prefill(ops, &mut target, &ids)?;
    let rows: Vec<u32> = (0..ids.len() as u32).collect();
    let input = HiddenRows::Target(&rows);
    head.forward(ops, &target, &tokens, input, &batch)
        .map_err(failed)?;
    let mut distances = Vec::new();
    let mut compare = |found: &[f32], name: &str| -> Result<()> {
        distances.push((relative(found, &golden.floats(name)?), TOLERANCE));
        Ok(())
    };
    compare(&ops.read(head.hidden(), 0..ids.len())?, "mtp.hidden")?;
    let (mut hidden, mut logits) = (Vec::new(), Vec::new());
    let mut row = ids.len() as u32 - 1;
    for id in golden.ids("mtp.chain.tokens")? {
        let input = HiddenRows::Head(std::slice::from_ref(&row));
        head.forward(ops, &target, &[id], input, &text.batch(1))
            .map_err(failed)?;
        (text.past, row) = (text.past + 1, 0);
        hidden.extend(ops.read(head.hidden(), 0..1)?);
        logits.extend(head.logits(ops, &mut target, &[0]).map_err(failed)?);
    }
    compare(&hidden, "mtp.chain.hidden")?;
    compare(&logits, "mtp.chain.logits")?;
    Ok(distances)
}

/// Prompt, taps, a block: its hidden rows, and the largest gap to a draft that is another.
fn drafts(ops: &CudaOps, folder: &Path, golden: &Golden) -> Result<Vec<(f64, f64)>> {
    let checkpoint = open(folder, "drafter_wide")?;
    let mut target = target(ops, folder, &[0, 1, 2, 3])?;
    let config = target.config().clone();
    let mut drafter = Drafter::load(ops, &checkpoint, &config, LIMITS).map_err(failed)?;
    let ids = golden.ids("step.ids")?;
    let mut text = Text::default();
    let batch = text.batch(ids.len());
    text.prefill(ops, &mut target, &ids)?;
    let rows: Vec<u32> = (0..ids.len() as u32).collect();
    drafter
        .append(ops, target.taps(), &rows, &batch)
        .map_err(failed)?;
    let bonus = golden.ids("step.bonus")?;
    let logits = drafter.draft_logits(ops, &mut target, &bonus, &text.batch(BLOCK));
    let logits = logits.map_err(failed)?;
    let out = ops.read(drafter.hidden(), 0..BLOCK)?;
    let expected = golden.ids("step.drafts")?.into_iter();
    let expected = expected.zip(golden.floats("step.gaps")?);
    let gaps = logits.chunks(config.vocab_size).zip(expected);
    let gaps = gaps.map(
        |(row, (expected, gap))| match argmax(row) == expected as usize {
            true => 0.0,
            false => f64::from(gap) / spread(row),
        },
    );
    Ok(vec![
        (relative(&out, &golden.floats("step.out")?), TOLERANCE),
        (largest("drafts", gaps.collect()), NEAR_TIE),
    ])
}

/// The largest of the gaps at the tokens of a text; those that are not 0 are told.
fn largest(what: &str, gaps: Vec<f64>) -> f64 {
    for (token, gap) in gaps.iter().enumerate().filter(|(_, gap)| **gap > 0.0) {
        eprintln!("{what}: another token {token}, {gap:.1e} standard deviations below");
    }
    gaps.into_iter().fold(0.0, f64::max)
}

/// The CPU's greedy text, token by token; the GPU takes it in by blocks, and must choose the same
/// token after every one. How far below the CPU's its choice is, by the CPU's logits, for each token.
fn greedy(d: &Devices, folder: &Path, prompt: &[u32], blocks: usize) -> Result<Vec<f64>> {
    let Devices { cpu, gpu, .. } = *d;
    let mut on_cpu = target(cpu, folder, &[])?;
    let vocab = on_cpu.config().vocab_size;
    let mut text = Text::default();
    let logits = text.prefill(cpu, &mut on_cpu, prompt)?;
    let mut rows = vec![logits[logits.len() - vocab..].to_vec()];
    let mut tokens = Vec::new();
    while tokens.len() < BLOCK * blocks {
        tokens.push(argmax(&rows[tokens.len()]) as u32);
        rows.push(text.verify(cpu, &mut on_cpu, &tokens[tokens.len() - 1..])?);
    }
    let mut on_gpu = target(gpu, folder, &[])?;
    let mut text = Text::default();
    let logits = text.prefill(gpu, &mut on_gpu, prompt)?;
    let mut found = logits[logits.len() - vocab..].to_vec();
    for block in tokens.chunks(BLOCK) {
        found.extend(text.verify(gpu, &mut on_gpu, block)?);
    }
    let pairs = rows.iter().zip(found.chunks(vocab));
    let gap = |(row, found): (&Vec<f32>, &[f32])| {
        let gap = row[argmax(row)] - row[argmax(found)];
        f64::from(gap) / spread(row)
    };
    Ok(pairs.map(gap).collect())
}

fn argmax(row: &[f32]) -> usize {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    best.unwrap_or_default()
}

/// Standard deviation of a row.
fn spread(row: &[f32]) -> f64 {
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / row.len() as f64;
    let centre = mean(&mut row.iter().map(|&x| f64::from(x)));
    mean(&mut row.iter().map(|&x| (f64::from(x) - centre).powi(2))).sqrt()
}

/// The one text of a model, its blocks in no order.
#[derive(Default)]
struct Text {
    past: usize,
}

impl Text {
    fn batch(&self, rows: usize) -> Batch {
        let segment = Segment {
            rows: 0..rows,
            slot: 0,
            past: self.past,
            blocks: (0..LIMITS.blocks as u32).map(|i| i * 7 % 24).collect(),
            parents: None,
        };
        Batch {
            segments: vec![segment],
        }
    }

    /// Logits of all rows.
    fn prefill<O: Ops>(
        &mut self,
        ops: &O,
        target: &mut Target<O>,
        ids: &[u32],
    ) -> Result<Vec<f32>> {
        target.reset(ops, 0).map_err(failed)?;
        let batch = self.batch(ids.len());
        target.prefill(ops, ids, &batch).map_err(failed)?;
        self.past += ids.len();
        let rows: Vec<u32> = (0..ids.len() as u32).collect();
        target.logits(ops, &rows).map_err(failed)
    }

    /// Logits of all rows, which are all kept.
    fn verify<O: Ops>(&mut self, ops: &O, target: &mut Target<O>, ids: &[u32]) -> Result<Vec<f32>> {
        let batch = self.batch(ids.len());
        target.verify(ops, ids, &batch).map_err(failed)?;
        let rows: Vec<u32> = (0..ids.len() as u32).collect();
        let logits = target.logits(ops, &rows).map_err(failed)?;
        target.commit(ops, &batch, &vec![rows]).map_err(failed)?;
        self.past += ids.len();
        Ok(logits)
    }
}

/// The tensors of one fixture file.
struct Golden {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Golden {
    fn read(folder: &Path, name: &str) -> std::result::Result<Self, String> {
        let path = folder.join(format!("{name}.safetensors"));
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self { path, bytes }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn data(&self, name: &str) -> Result<Vec<u8>> {
        let wrong = |error| failed(format!("{}: {name}: {error}", self.path.display()));
        let all = SafeTensors::deserialize(&self.bytes).map_err(wrong)?;
        Ok(all.tensor(name).map_err(wrong)?.data().to_vec())
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>> {
        let data = self.data(name)?;
        let (values, _) = data.as_chunks::<4>();
        Ok(values.iter().map(|v| f32::from_le_bytes(*v)).collect())
    }

    fn ids(&self, name: &str) -> Result<Vec<u32>> {
        let data = self.data(name)?;
        let (values, _) = data.as_chunks::<8>();
        let id = |value: &[u8; 8]| i64::from_le_bytes(*value) as u32;
        Ok(values.iter().map(id).collect())
    }
}
