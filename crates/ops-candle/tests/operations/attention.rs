use volley_ops::{AttentionDims, AttentionMask, Batch, NormKind, Ops, RopeTable, Segment};
use volley_ops_candle::{Buf, CandleOps, Kv};

use crate::common::{Random, alloc, assert_close, bits, cpu, norm, read, sigmoid, upload, wide};

const EPS: f32 = 1e-6;

/// One attention layer with its weights and cache.
struct Layer {
    dims: AttentionDims,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    inv_freq: Vec<f32>,
    scale: f32,
    kv: Kv,
}

impl Layer {
    fn random(ops: &CandleOps, random: &mut Random, dims: AttentionDims, blocks: usize) -> Self {
        let pairs = dims.rotary_dim / 2;
        let frequency = |i| 1e4f32.powf(-(i as f32) / pairs as f32);
        Self {
            dims,
            q_norm: random.values(dims.head_dim),
            k_norm: random.values(dims.head_dim),
            inv_freq: (0..pairs).map(frequency).collect(),
            scale: 1.25,
            kv: ops.kv(dims.kv(), blocks).unwrap(),
        }
    }

    fn rope(&self, ops: &CandleOps) -> RopeTable<Buf> {
        RopeTable {
            inv_freq: upload(ops, &self.inv_freq, self.inv_freq.len()),
            scale: self.scale,
        }
    }

    /// Writes the cache and gives the attention of each row.
    fn run(
        &mut self,
        ops: &CandleOps,
        proj: &[f32],
        mask: AttentionMask,
        batch: &Batch,
    ) -> Vec<f32> {
        let (dims, n) = (self.dims, batch.rows());
        let proj = upload(ops, proj, dims.proj_width());
        let q_norm = upload(ops, &self.q_norm, dims.head_dim);
        let k_norm = upload(ops, &self.k_norm, dims.head_dim);
        let mut q = alloc(ops, n, dims.query_width());
        let mut out = alloc(ops, n, dims.query_width());
        let rope = self.rope(ops);
        ops.attention_prepare(
            dims,
            &proj,
            &q_norm,
            &k_norm,
            &rope,
            batch,
            &mut q,
            &mut self.kv,
        )
        .unwrap();
        ops.attention(dims, &q, &proj, &self.kv, mask, batch, &mut out)
            .unwrap();
        read(ops, &out, n)
    }

    /// Packed keys and values only.
    fn append(&mut self, ops: &CandleOps, proj: &[f32], batch: &Batch) {
        let width = 2 * self.dims.kv_width();
        let pairs: Vec<f32> = proj
            .chunks_exact(self.dims.proj_width())
            .flat_map(|row| row[row.len() - width..].to_vec())
            .collect();
        let k_norm = upload(ops, &self.k_norm, self.dims.head_dim);
        let (proj, rope) = (upload(ops, &pairs, width), self.rope(ops));
        ops.kv_append(self.dims, &proj, &k_norm, &rope, batch, &mut self.kv)
            .unwrap();
    }

    fn head(&self, x: &[f64], weight: &[f32], position: usize) -> Vec<f64> {
        let shift = if self.dims.norm == NormKind::ZeroCentred {
            1.0
        } else {
            0.0
        };
        let mut x = norm(x, &wide(weight), shift, f64::from(EPS));
        let half = self.inv_freq.len();
        for i in 0..half {
            let angle = position as f64 * f64::from(self.inv_freq[i]);
            let (sin, cos) = angle.sin_cos();
            let (sin, cos) = (sin * f64::from(self.scale), cos * f64::from(self.scale));
            (x[i], x[i + half]) = (
                x[i] * cos - x[i + half] * sin,
                x[i + half] * cos + x[i] * sin,
            );
        }
        x
    }

    /// Attention of a packed row at `position` over (packed row, position) pairs.
    fn wanted(&self, row: &[f32], position: usize, seen: &[(&[f32], usize)]) -> Vec<f64> {
        let (dims, d) = (self.dims, self.dims.head_dim);
        let row = wide(row);
        let stride = if dims.gated { 2 * d } else { d };
        let mut out = Vec::new();
        for head in 0..dims.heads {
            let q = self.head(&row[head * stride..][..d], &self.q_norm, position);
            let kv_head = head / (dims.heads / dims.kv_heads);
            let (mut scores, mut values) = (Vec::new(), Vec::new());
            for (row, position) in seen {
                let pair = wide(&row[dims.heads * stride..]);
                let k = self.head(&pair[kv_head * d..][..d], &self.k_norm, *position);
                let dot: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
                scores.push(dot / (d as f64).sqrt());
                values.push(pair[dims.kv_width() + kv_head * d..][..d].to_vec());
            }
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - highest).exp()).sum();
            for i in 0..d {
                let mean: f64 = scores
                    .iter()
                    .zip(&values)
                    .map(|(s, v)| (s - highest).exp() / sum * v[i])
                    .sum();
                let gate = if dims.gated {
                    sigmoid(row[head * stride + d + i])
                } else {
                    1.0
                };
                out.push(mean * gate);
            }
        }
        out
    }
}

/// A sequence: its committed packed rows and its shuffled blocks.
struct Sequence {
    text: Vec<Vec<f32>>,
    blocks: Vec<u32>,
}

fn segment(
    sequence: &Sequence,
    start: usize,
    rows: usize,
    parents: Option<Vec<Option<u32>>>,
) -> Segment {
    Segment {
        rows: start..start + rows,
        slot: 0,
        past: sequence.text.len(),
        blocks: sequence.blocks.clone(),
        parents,
    }
}

fn wanted_pass(
    layer: &Layer,
    sequences: &[Sequence],
    batch: &Batch,
    proj: &[Vec<f32>],
    mask: AttentionMask,
) -> Vec<f64> {
    let mut wanted = Vec::new();
    for (sequence, segment) in sequences.iter().zip(&batch.segments) {
        for i in 0..segment.rows.len() {
            let position = segment.position(i);
            let ancestors: Vec<usize> =
                std::iter::successors(Some(i), |&r| segment.parent(r)).collect();
            let context = sequence
                .text
                .iter()
                .enumerate()
                .map(|(at, row)| (row.as_slice(), at));
            let rows = (0..segment.rows.len())
                .filter(|row| !mask.causal || ancestors.contains(row))
                .map(|row| {
                    (
                        proj[segment.rows.start + row].as_slice(),
                        segment.position(row),
                    )
                });
            let seen: Vec<_> = context
                .chain(rows)
                .filter(|(_, at)| mask.window.is_none_or(|window| at + window > position))
                .collect();
            wanted.extend(layer.wanted(&proj[segment.rows.start + i], position, &seen));
        }
    }
    wanted
}

#[test]
fn attention_over_shuffled_pages_equals_the_definition() {
    let (ops, mut random) = (cpu(), Random::new(40));
    let block = ops.block_size();
    for round in 0..24 {
        let kv_heads = random.between(1, 2);
        let dims = AttentionDims {
            heads: kv_heads * random.between(1, 3),
            kv_heads,
            head_dim: [16, 36, 64][round % 3],
            rotary_dim: [16, 12, 32][round % 3],
            gated: random.coin(),
            norm: if random.coin() {
                NormKind::ZeroCentred
            } else {
                NormKind::Plain
            },
            eps: EPS,
        };
        let mut layer = Layer::random(&ops, &mut random, dims, 24);
        let mut free = random.shuffled(24);
        let mut sequences: Vec<Sequence> = (0..2)
            .map(|_| Sequence {
                text: Vec::new(),
                blocks: free.split_off(free.len() - 12),
            })
            .collect();
        for pass in 0..6 {
            let mut batch = Batch::default();
            for sequence in &sequences {
                let room = 12 * block - sequence.text.len();
                let n = random.between(1, room.min(24));
                let parents = (pass % 2 == 1).then(|| random.tree(n));
                batch
                    .segments
                    .push(segment(sequence, batch.rows(), n, parents));
            }
            let mask = AttentionMask {
                causal: random.below(3) > 0,
                window: random.coin().then(|| random.between(1, 40)),
            };
            let proj: Vec<Vec<f32>> = (0..batch.rows())
                .map(|_| random.values(dims.proj_width()))
                .collect();
            let got = layer.run(&ops, &proj.concat(), mask, &batch);
            let want = wanted_pass(&layer, &sequences, &batch, &proj, mask);
            assert_close("attention", &got, &want, 1e-5);

            let keep: Vec<Vec<u32>> = batch.segments.iter().map(|s| random.path(s)).collect();
            ops.kv_commit(dims.kv(), &batch, &keep, &mut layer.kv)
                .unwrap();
            for ((sequence, segment), kept) in sequences.iter_mut().zip(&batch.segments).zip(&keep)
            {
                let rows = kept
                    .iter()
                    .map(|&row| proj[segment.rows.start + row as usize].clone());
                sequence.text.extend(rows);
            }
        }
    }
}

const PLAIN: AttentionDims = AttentionDims {
    heads: 4,
    kv_heads: 2,
    head_dim: 32,
    rotary_dim: 32,
    gated: false,
    norm: NormKind::Plain,
    eps: EPS,
};

#[test]
fn appended_context_is_the_context_that_passes_leave() {
    let (ops, mut random) = (cpu(), Random::new(41));
    let mut layer = Layer::random(&ops, &mut random, PLAIN, 8);
    let text: Vec<Vec<f32>> = (0..40).map(|_| random.values(PLAIN.proj_width())).collect();
    let mut sequence = Sequence {
        text: Vec::new(),
        blocks: random.shuffled(8),
    };
    for part in text.chunks(13) {
        let batch = Batch {
            segments: vec![segment(&sequence, 0, part.len(), None)],
        };
        layer.append(&ops, &part.concat(), &batch);
        sequence.text.extend_from_slice(part);
    }
    let block: Vec<Vec<f32>> = (0..16).map(|_| random.values(PLAIN.proj_width())).collect();
    let batch = Batch {
        segments: vec![segment(&sequence, 0, 16, None)],
    };
    for mask in [
        AttentionMask::CAUSAL,
        AttentionMask {
            causal: false,
            window: None,
        },
        AttentionMask {
            causal: true,
            window: Some(20),
        },
    ] {
        let got = layer.run(&ops, &block.concat(), mask, &batch);
        let want = wanted_pass(
            &layer,
            std::slice::from_ref(&sequence),
            &batch,
            &block,
            mask,
        );
        assert_close("block", &got, &want, 1e-5);
    }
}

#[test]
fn a_row_has_the_same_bits_in_a_pass_of_its_own() {
    let (ops, mut random) = (cpu(), Random::new(42));
    let mut layer = Layer::random(&ops, &mut random, PLAIN, 8);
    // Enough rows to be shared by threads.
    let rows: Vec<Vec<f32>> = (0..100)
        .map(|_| random.values(PLAIN.proj_width()))
        .collect();
    let mut sequence = Sequence {
        text: Vec::new(),
        blocks: random.shuffled(8),
    };
    let mask = AttentionMask {
        causal: true,
        window: Some(30),
    };
    let all = Batch {
        segments: vec![segment(&sequence, 0, rows.len(), None)],
    };
    let together = layer.run(&ops, &rows.concat(), mask, &all);
    for (i, row) in rows.iter().enumerate() {
        let one = Batch {
            segments: vec![segment(&sequence, 0, 1, None)],
        };
        let got = layer.run(&ops, row, mask, &one);
        assert_eq!(
            bits(&got),
            bits(&together[i * got.len()..(i + 1) * got.len()]),
            "row {i}"
        );
        sequence.text.push(row.clone());
    }
}

#[test]
fn a_path_through_a_tree_has_the_bits_of_the_chain() {
    let (ops, mut random) = (cpu(), Random::new(43));
    let mut layer = Layer::random(&ops, &mut random, PLAIN, 8);
    let mut sequence = Sequence {
        text: Vec::new(),
        blocks: random.shuffled(8),
    };
    let context: Vec<Vec<f32>> = (0..27).map(|_| random.values(PLAIN.proj_width())).collect();
    let batch = Batch {
        segments: vec![segment(&sequence, 0, context.len(), None)],
    };
    layer.append(&ops, &context.concat(), &batch);
    sequence.text = context;
    // Rows 0, 2, 3, 6 are a path; the others lead elsewhere. The rows cross a block.
    let parents = [None, Some(0), Some(0), Some(2), Some(1), Some(4), Some(3)];
    let rows: Vec<Vec<f32>> = parents.map(|_| random.values(PLAIN.proj_width())).to_vec();
    let tree = Batch {
        segments: vec![segment(&sequence, 0, rows.len(), Some(parents.to_vec()))],
    };
    let from_tree = layer.run(&ops, &rows.concat(), AttentionMask::CAUSAL, &tree);
    let path = [0, 2, 3, 6];
    let chain = Batch {
        segments: vec![segment(&sequence, 0, path.len(), None)],
    };
    let on_path: Vec<f32> = path
        .iter()
        .flat_map(|&row: &usize| rows[row].clone())
        .collect();
    let from_chain = layer.run(&ops, &on_path, AttentionMask::CAUSAL, &chain);
    for (row, want) in path
        .iter()
        .zip(from_chain.chunks_exact(PLAIN.query_width()))
    {
        let got = &from_tree[row * want.len()..(row + 1) * want.len()];
        assert_eq!(bits(got), bits(want), "row {row}");
    }
}
