use volley_ops::{Batch, GdnDims, GdnRows, Ops, Segment};
use volley_ops_candle::{Buf, CandleOps};

use crate::common::{Random, alloc, assert_close, bits, cpu, read, sigmoid, upload, wide, zeros};

/// A layer's front: weights on the host and on the device.
struct Layer {
    dims: GdnDims,
    conv_w: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
}

/// What the front should give for one row.
#[derive(Default)]
struct Wanted {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    g: Vec<f64>,
    beta: Vec<f64>,
}

impl Layer {
    fn random(random: &mut Random, dims: GdnDims) -> Self {
        Self {
            dims,
            conv_w: random.values(dims.conv_channels() * dims.conv_kernel),
            a_log: random.values(dims.value_heads),
            dt_bias: random.values(dims.value_heads),
        }
    }

    /// Of the last row of a text given as packed projections.
    fn wanted(&self, text: &[Vec<f32>], wanted: &mut Wanted) {
        let (dims, taps) = (self.dims, self.dims.conv_kernel);
        let mixed: Vec<f64> = (0..dims.conv_channels())
            .map(|channel| {
                let newest_first = text.iter().rev().take(taps).enumerate();
                let sum: f64 = newest_first
                    .map(|(back, row)| {
                        let w = self.conv_w[channel * taps + taps - 1 - back];
                        f64::from(w) * f64::from(row[channel])
                    })
                    .sum();
                sum * sigmoid(sum)
            })
            .collect();
        let keys = dims.key_heads * dims.key_dim;
        let unit = |x: &[f64], scale: f64| -> Vec<f64> {
            x.chunks_exact(dims.key_dim)
                .flat_map(|head| {
                    let length = (head.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    head.iter().map(|x| x * scale / length).collect::<Vec<_>>()
                })
                .collect()
        };
        wanted
            .q
            .extend(unit(&mixed[..keys], (dims.key_dim as f64).powf(-0.5)));
        wanted.k.extend(unit(&mixed[keys..2 * keys], 1.0));
        wanted.v.extend(&mixed[2 * keys..]);
        let row = wide(text.last().unwrap());
        let gates = &row[dims.conv_channels() + dims.value_width()..];
        let (b, a) = gates.split_at(dims.value_heads);
        wanted.beta.extend(b.iter().map(|&b| sigmoid(b)));
        wanted.g.extend((0..dims.value_heads).map(|head| {
            let x = a[head] + f64::from(self.dt_bias[head]);
            -f64::from(self.a_log[head]).exp() * x.exp().ln_1p()
        }));
    }

    fn prepare(&self, ops: &CandleOps, proj: &Buf, state: &Buf, batch: &Batch) -> GdnRows<Buf> {
        let (dims, n) = (self.dims, batch.rows());
        let keys = dims.key_heads * dims.key_dim;
        let mut rows = GdnRows {
            q: alloc(ops, n, keys),
            k: alloc(ops, n, keys),
            v: alloc(ops, n, dims.value_width()),
            g: alloc(ops, n, dims.value_heads),
            beta: alloc(ops, n, dims.value_heads),
            u: alloc(ops, n, dims.value_width()),
        };
        let conv_w = upload(ops, &self.conv_w, dims.conv_kernel);
        let a_log = upload(ops, &self.a_log, dims.value_heads);
        let dt_bias = upload(ops, &self.dt_bias, dims.value_heads);
        ops.gdn_prepare(
            dims, proj, &conv_w, &a_log, &dt_bias, state, batch, &mut rows,
        )
        .unwrap();
        rows
    }
}

#[test]
fn rows_convolve_over_their_ancestors_and_commits_move_the_window() {
    let (ops, mut random) = (cpu(), Random::new(30));
    for kernel in [4, 2, 1] {
        let dims = GdnDims {
            key_heads: 2,
            value_heads: 4,
            key_dim: 12,
            value_dim: 10,
            conv_kernel: kernel,
        };
        let layer = Layer::random(&mut random, dims);
        let mut state = zeros(&ops, 3, dims.conv_state_len());
        let mut texts: Vec<Vec<Vec<f32>>> = vec![Vec::new(); 3];
        for _ in 0..40 {
            let mut batch = Batch::default();
            for slot in random.shuffled(3).into_iter().take(2) {
                let (start, n) = (batch.rows(), random.between(1, 9));
                batch.segments.push(Segment {
                    rows: start..start + n,
                    slot: slot as usize,
                    past: texts[slot as usize].len(),
                    blocks: Vec::new(),
                    parents: random.coin().then(|| random.tree(n)),
                });
            }
            let n = batch.rows();
            let proj: Vec<Vec<f32>> = (0..n).map(|_| random.values(dims.proj_width())).collect();
            let proj_buf = upload(&ops, &proj.concat(), dims.proj_width());
            let rows = layer.prepare(&ops, &proj_buf, &state, &batch);
            let mut wanted = Wanted::default();
            for segment in &batch.segments {
                for i in 0..segment.rows.len() {
                    let mut path: Vec<usize> =
                        std::iter::successors(Some(i), |&r| segment.parent(r)).collect();
                    path.reverse();
                    let mut text = texts[segment.slot].clone();
                    text.extend(
                        path.iter()
                            .map(|row| proj[segment.rows.start + row].clone()),
                    );
                    layer.wanted(&text, &mut wanted);
                }
            }
            assert_close("q", &read(&ops, &rows.q, n), &wanted.q, 1e-5);
            assert_close("k", &read(&ops, &rows.k, n), &wanted.k, 1e-5);
            assert_close("v", &read(&ops, &rows.v, n), &wanted.v, 1e-5);
            assert_close("g", &read(&ops, &rows.g, n), &wanted.g, 1e-5);
            assert_close("beta", &read(&ops, &rows.beta, n), &wanted.beta, 1e-5);

            let keep: Vec<Vec<u32>> = batch.segments.iter().map(|s| random.path(s)).collect();
            ops.conv_commit(dims, &proj_buf, &batch, &keep, &mut state)
                .unwrap();
            for (segment, kept) in batch.segments.iter().zip(&keep) {
                let text = &mut texts[segment.slot];
                text.extend(
                    kept.iter()
                        .map(|&row| proj[segment.rows.start + row as usize].clone()),
                );
            }
        }
        // The windows hold the last inputs, oldest first, zeros before the text.
        let got = read(&ops, &state, 3);
        for (slot, text) in texts.iter().enumerate() {
            let window = kernel - 1;
            let mut want = vec![0.0; window.saturating_sub(text.len()) * dims.conv_channels()];
            for row in &text[text.len().saturating_sub(window)..] {
                want.extend_from_slice(&row[..dims.conv_channels()]);
            }
            let at = slot * dims.conv_state_len();
            assert_eq!(
                bits(&got[at..at + dims.conv_state_len()]),
                bits(&want),
                "slot {slot}"
            );
        }
    }
}

#[test]
fn extreme_gates_stay_finite() {
    let (ops, mut random) = (cpu(), Random::new(31));
    let dims = GdnDims {
        key_heads: 1,
        value_heads: 2,
        key_dim: 4,
        value_dim: 4,
        conv_kernel: 4,
    };
    let layer = Layer::random(&mut random, dims);
    let mut proj = vec![0.0; dims.proj_width()];
    let gates = dims.conv_channels() + dims.value_width();
    proj[gates..].copy_from_slice(&[200.0, -200.0, 200.0, -200.0]);
    let batch = crate::common::alone(1, 0, None);
    let state = zeros(&ops, 1, dims.conv_state_len());
    let rows = layer.prepare(
        &ops,
        &upload(&ops, &proj, dims.proj_width()),
        &state,
        &batch,
    );
    let mut wanted = Wanted::default();
    layer.wanted(&[proj], &mut wanted);
    assert_eq!(read(&ops, &rows.k, 1), [0.0; 4], "a zero key stays zero");
    assert_eq!(read(&ops, &rows.beta, 1), [1.0, 0.0]);
    let g = read(&ops, &rows.g, 1);
    let want = -f64::from(layer.a_log[0]).exp() * (200.0 + f64::from(layer.dt_bias[0]));
    assert!((f64::from(g[0]) - want).abs() < 1e-5 * want.abs(), "{g:?}");
    assert_eq!(g[1], 0.0);
}
