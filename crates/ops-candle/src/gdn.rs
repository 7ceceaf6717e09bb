//! The gated delta rule: outputs of a block of rows without touching the state, and folding rows
//! into it. Chains and trees, prompts (chunk by chunk) and drafts share these two steps.

use pulp::{Simd, WithSimd};
use volley_ops::{Batch, GdnDims, GdnRows, Keep, Result};

use crate::buf::{Buf, check};
use crate::checks::{check_batch, check_groups, check_keep, check_slots};
use crate::matmul::{Left, Right, multiply};
use crate::rows::head_rows;
use crate::simd::{add_weighted, dispatch, dot};
use crate::threads::Threads;

/// Rows solved at a time in a prompt.
const CHUNK: usize = 64;

/// Log decay beyond which what came before counts as nothing: 1e-30 of it would be left, and the
/// way there leads through denormal numbers, which take a CPU a hundred times longer.
const FORGOTTEN: f32 = -69.0;

fn decay(log: f32) -> f32 {
    if log > FORGOTTEN { log.exp() } else { 0.0 }
}

/// Rows of one segment as one value head sees them: `n` rows, each a slice at a stride.
#[derive(Clone, Copy)]
struct Head<'a> {
    dims: GdnDims,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    g: &'a [f32],
    beta: &'a [f32],
}

impl<'a> Head<'a> {
    fn new(dims: GdnDims, rows: &Views<'a>, first: usize, head: usize) -> Self {
        let key_head = head / (dims.value_heads / dims.key_heads);
        let key = first * rows.key_width + key_head * dims.key_dim;
        let gate = first * dims.value_heads + head;
        Self {
            dims,
            q: &rows.q[key..],
            k: &rows.k[key..],
            v: &rows.v[first * dims.value_width() + head * dims.value_dim..],
            g: &rows.g[gate..],
            beta: &rows.beta[gate..],
        }
    }

    fn keys(&self, data: &'a [f32]) -> Left<'a> {
        Left {
            data,
            stride: self.dims.key_heads * self.dims.key_dim,
            depth: self.dims.key_dim,
        }
    }

    fn key(&self, i: usize) -> &'a [f32] {
        &self.k[i * self.dims.key_heads * self.dims.key_dim..][..self.dims.key_dim]
    }

    fn query(&self, i: usize) -> &'a [f32] {
        &self.q[i * self.dims.key_heads * self.dims.key_dim..][..self.dims.key_dim]
    }

    fn value(&self, i: usize) -> &'a [f32] {
        &self.v[i * self.dims.value_width()..][..self.dims.value_dim]
    }

    fn log_decay(&self, i: usize) -> f32 {
        self.g[i * self.dims.value_heads]
    }

    fn strength(&self, i: usize) -> f32 {
        self.beta[i * self.dims.value_heads]
    }

    /// Multiply-adds to solve and fold `n` rows, roughly.
    fn work(dims: GdnDims, n: usize) -> usize {
        3 * n * dims.state_len() + n * n.min(CHUNK) * dims.value_width()
    }
}

/// Checked slices of the rows of a pass.
struct Views<'a> {
    key_width: usize,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    g: &'a [f32],
    beta: &'a [f32],
}

impl<'a> Views<'a> {
    fn new(op: &'static str, dims: GdnDims, rows: &'a GdnRows<Buf>, n: usize) -> Result<Self> {
        check_groups(op, dims.value_heads, dims.key_heads)?;
        let key_width = dims.key_heads * dims.key_dim;
        Ok(Self {
            key_width,
            q: rows.q.view(op, "q", n, key_width)?,
            k: rows.k.view(op, "k", n, key_width)?,
            v: rows.v.view(op, "v", n, dims.value_width())?,
            g: rows.g.view(op, "g", n, dims.value_heads)?,
            beta: rows.beta.view(op, "beta", n, dims.value_heads)?,
        })
    }
}

/// Outputs and corrections of `parents.len()` rows on top of a state:
/// `u_i = beta_i (v_i - e^G_i S^T k_i - sum_j e^(G_i - G_j) (k_j . k_i) u_j)` over the ancestors `j`,
/// `o_i = e^G_i S^T q_i + sum_j e^(G_i - G_j) (k_j . q_i) u_j` over ancestors and self.
struct Solve<'a, 'o> {
    head: Head<'a>,
    parents: &'a [Option<usize>],
    /// `[key_dim, value_dim]`.
    state: &'a [f32],
    /// Both `[n, value_dim]`.
    out: &'o mut [f32],
    u: &'o mut [f32],
}

impl Solve<'_, '_> {
    fn solve(self) {
        let width = self.head.dims.value_dim;
        let right = Right {
            data: self.state,
            stride: width,
            columns: width,
        };
        for (left, product) in [(self.head.k, &mut *self.u), (self.head.q, &mut *self.out)] {
            let mut product: Vec<&mut [f32]> = product.chunks_exact_mut(width).collect();
            multiply(self.head.keys(left), right, false, 0, &mut product);
        }
        dispatch(self);
    }
}

impl WithSimd for Solve<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { head, parents, .. } = self;
        let width = head.dims.value_dim;
        // Of the row's ancestors, oldest first: which, and what each adds to u and to the output.
        let mut ancestors = Vec::with_capacity(parents.len());
        let (mut to_u, mut to_out) = (Vec::new(), Vec::new());
        for i in 0..parents.len() {
            // Decays are sums from the row back, never differences of two large sums.
            ancestors.clear();
            let mut log_decay = head.log_decay(i);
            let mut row = parents[i];
            while let Some(ancestor) = row.filter(|_| log_decay > FORGOTTEN) {
                ancestors.push((ancestor, log_decay.exp()));
                log_decay += head.log_decay(ancestor);
                row = parents[ancestor];
            }
            ancestors.reverse();
            to_u.clear();
            to_out.clear();
            for &(ancestor, decay) in &ancestors {
                let key = head.key(ancestor);
                to_u.push(-decay * dot(simd, key, head.key(i)));
                to_out.push(decay * dot(simd, key, head.query(i)));
            }
            let from_state = decay(log_decay);
            let (before, u) = self.u.split_at_mut(i * width);
            let before = |j: usize| &before[ancestors[j].0 * width..][..width];
            let u = &mut u[..width];
            let out = &mut self.out[i * width..][..width];
            out.iter_mut().for_each(|o| *o *= from_state);
            for (u, &v) in u.iter_mut().zip(head.value(i)) {
                *u = v - from_state * *u;
            }
            add_weighted(simd, &to_u, before, u);
            add_weighted(simd, &to_out, before, out);
            u.iter_mut().for_each(|u| *u *= head.strength(i));
            let own = dot(simd, head.key(i), head.query(i));
            add_weighted(simd, &[own], |_| u, out);
        }
    }
}

/// `S = e^G S + sum_j e^(G - G_j) k_j u_j^T` over `kept` rows in path order; `u` is `[n, stride]`.
fn fold(head: Head, kept: &[usize], u: &[f32], stride: usize, state: &mut [f32]) {
    let (key_dim, width) = (head.dims.key_dim, head.dims.value_dim);
    let mut keys = vec![0.0; key_dim * kept.len()];
    let mut corrections = Vec::with_capacity(kept.len() * width);
    let mut log_decay = 0.0f32;
    for (j, &row) in kept.iter().enumerate().rev() {
        let scale = decay(log_decay);
        for (i, &k) in head.key(row).iter().enumerate() {
            keys[i * kept.len() + j] = scale * k;
        }
        log_decay += head.log_decay(row);
    }
    for &row in kept {
        corrections.extend_from_slice(&u[row * stride..][..width]);
    }
    let from_state = decay(log_decay);
    state.iter_mut().for_each(|s| *s *= from_state);
    let left = Left {
        data: &keys,
        stride: kept.len(),
        depth: kept.len(),
    };
    let right = Right {
        data: &corrections,
        stride: width,
        columns: width,
    };
    let mut state: Vec<&mut [f32]> = state.chunks_exact_mut(width).collect();
    multiply(left, right, true, 0, &mut state);
}

/// The states of the segments, in segment order, split by value head.
fn head_states<'a>(
    dims: GdnDims,
    batch: &Batch,
    states: &'a mut [f32],
) -> Vec<(usize, usize, &'a mut [f32])> {
    let mut heads = Vec::with_capacity(batch.segments.len() * dims.value_heads);
    for (slot, state) in states.chunks_exact_mut(dims.state_len()).enumerate() {
        let Some(segment) = batch.segments.iter().position(|s| s.slot == slot) else {
            continue;
        };
        let parts = state.chunks_exact_mut(dims.key_dim * dims.value_dim);
        heads.extend(parts.enumerate().map(|(head, part)| (segment, head, part)));
    }
    heads
}

fn copy_rows(from: &[f32], to: &mut [&mut [f32]]) {
    for (i, to) in to.iter_mut().enumerate() {
        to.copy_from_slice(&from[i * to.len()..][..to.len()]);
    }
}

pub fn gdn_prefill(
    threads: Threads,
    dims: GdnDims,
    rows: &GdnRows<Buf>,
    batch: &Batch,
    state: &mut Buf,
    out: &mut Buf,
) -> Result<()> {
    let op = "gdn_prefill";
    check_batch(op, batch)?;
    check_slots(op, batch, state.rows(), true)?;
    for segment in &batch.segments {
        let trees = usize::from(segment.parents.is_some());
        check(op, "number of trees", trees, 0)?;
    }
    let (n, width) = (batch.rows(), dims.value_dim);
    let views = Views::new(op, dims, rows, n)?;
    let states = state.all_mut(op, "state", dims.state_len())?;
    let out = out.view_mut(op, "out", n, dims.value_width())?;
    if dims.state_len() == 0 {
        return Ok(());
    }
    let mut outs = head_rows(batch, out, dims.value_width(), width);
    let jobs: Vec<_> = head_states(dims, batch, states)
        .into_iter()
        .map(|(segment, head, state)| {
            let out = std::mem::take(&mut outs[segment * dims.value_heads + head]);
            (batch.segments[segment].rows.start, head, state, out)
        })
        .collect();
    let parents: Vec<Option<usize>> = (0..CHUNK).map(|i: usize| i.checked_sub(1)).collect();
    let kept: Vec<usize> = (0..CHUNK).collect();
    threads.run(
        Head::work(dims, n),
        jobs,
        |(first, head, state, mut out)| {
            let mut u = vec![0.0; CHUNK.min(out.len()) * width];
            let mut o = u.clone();
            for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
                let rows = out.len();
                let head = Head::new(dims, &views, first + chunk * CHUNK, head);
                let solve = Solve {
                    head,
                    parents: &parents[..rows],
                    state,
                    out: &mut o[..rows * width],
                    u: &mut u[..rows * width],
                };
                solve.solve();
                fold(head, &kept[..rows], &u, width, state);
                copy_rows(&o, out);
            }
        },
    );
    Ok(())
}

pub fn gdn_verify(
    threads: Threads,
    dims: GdnDims,
    rows: &mut GdnRows<Buf>,
    batch: &Batch,
    state: &Buf,
    out: &mut Buf,
) -> Result<()> {
    let op = "gdn_verify";
    check_batch(op, batch)?;
    check_slots(op, batch, state.rows(), false)?;
    let (n, width) = (batch.rows(), dims.value_dim);
    // The corrections are written while the other rows are read.
    let mut corrections = std::mem::replace(&mut rows.u, Buf::zeros(0, 0));
    let result = (|| {
        let u = corrections.view_mut(op, "u", n, dims.value_width())?;
        let views = Views::new(op, dims, rows, n)?;
        let states = state.all(op, "state", dims.state_len())?;
        let out = out.view_mut(op, "out", n, dims.value_width())?;
        if dims.state_len() == 0 {
            return Ok(());
        }
        let parents: Vec<Vec<Option<usize>>> = batch
            .segments
            .iter()
            .map(|s| (0..s.rows.len()).map(|i| s.parent(i)).collect())
            .collect();
        let outs = head_rows(batch, out, dims.value_width(), width);
        let us = head_rows(batch, u, dims.value_width(), width);
        let jobs: Vec<_> = outs.into_iter().zip(us).enumerate().collect();
        let head_len = dims.key_dim * width;
        threads.run(Head::work(dims, n), jobs, |(job, (mut out, mut u))| {
            if out.is_empty() {
                return;
            }
            let (index, head) = (job / dims.value_heads, job % dims.value_heads);
            let segment = &batch.segments[index];
            let state = segment.slot * dims.state_len() + head * head_len;
            let mut solved = vec![0.0; 2 * out.len() * width];
            let (o, c) = solved.split_at_mut(out.len() * width);
            let solve = Solve {
                head: Head::new(dims, &views, segment.rows.start, head),
                parents: &parents[index],
                state: &states[state..][..head_len],
                out: o,
                u: c,
            };
            solve.solve();
            copy_rows(o, &mut out);
            copy_rows(c, &mut u);
        });
        Ok(())
    })();
    rows.u = corrections;
    result
}

pub fn gdn_commit(
    threads: Threads,
    dims: GdnDims,
    rows: &GdnRows<Buf>,
    batch: &Batch,
    keep: &Keep,
    state: &mut Buf,
) -> Result<()> {
    let op = "gdn_commit";
    check_keep(op, batch, keep)?;
    check_slots(op, batch, state.rows(), true)?;
    let n = batch.rows();
    let views = Views::new(op, dims, rows, n)?;
    let u = rows.u.view(op, "u", n, dims.value_width())?;
    let states = state.all_mut(op, "state", dims.state_len())?;
    if dims.state_len() == 0 {
        return Ok(());
    }
    let kept: Vec<Vec<usize>> = keep
        .iter()
        .map(|rows| rows.iter().map(|&row| row as usize).collect())
        .collect();
    let total: usize = kept.iter().map(Vec::len).sum();
    let jobs = head_states(dims, batch, states);
    threads.run(total * dims.state_len(), jobs, |(segment, head, state)| {
        if kept[segment].is_empty() {
            return;
        }
        let first = batch.segments[segment].rows.start;
        let u = &u[first * dims.value_width() + head * dims.value_dim..];
        let head = Head::new(dims, &views, first, head);
        fold(head, &kept[segment], u, dims.value_width(), state);
    });
    Ok(())
}
