use volley_ops::{Batch, GdnDims, GdnRows, Ops};
use volley_ops_candle::{Buf, CandleOps, RecurrentInput, recurrent};

use crate::common::{Random, alloc, alone, assert_close, bits, chains, cpu, read, upload, wide};

/// Inputs of the delta rule, in f32 as given and in f64.
pub struct Tokens {
    pub dims: GdnDims,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub g: Vec<f32>,
    pub beta: Vec<f32>,
}

impl Tokens {
    fn random(random: &mut Random, dims: GdnDims, n: usize, correlated: bool) -> Self {
        let mut unit = |scale: f32, shared: &[f32]| -> Vec<f32> {
            let heads = (0..n * dims.key_heads).flat_map(|_| {
                let mut x = random.values(dims.key_dim);
                x.iter_mut()
                    .zip(shared)
                    .for_each(|(x, s)| *x = 0.3 * *x + 2.0 * s);
                let length = x.iter().map(|x| x * x).sum::<f32>().sqrt();
                x.iter_mut().for_each(|x| *x *= scale / length);
                x
            });
            heads.collect()
        };
        let q = unit((dims.key_dim as f32).powf(-0.5), &[]);
        let shared = if correlated {
            Random::new(9).values(dims.key_dim)
        } else {
            Vec::new()
        };
        let k = unit(1.0, &shared);
        // Slow decay and strong writes make the triangular system hard; fast decay is common too.
        let slowest = if correlated { 0.05 } else { 2.0 };
        Self {
            dims,
            q,
            k,
            v: random.values(n * dims.value_width()),
            g: (0..n * dims.value_heads)
                .map(|_| -random.value(0.0, slowest))
                .collect(),
            beta: (0..n * dims.value_heads)
                .map(|_| random.value(0.05, 0.99))
                .collect(),
        }
    }

    pub fn upload(&self, ops: &CandleOps) -> GdnRows<Buf> {
        let (keys, values) = (
            self.dims.key_heads * self.dims.key_dim,
            self.dims.value_width(),
        );
        GdnRows {
            q: upload(ops, &self.q, keys),
            k: upload(ops, &self.k, keys),
            v: upload(ops, &self.v, values),
            g: upload(ops, &self.g, self.dims.value_heads),
            beta: upload(ops, &self.beta, self.dims.value_heads),
            u: alloc(ops, self.g.len() / self.dims.value_heads, values),
        }
    }

    /// The plain recurrence over some of the rows.
    pub fn recurrent(&self, rows: &[u32], state: &mut [f64]) -> Vec<f64> {
        let pick = |data: &[f32], width: usize| -> Vec<f64> {
            rows.iter()
                .flat_map(|&row| wide(&data[row as usize * width..][..width]))
                .collect()
        };
        let (keys, heads) = (
            self.dims.key_heads * self.dims.key_dim,
            self.dims.value_heads,
        );
        let input = RecurrentInput {
            q: &pick(&self.q, keys),
            k: &pick(&self.k, keys),
            v: &pick(&self.v, self.dims.value_width()),
            g: &pick(&self.g, heads),
            beta: &pick(&self.beta, heads),
        };
        recurrent(self.dims, input, state)
    }
}

fn dims(key_heads: usize, value_heads: usize, key_dim: usize, value_dim: usize) -> GdnDims {
    GdnDims {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        conv_kernel: 4,
    }
}

#[test]
fn the_recurrence_by_hand() {
    // One head, 1 x 1: S = 3 decays to 1.5, correction 0.5 (2 - 1.5 * 1) = 0.25, output 2 * 1.75.
    let input = RecurrentInput {
        q: &[2.0],
        k: &[1.0],
        v: &[2.0],
        g: &[0.5f64.ln()],
        beta: &[0.5],
    };
    let mut state = [3.0];
    let out = recurrent(dims(1, 1, 1, 1), input, &mut state);
    assert!((out[0] - 3.5).abs() < 1e-12 && (state[0] - 1.75).abs() < 1e-12);
}

#[test]
fn prefill_equals_the_recurrence() {
    let (ops, mut random) = (cpu(), Random::new(20));
    for (round, dims) in [dims(2, 4, 128, 128), dims(1, 3, 16, 8), dims(3, 3, 20, 33)]
        .iter()
        .cycle()
        .take(18)
        .enumerate()
    {
        let dims = *dims;
        let segments = random.between(1, 3);
        let lengths: Vec<usize> = (0..segments).map(|_| random.between(1, 150)).collect();
        let slots = random.shuffled(segments + 1);
        let batch = chains(&lengths, &slots);
        let tokens = Tokens::random(&mut random, dims, batch.rows(), round % 2 == 0);
        let initial = random.values((segments + 1) * dims.state_len());
        let mut state = upload(&ops, &initial, dims.state_len());
        let mut out = alloc(&ops, batch.rows(), dims.value_width());
        ops.gdn_prefill(dims, &tokens.upload(&ops), &batch, &mut state, &mut out)
            .unwrap();
        let got = read(&ops, &out, batch.rows());
        let mut wanted_states = wide(&initial);
        for segment in &batch.segments {
            let rows: Vec<u32> = segment.rows.clone().map(|row| row as u32).collect();
            let state = &mut wanted_states[segment.slot * dims.state_len()..][..dims.state_len()];
            let want = tokens.recurrent(&rows, state);
            let got = &got[segment.rows.start * dims.value_width()..][..want.len()];
            assert_close("prefill", got, &want, 1e-5);
        }
        assert_close(
            "state",
            &read(&ops, &state, segments + 1),
            &wanted_states,
            1e-5,
        );
    }
}

#[test]
fn two_hundred_rounds_of_verify_and_commit_equal_the_recurrence() {
    let ops = cpu();
    let mut trees = 0;
    for correlated in [false, true] {
        let mut random = Random::new(21);
        let dims = dims(1, 2, 128, 128);
        let initial = random.values(2 * dims.state_len());
        let mut state = upload(&ops, &initial, dims.state_len());
        let mut wanted = wide(&initial[dims.state_len()..]);
        for _ in 0..200 {
            let n = random.between(1, 32);
            let parents = (random.below(4) > 0).then(|| random.tree(n));
            let batch = alone(n, 1, parents);
            let tokens = Tokens::random(&mut random, dims, n, correlated);
            let mut rows = tokens.upload(&ops);
            let mut out = alloc(&ops, n, dims.value_width());
            let before = read(&ops, &state, 2);
            ops.gdn_verify(dims, &mut rows, &batch, &state, &mut out)
                .unwrap();
            assert_eq!(
                bits(&before),
                bits(&read(&ops, &state, 2)),
                "verify reads the state only"
            );
            if batch.segments[0].parents.is_some() {
                trees += 1;
                every_node(&ops, &tokens, &batch, &wanted, &out);
            }
            let kept = random.path(&batch.segments[0]);
            let want = tokens.recurrent(&kept, &mut wanted);
            let got: Vec<f32> = kept
                .iter()
                .flat_map(|&row| ops.read(&out, row as usize..row as usize + 1).unwrap())
                .collect();
            assert_close("outputs along the path", &got, &want, 1e-5);
            ops.gdn_commit(dims, &rows, &batch, &vec![kept], &mut state)
                .unwrap();
            let got = read(&ops, &state, 2);
            assert_close("state", &got[dims.state_len()..], &wanted, 1e-5);
            assert_eq!(
                got[..dims.state_len()],
                initial[..dims.state_len()],
                "another slot"
            );
        }
    }
    assert!(trees >= 200, "every node of {trees} trees");
}

fn every_node(ops: &CandleOps, tokens: &Tokens, batch: &Batch, state: &[f64], out: &Buf) {
    let segment = &batch.segments[0];
    for row in 0..segment.rows.len() {
        let mut path: Vec<u32> = std::iter::successors(Some(row), |&r| segment.parent(r))
            .map(|r| r as u32)
            .collect();
        path.reverse();
        let want = tokens.recurrent(&path, &mut state.to_vec());
        let last = &want[want.len() - tokens.dims.value_width()..];
        assert_close("node", &ops.read(out, row..row + 1).unwrap(), last, 1e-5);
    }
}

#[test]
fn verify_takes_several_segments_and_commit_skips_what_is_not_kept() {
    let (ops, mut random) = (cpu(), Random::new(22));
    let dims = dims(2, 4, 32, 16);
    let mut batch = chains(&[5, 1, 7], &[3, 0, 1]);
    batch.segments[2].parents = Some(random.tree(7));
    let tokens = Tokens::random(&mut random, dims, 13, false);
    let initial = random.values(4 * dims.state_len());
    let mut state = upload(&ops, &initial, dims.state_len());
    let mut rows = tokens.upload(&ops);
    let mut out = alloc(&ops, 13, dims.value_width());
    ops.gdn_verify(dims, &mut rows, &batch, &state, &mut out)
        .unwrap();
    let keep = vec![vec![0, 1, 2], vec![], random.path(&batch.segments[2])];
    ops.gdn_commit(dims, &rows, &batch, &keep, &mut state)
        .unwrap();
    let mut want = wide(&initial);
    for (segment, kept) in batch.segments.iter().zip(&keep) {
        let kept: Vec<u32> = kept
            .iter()
            .map(|row| row + segment.rows.start as u32)
            .collect();
        let state = &mut want[segment.slot * dims.state_len()..][..dims.state_len()];
        tokens.recurrent(&kept, state);
    }
    let got = read(&ops, &state, 4);
    assert_close("states", &got, &want, 1e-5);
    for untouched in [0, 2] {
        let at = untouched * dims.state_len()..(untouched + 1) * dims.state_len();
        assert_eq!(
            bits(&got[at.clone()]),
            bits(&initial[at]),
            "slot {untouched}"
        );
    }
}

#[test]
fn a_verified_row_depends_on_its_ancestors_only() {
    let (ops, mut random) = (cpu(), Random::new(23));
    let dims = dims(1, 2, 128, 128);
    let tokens = Tokens::random(&mut random, dims, 16, true);
    let state = upload(&ops, &random.values(dims.state_len()), dims.state_len());
    let outputs = |n: usize| {
        let mut rows = tokens.upload(&ops);
        let mut out = alloc(&ops, n, dims.value_width());
        ops.gdn_verify(dims, &mut rows, &alone(n, 0, None), &state, &mut out)
            .unwrap();
        (read(&ops, &out, n), read(&ops, &rows.u, n))
    };
    let (out, u) = outputs(16);
    for n in [1, 2, 7, 15] {
        let (fewer, fewer_u) = outputs(n);
        assert_eq!(bits(&fewer), bits(&out[..fewer.len()]), "{n} rows");
        assert_eq!(bits(&fewer_u), bits(&u[..fewer_u.len()]), "{n} rows");
    }
}

#[test]
fn a_path_through_a_tree_has_the_bits_of_the_chain() {
    let (ops, mut random) = (cpu(), Random::new(24));
    let dims = dims(1, 2, 128, 128);
    let tokens = Tokens::random(&mut random, dims, 7, true);
    let state = upload(&ops, &random.values(dims.state_len()), dims.state_len());
    let parents = vec![None, Some(0), Some(0), Some(2), Some(1), Some(4), Some(3)];
    let path = [0, 2, 3, 6];
    let verify = |rows: &mut GdnRows<Buf>, batch: &Batch| {
        let mut out = alloc(&ops, batch.rows(), dims.value_width());
        ops.gdn_verify(dims, rows, batch, &state, &mut out).unwrap();
        out
    };
    let from_tree = verify(&mut tokens.upload(&ops), &alone(7, 0, Some(parents)));
    let all = tokens.upload(&ops);
    let pick = |buf: &Buf| {
        let mut picked = alloc(&ops, path.len(), buf.width());
        ops.gather(buf, &path, &mut picked).unwrap();
        picked
    };
    let mut on_path = GdnRows {
        q: pick(&all.q),
        k: pick(&all.k),
        v: pick(&all.v),
        g: pick(&all.g),
        beta: pick(&all.beta),
        u: pick(&all.u),
    };
    let from_chain = verify(&mut on_path, &alone(path.len(), 0, None));
    assert_eq!(
        bits(&read(&ops, &pick(&from_tree), path.len())),
        bits(&read(&ops, &from_chain, path.len()))
    );
}

#[test]
fn strong_decay_forgets_the_past_exactly() {
    let (ops, mut random) = (cpu(), Random::new(25));
    let dims = dims(1, 1, 16, 16);
    let mut tokens = Tokens::random(&mut random, dims, 40, false);
    tokens.g = (0..40).map(|_| -random.value(0.0, 60.0)).collect();
    let batch = alone(40, 0, None);
    let initial = random.values(dims.state_len());
    let mut state = upload(&ops, &initial, dims.state_len());
    let mut out = alloc(&ops, 40, dims.value_width());
    ops.gdn_prefill(dims, &tokens.upload(&ops), &batch, &mut state, &mut out)
        .unwrap();
    let mut want_state = wide(&initial);
    let rows: Vec<u32> = (0..40).collect();
    let want = tokens.recurrent(&rows, &mut want_state);
    let got = read(&ops, &state, 1);
    assert_close("outputs", &read(&ops, &out, 40), &want, 1e-5);
    assert_close("state", &got, &want_state, 1e-5);
    assert!(
        got.iter().all(|s| *s == 0.0 || s.is_normal()),
        "a denormal state"
    );
}
