use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use candle_core::Device;
use volley_ops::{
    AttentionDims, AttentionMask, Batch, Draw, DrawFrom, Dtype, Edit, EditedRows, GdnDims, GdnRows,
    Growth, Keep, KvDims, NormKind, Ops, Result, RopeTable, Walk, is_walked,
};

use crate::attention::attention;
use crate::buf::{Buf, check};
use crate::checks::check_batch;
use crate::kv::{BLOCK_SIZE, Kv};
use crate::linear::Weight;
use crate::ranks::Rank;
use crate::threads::Threads;
use crate::{conv, draw, gdn, grow, kv, norm, rows, top, walk};

/// The operations of one rank on a Candle device.
pub struct CandleOps {
    device: Device,
    rank: Rank,
    threads: Threads,
    /// The batch that trees were planted in last, without and with their parents.
    planted: RefCell<Option<(Batch, Batch)>>,
    /// The batch that was walked last, and its kept rows.
    walked: RefCell<Option<(Batch, Keep)>>,
    ahead: bool,
}

impl CandleOps {
    /// A rank of its own.
    pub fn single(device: Device) -> Self {
        let mut ranks = Self::ranks(1, device);
        ranks.pop().expect("one rank was asked for: this is a bug")
    }

    /// `n` ranks of one tensor-parallel group, each to be moved to a thread of its own. When one is
    /// dropped, the collectives of the others return [`volley_ops::Error::RankLost`].
    pub fn ranks(n: usize, device: Device) -> Vec<Self> {
        let with = |rank| Self {
            device: device.clone(),
            rank,
            threads: Threads::share_of(n),
            planted: RefCell::default(),
            walked: RefCell::default(),
            ahead: false,
        };
        Rank::all(n).into_iter().map(with).collect()
    }

    /// As a device that [`Ops::runs_ahead`], for what is done beside one; nothing is faster by it here.
    pub fn ahead(self) -> Self {
        Self {
            ahead: true,
            ..self
        }
    }

    /// Kept rows that a walk found.
    fn kept<'a>(&self, op: &'static str, batch: &Batch, keep: &'a Keep) -> Result<Cow<'a, Keep>> {
        if !is_walked(keep) {
            return Ok(Cow::Borrowed(keep));
        }
        match &*self.walked.borrow() {
            Some((walked, kept)) if walked == batch => Ok(Cow::Owned(kept.clone())),
            _ => Err(walk::unwalked(op)),
        }
    }

    /// A batch with all its parents.
    fn known<'a>(&self, op: &'static str, batch: &'a Batch) -> Result<Cow<'a, Batch>> {
        if !batch.is_grown() {
            return Ok(Cow::Borrowed(batch));
        }
        match &*self.planted.borrow() {
            Some((grown, known)) if grown == batch => Ok(Cow::Owned(known.clone())),
            _ => Err(grow::unplanted(op)),
        }
    }

    /// Draws with the positions that only the last planted batch tells.
    fn placed<'a>(
        &self,
        op: &'static str,
        first: usize,
        draws: &'a [Draw],
    ) -> Result<Cow<'a, [Draw]>> {
        let mut positions = draws.iter().map(|draw| draw.position);
        if !positions.any(|position| position == Draw::BEHIND_ROW) {
            return Ok(Cow::Borrowed(draws));
        }
        match &*self.planted.borrow() {
            Some((_, known)) => Ok(Cow::Owned(grow::place(op, known, first, draws)?)),
            None => Err(grow::unplanted(op)),
        }
    }
}

impl Ops for CandleOps {
    type Buf = Buf;
    type Weight = Weight;
    type Kv = Kv;
    type Recorded = ();
    type Reading = Vec<Vec<f32>>;

    fn rank(&self) -> usize {
        self.rank.index()
    }

    fn ranks(&self) -> usize {
        self.rank.count()
    }

    fn alloc(&self, rows: usize, width: usize, _: Dtype) -> Result<Buf> {
        Ok(Buf::zeros(rows, width))
    }

    fn upload(&self, data: &[f32], rows: usize, width: usize, _: Dtype) -> Result<Buf> {
        Buf::from_vec("upload", data.to_vec(), rows, width)
    }

    fn weight(&self, data: Vec<f32>, out: usize, input: usize) -> Result<Weight> {
        Weight::new(&self.device, data, out, input)
    }

    fn kv(&self, dims: KvDims, blocks: usize) -> Result<Kv> {
        Ok(Kv::new(dims, blocks))
    }

    fn block_size(&self) -> usize {
        BLOCK_SIZE
    }

    fn begin_read(&self, parts: &[(&Buf, Range<usize>)]) -> Result<Vec<Vec<f32>>> {
        let values = |(x, rows): &(&Buf, Range<usize>)| Ok(x.range("read", rows.clone())?.to_vec());
        parts.iter().map(values).collect()
    }

    fn end_read(&self, reading: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        Ok(reading)
    }

    fn runs_ahead(&self) -> bool {
        self.ahead
    }

    fn zero(&self, x: &mut Buf, rows: Range<usize>) -> Result<()> {
        x.range_mut("zero", rows)?.fill(0.0);
        Ok(())
    }

    fn copy_row(&self, x: &mut Buf, from: usize, to: usize) -> Result<()> {
        x.copy_row("copy_row", from, to)
    }

    fn copy_block(&self, kv: &mut Kv, from: u32, to: u32) -> Result<()> {
        kv.copy_block("copy_block", from, to)
    }

    fn begin(&self, batch: &Batch) -> Result<()> {
        let batch = self.known("begin", batch)?;
        check_batch("begin", &batch)
    }

    fn embed(&self, ids: &[u32], table: &Weight, first: u32, out: &mut Buf) -> Result<()> {
        table.embed(ids, first, out)
    }

    fn embed_drawn(
        &self,
        ids: &[u32],
        drawn: &Buf,
        table: &Weight,
        first: u32,
        out: &mut Buf,
    ) -> Result<()> {
        table.embed(&draw::known(ids, drawn)?, first, out)
    }

    fn gather(&self, x: &Buf, rows: &[u32], out: &mut Buf) -> Result<()> {
        rows::gather(x, rows, out)
    }

    fn copy_columns(&self, x: &Buf, rows: usize, out: &mut Buf, column: usize) -> Result<()> {
        rows::copy_columns(x, rows, out, column)
    }

    fn linear(&self, x: &Buf, rows: usize, w: &Weight, out: &mut Buf) -> Result<()> {
        w.apply(self.threads, x, rows, out)
    }

    fn rms_norm(
        &self,
        x: &Buf,
        rows: usize,
        w: &Buf,
        kind: NormKind,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        norm::rms_norm(x, rows, w, kind, eps, out)
    }

    fn add_rms_norm(
        &self,
        delta: &Buf,
        rows: usize,
        residual: &mut Buf,
        w: &Buf,
        kind: NormKind,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        norm::add_rms_norm(delta, rows, residual, w, kind, eps, out)
    }

    fn add(&self, delta: &Buf, rows: usize, residual: &mut Buf) -> Result<()> {
        norm::add(delta, rows, residual)
    }

    fn swiglu(&self, x: &Buf, rows: usize, out: &mut Buf) -> Result<()> {
        rows::swiglu(x, rows, out)
    }

    fn gdn_prepare(
        &self,
        dims: GdnDims,
        proj: &Buf,
        conv_w: &Buf,
        a_log: &Buf,
        dt_bias: &Buf,
        conv_state: &Buf,
        batch: &Batch,
        rows: &mut GdnRows<Buf>,
    ) -> Result<()> {
        let gates = conv::Gates {
            conv_w,
            a_log,
            dt_bias,
        };
        let batch = &self.known("gdn_prepare", batch)?;
        conv::gdn_prepare(dims, proj, &gates, conv_state, batch, rows)
    }

    fn gdn_prefill(
        &self,
        dims: GdnDims,
        rows: &GdnRows<Buf>,
        batch: &Batch,
        state: &mut Buf,
        out: &mut Buf,
    ) -> Result<()> {
        gdn::gdn_prefill(self.threads, dims, rows, batch, state, out)
    }

    fn gdn_verify(
        &self,
        dims: GdnDims,
        rows: &mut GdnRows<Buf>,
        batch: &Batch,
        state: &Buf,
        out: &mut Buf,
    ) -> Result<()> {
        let batch = &self.known("gdn_verify", batch)?;
        gdn::gdn_verify(self.threads, dims, rows, batch, state, out)
    }

    fn gdn_commit(
        &self,
        dims: GdnDims,
        rows: &GdnRows<Buf>,
        batch: &Batch,
        keep: &Keep,
        state: &mut Buf,
    ) -> Result<()> {
        let keep = &self.kept("gdn_commit", batch, keep)?;
        let batch = &self.known("gdn_commit", batch)?;
        gdn::gdn_commit(self.threads, dims, rows, batch, keep, state)
    }

    fn conv_commit(
        &self,
        dims: GdnDims,
        proj: &Buf,
        batch: &Batch,
        keep: &Keep,
        conv_state: &mut Buf,
    ) -> Result<()> {
        let keep = &self.kept("conv_commit", batch, keep)?;
        let batch = &self.known("conv_commit", batch)?;
        conv::conv_commit(dims, proj, batch, keep, conv_state)
    }

    fn gated_norm(
        &self,
        dims: GdnDims,
        x: &Buf,
        proj: &Buf,
        rows: usize,
        w: &Buf,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        norm::gated_norm(dims, x, proj, rows, w, eps, out)
    }

    fn attention_prepare(
        &self,
        dims: AttentionDims,
        proj: &Buf,
        q_norm: &Buf,
        k_norm: &Buf,
        rope: &RopeTable<Buf>,
        batch: &Batch,
        q: &mut Buf,
        kv: &mut Kv,
    ) -> Result<()> {
        let batch = &self.known("attention_prepare", batch)?;
        kv::attention_prepare(dims, proj, q_norm, k_norm, rope, batch, q, kv)
    }

    fn kv_append(
        &self,
        dims: AttentionDims,
        proj: &Buf,
        k_norm: &Buf,
        rope: &RopeTable<Buf>,
        batch: &Batch,
        kv: &mut Kv,
    ) -> Result<()> {
        kv::kv_append(dims, proj, k_norm, rope, batch, kv)
    }

    fn attention(
        &self,
        dims: AttentionDims,
        q: &Buf,
        proj: &Buf,
        kv: &Kv,
        mask: AttentionMask,
        batch: &Batch,
        out: &mut Buf,
    ) -> Result<()> {
        let batch = &self.known("attention", batch)?;
        attention(self.threads, dims, q, proj, kv, mask, batch, out)
    }

    fn kv_commit(&self, dims: KvDims, batch: &Batch, keep: &Keep, kv: &mut Kv) -> Result<()> {
        let keep = &self.kept("kv_commit", batch, keep)?;
        kv::kv_commit(dims, &*self.known("kv_commit", batch)?, keep, kv)
    }

    fn top(
        &self,
        logits: &Buf,
        rows: usize,
        first: u32,
        allowed: u32,
        out: &mut Buf,
    ) -> Result<()> {
        top::top(logits, rows, first, allowed, out)
    }

    fn draw(&self, from: &DrawFrom<'_, Buf>, draws: &[Draw], out: &mut Buf) -> Result<()> {
        let draws = self.placed("draw", from.first, draws)?;
        draw::draw(self.ranks(), from, &draws, out)
    }

    fn draw_edited(
        &self,
        from: EditedRows<'_, Buf>,
        edits: &[Edit],
        draws: &[Draw],
        out: &mut Buf,
    ) -> Result<()> {
        let draws = self.placed("draw_edited", from.first, draws)?;
        draw::draw_edited(from, edits, &draws, out)
    }

    fn grow(&self, tops: &Buf, trees: &[Growth], out: &mut Buf) -> Result<()> {
        grow::grow(self.ranks(), tops, trees, out)
    }

    fn plant(&self, batch: &Batch, drafts: &Buf) -> Result<()> {
        let known = grow::plant(batch, drafts)?;
        check_batch("plant", &known)?;
        self.planted.replace(Some((batch.clone(), known)));
        Ok(())
    }

    fn walk(&self, batch: &Batch, walk: &Walk<'_, Buf>, out: &mut Buf) -> Result<()> {
        let keep = walk::walk(self.ranks(), &*self.known("walk", batch)?, walk, out)?;
        self.walked.replace(Some((batch.clone(), keep)));
        Ok(())
    }

    fn gather_walked(&self, x: &Buf, batch: &Batch, counts: &[usize], out: &mut Buf) -> Result<()> {
        let keep = volley_ops::walked(batch);
        let keep = &self.kept("gather_walked", batch, &keep)?;
        walk::gather(x, batch, keep, counts, out)
    }

    fn all_reduce(&self, x: &mut Buf, rows: usize) -> Result<()> {
        let (op, width) = ("all_reduce", x.width());
        let x = x.view_mut(op, "x", rows, width)?;
        if self.ranks() == 1 {
            return Ok(());
        }
        let mut sum = Vec::new();
        self.rank.exchange(op, x, |parts| {
            sum.clone_from(&parts[0]);
            for part in &parts[1..] {
                sum.iter_mut()
                    .zip(part)
                    .for_each(|(sum, value)| *sum += value);
            }
        })?;
        x.copy_from_slice(&sum);
        Ok(())
    }

    fn all_gather(&self, x: &Buf, rows: usize, out: &mut Buf) -> Result<()> {
        let (op, width) = ("all_gather", x.width());
        check(op, "width of out", out.width(), self.ranks() * width)?;
        let x = x.view(op, "x", rows, width)?;
        let out = out.view_mut(op, "out", rows, self.ranks() * width)?;
        if width == 0 {
            return Ok(());
        }
        self.rank.exchange(op, x, |parts| {
            for (row, out) in out.chunks_exact_mut(self.ranks() * width).enumerate() {
                for (part, out) in parts.iter().zip(out.chunks_exact_mut(width)) {
                    out.copy_from_slice(&part[row * width..][..width]);
                }
            }
        })
    }
}
