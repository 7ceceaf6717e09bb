//! [`Ops`] of a rank: checks, tables of the pass, and the launches of each operation.

use std::ops::Range;
use std::time::Duration;

use bytemuck::cast_slice_mut;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use volley_ops::{
    AttentionDims, AttentionMask, Batch, DRAWN_WIDTH, Draw, DrawFrom, Dtype, Edit, EditedRows,
    GdnDims, GdnRows, GdnStates, Growth, Keep, KvDims, MatrixData, NormKind, Ops, Origin, Result,
    RopeTable, Walk, is_walked,
};

use crate::attention::HeadNorms;
use crate::buf::{Buf, Kv, Memory, Weight};
use crate::dims::check;
use crate::driver::{Product, Reading};
use crate::error::in_op;
use crate::exchange::Exchange;
use crate::gdn::Gates;
use crate::norm::Norm;
use crate::params::BLOCK_TOKENS;
use crate::rank::CudaOps;
use crate::recorded::Recorded;
use crate::tables::Pass;
use crate::{attention, draw, edit, gdn, gdn_prefill, grow, norm, rows, top, walk};

#[cfg(feature = "cuda")]
impl CudaOps {
    /// [`Ops::draw`] with the draws of the last one: nothing is copied, so it can be recorded.
    #[cfg(feature = "cuda")]
    pub(crate) fn draw_again(
        &self,
        from: &DrawFrom<'_, Buf>,
        draws: &[Draw],
        out: &mut Buf,
    ) -> Result<()> {
        let (driver, at) = (&*self.driver, self.tables.last_draws());
        draw::draw(driver, &self.scratch, self.ranks(), from, draws, at, out)
    }
}

impl Ops for CudaOps {
    type Buf = Buf;
    type Weight = Weight;
    type Kv = Kv;
    type Recorded = Recorded;
    /// With the formats of the parts.
    type Reading = (Reading, Vec<bool>);

    fn rank(&self) -> usize {
        self.exchange.as_ref().map_or(0, Exchange::rank)
    }

    fn ranks(&self) -> usize {
        self.exchange.as_ref().map_or(1, Exchange::ranks)
    }

    fn alloc(&self, rows: usize, width: usize, dtype: Dtype) -> Result<Buf> {
        Buf::new(&self.driver, rows, width, dtype)
    }

    fn upload(&self, data: &[f32], rows: usize, width: usize, dtype: Dtype) -> Result<Buf> {
        check("upload", "number of values", data.len(), rows * width)?;
        let buf = self.alloc(rows, width, dtype)?;
        self.write("upload", buf.address(), data, dtype)?;
        Ok(buf)
    }

    fn weight(&self, data: Vec<f32>, out: usize, input: usize) -> Result<Weight> {
        check("weight", "number of values", data.len(), out * input)?;
        let memory = Memory::new(&self.driver, "weight", 2 * out * input)?;
        self.write("weight", memory.address(), &data, Dtype::Activation)?;
        Ok(Weight { memory, out, input })
    }

    fn load(&self, data: &MatrixData<'_>) -> Result<Weight> {
        let (out, input) = (data.out, data.input);
        if let Origin::Noise { seed, scale } = data.origin
            && (out * input).is_multiple_of(8)
        {
            return self.dummy_weight(out, input, seed, scale);
        }
        let memory = Memory::new(&self.driver, "weight", 2 * out * input)?;
        let source = |offset, piece: &mut [u8]| data.write_bf16(offset / 2, piece);
        let filled = self.driver.fill(memory.address(), 2 * out * input, &source);
        filled.map_err(in_op("load"))?;
        Ok(Weight { memory, out, input })
    }

    fn kv(&self, dims: KvDims, blocks: usize) -> Result<Kv> {
        Kv::new(&self.driver, dims, blocks)
    }

    fn block_size(&self) -> usize {
        BLOCK_TOKENS
    }

    fn begin_read(&self, parts: &[(&Buf, Range<usize>)]) -> Result<Self::Reading> {
        let op = "read";
        let range = |(x, rows): &(&Buf, Range<usize>)| x.range(op, rows.clone());
        let ranges = parts.iter().map(range).collect::<Result<Vec<_>>>()?;
        let reading = self.driver.begin_read(&ranges).map_err(in_op(op))?;
        Ok((reading, parts.iter().map(|(x, _)| x.f32()).collect()))
    }

    fn end_read(&self, (reading, formats): Self::Reading) -> Result<Vec<Vec<f32>>> {
        let op = "read";
        let bytes = self.driver.end_read(reading).map_err(in_op(op))?;
        self.check_ranks(op)?;
        let parts = bytes.iter().zip(formats);
        Ok(parts.map(|(bytes, f32)| values(bytes, f32)).collect())
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn idle(&self) -> Duration {
        self.driver.idle()
    }

    fn zero(&self, x: &mut Buf, rows: Range<usize>) -> Result<()> {
        let (at, bytes) = x.range("zero", rows)?;
        self.driver.zero(at, bytes).map_err(in_op("zero"))
    }

    fn copy_row(&self, x: &mut Buf, from: usize, to: usize) -> Result<()> {
        let op = "copy_row";
        let (source, bytes) = x.range(op, from..from + 1)?;
        let (target, _) = x.range(op, to..to + 1)?;
        if from == to {
            return Ok(());
        }
        let copied = self.driver.copy(source, target, bytes);
        copied.map_err(in_op(op))
    }

    fn copy_block(&self, kv: &mut Kv, from: u32, to: u32) -> Result<()> {
        let op = "copy_block";
        let (source, target, bytes) = kv.block_copy(op, from, to)?;
        if from == to {
            return Ok(());
        }
        for memory in [&kv.keys, &kv.values] {
            let at = memory.address();
            let copied = self.driver.copy(at + source, at + target, bytes);
            copied.map_err(in_op(op))?;
        }
        Ok(())
    }

    fn begin(&self, batch: &Batch) -> Result<()> {
        self.tables.pass("begin", batch).map(drop)
    }

    fn recorded<E: From<volley_ops::Error>>(
        &self,
        recorded: &mut Recorded,
        batch: &Batch,
        keep: Option<&Keep>,
        run: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let shape = self
            .tables
            .open("recorded", batch, keep, |shape| recorded.repeats(shape))?;
        let ran = recorded.run(&self.driver, shape, run);
        self.tables.close();
        ran
    }

    fn embed(&self, ids: &[u32], table: &Weight, first: u32, out: &mut Buf) -> Result<()> {
        let index = self.tables.index("embed", ids)?;
        rows::embed(&*self.driver, index, 0, ids.len(), table, first, out)
    }

    fn embed_drawn(
        &self,
        ids: &[u32],
        drawn: &Buf,
        table: &Weight,
        first: u32,
        out: &mut Buf,
    ) -> Result<()> {
        let op = "embed_drawn";
        let drawn = drawn.float(
            op,
            "drawn",
            rows::drawn_rows(ids.iter().copied()),
            DRAWN_WIDTH,
        )?;
        let index = self.tables.index(op, ids)?;
        rows::embed(&*self.driver, index, drawn, ids.len(), table, first, out)
    }

    fn gather(&self, x: &Buf, rows: &[u32], out: &mut Buf) -> Result<()> {
        rows::check_gather(x, rows, out)?;
        let index = self.tables.index("gather", rows)?;
        rows::gather(&*self.driver, x, index, rows.len(), out)
    }

    fn copy_columns(&self, x: &Buf, rows: usize, out: &mut Buf, column: usize) -> Result<()> {
        rows::copy_columns(&*self.driver, x, rows, out, column)
    }

    fn linear(&self, x: &Buf, rows: usize, w: &Weight, out: &mut Buf) -> Result<()> {
        let op = "linear";
        let product = Product {
            rows,
            input: w.input,
            output: w.out,
            x: x.activation(op, "x", rows, w.input)?,
            w: w.memory.address(),
            out: out.any(op, "out", rows, w.out)?,
            out_f32: out.f32(),
        };
        if rows == 0 || w.out == 0 {
            return Ok(());
        }
        // SAFETY: both buffers were checked, and a weight has its own shape.
        unsafe { self.linear.multiply(&product) }.map_err(in_op(op))
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
        let weight = w;
        norm::rms_norm(&*self.driver, x, rows, Norm { weight, kind, eps }, out)
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
        let weight = w;
        let norm = Norm { weight, kind, eps };
        norm::add_rms_norm(&*self.driver, delta, rows, residual, norm, out)
    }

    fn add(&self, delta: &Buf, rows: usize, residual: &mut Buf) -> Result<()> {
        norm::add(&*self.driver, delta, rows, residual)
    }

    fn linear_swiglu(
        &self,
        x: &Buf,
        rows: usize,
        w: &Weight,
        wide: &mut Buf,
        out: &mut Buf,
    ) -> Result<()> {
        let op = "linear_swiglu";
        let (input, output) = (w.input, w.out);
        let product = Product {
            rows,
            input,
            output,
            x: x.activation(op, "x", rows, input)?,
            w: w.memory.address(),
            out: out.activation(op, "out", rows, output / 2)?,
            out_f32: false,
        };
        if rows > 0 && self.linear.gates(&product) {
            // SAFETY: both buffers were checked, and a weight has its own shape.
            return unsafe { self.linear.multiply_gated(&product) }.map_err(in_op(op));
        }
        self.linear(x, rows, w, wide)?;
        self.swiglu(wide, rows, out)
    }

    fn swiglu(&self, x: &Buf, rows: usize, out: &mut Buf) -> Result<()> {
        norm::swiglu(&*self.driver, x, rows, out)
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
        let pass = self.tables.pass("gdn_prepare", batch)?;
        let gates = Gates {
            conv_w,
            a_log,
            dt_bias,
        };
        gdn::prepare(&*self.driver, dims, proj, &gates, conv_state, &pass, rows)
    }

    fn gdn_prefill(
        &self,
        dims: GdnDims,
        rows: &GdnRows<Buf>,
        batch: &Batch,
        state: &mut Buf,
        out: &mut Buf,
    ) -> Result<()> {
        let pass = self.tables.pass("gdn_prefill", batch)?;
        gdn_prefill::prefill(&*self.driver, &self.scratch, dims, rows, &pass, state, out)
    }

    fn gdn_verify(
        &self,
        dims: GdnDims,
        rows: &mut GdnRows<Buf>,
        batch: &Batch,
        state: &Buf,
        out: &mut Buf,
    ) -> Result<()> {
        let pass = self.tables.pass("gdn_verify", batch)?;
        gdn::verify(&*self.driver, dims, rows, &pass, state, out)
    }

    fn gdn_commit(
        &self,
        dims: GdnDims,
        rows: &GdnRows<Buf>,
        batch: &Batch,
        keep: &Keep,
        state: &mut Buf,
    ) -> Result<()> {
        let pass = self.tables.pass_keeping("gdn_commit", batch, keep)?;
        let most = most_kept(keep, &pass);
        gdn::commit(&*self.driver, dims, rows, &pass, most, state)
    }

    fn conv_commit(
        &self,
        dims: GdnDims,
        proj: &Buf,
        batch: &Batch,
        keep: &Keep,
        conv_state: &mut Buf,
    ) -> Result<()> {
        let pass = self.tables.pass_keeping("conv_commit", batch, keep)?;
        gdn::conv_commit(&*self.driver, dims, proj, &pass, conv_state)
    }

    fn commit_layers(
        &self,
        layers: &mut [GdnStates<Buf>],
        batch: &Batch,
        keep: &Keep,
    ) -> Result<()> {
        let pass = self.tables.pass_keeping("commit_layers", batch, keep)?;
        let most = most_kept(keep, &pass);
        gdn::commit_layers(&*self.driver, layers, &pass, most)
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
        let norm = Norm {
            weight: w,
            kind: NormKind::Plain,
            eps,
        };
        norm::gated_norm(&*self.driver, dims, x, proj, rows, norm, out)
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
        let pass = self.tables.pass("attention_prepare", batch)?;
        let norms = HeadNorms {
            q_norm: Some(q_norm),
            k_norm,
            rope,
        };
        attention::prepare(&*self.driver, dims, proj, &norms, &pass, Some(q), kv)
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
        let pass = self.tables.pass("kv_append", batch)?;
        let norms = HeadNorms {
            q_norm: None,
            k_norm,
            rope,
        };
        attention::prepare(&*self.driver, dims, proj, &norms, &pass, None, kv)
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
        let pass = self.tables.pass("attention", batch)?;
        let driver = &*self.driver;
        attention::attention(driver, &self.scratch, dims, q, proj, kv, mask, &pass, out)
    }

    fn kv_commit(&self, dims: KvDims, batch: &Batch, keep: &Keep, kv: &mut Kv) -> Result<()> {
        let pass = self.tables.pass_keeping("kv_commit", batch, keep)?;
        attention::commit(&*self.driver, dims, &pass, kv)
    }

    fn top(
        &self,
        logits: &Buf,
        rows: usize,
        first: u32,
        allowed: u32,
        out: &mut Buf,
    ) -> Result<()> {
        let driver = &*self.driver;
        top::top(driver, &self.scratch, logits, rows, first, allowed, out)
    }

    fn draw(&self, from: &DrawFrom<'_, Buf>, draws: &[Draw], out: &mut Buf) -> Result<()> {
        let (driver, at) = (&*self.driver, self.tables.draws("draw", from.first, draws)?);
        draw::draw(driver, &self.scratch, self.ranks(), from, draws, at, out)
    }

    fn draw_edited(
        &self,
        from: EditedRows<'_, Buf>,
        edits: &[Edit],
        draws: &[Draw],
        out: &mut Buf,
    ) -> Result<()> {
        let (driver, scratch) = (&*self.driver, &self.scratch);
        edit::draw_edited(driver, scratch, &self.tables, from, edits, draws, out)
    }

    fn grow(&self, tops: &Buf, trees: &[Growth], out: &mut Buf) -> Result<()> {
        grow::grow(&*self.driver, self.ranks(), tops, trees, out)
    }

    fn plant(&self, batch: &Batch, drafts: &Buf) -> Result<()> {
        let op = "plant";
        let parents = batch
            .segments
            .iter()
            .flat_map(|s| s.parents.iter().flatten());
        let rows = rows::drawn_rows(parents.flatten().copied());
        self.tables
            .plant(op, batch, drafts.float(op, "drafts", rows, DRAWN_WIDTH)?)
    }

    fn walk(&self, batch: &Batch, walk: &Walk<'_, Buf>, out: &mut Buf) -> Result<()> {
        let (driver, tables) = (&*self.driver, &self.tables);
        walk::walk(driver, tables, self.ranks(), batch, walk, out)
    }

    fn gather_walked(&self, x: &Buf, batch: &Batch, counts: &[usize], out: &mut Buf) -> Result<()> {
        walk::gather(&*self.driver, &self.tables, x, batch, counts, out)
    }

    fn reduce_add_rms_norm(
        &self,
        delta: &mut Buf,
        rows: usize,
        residual: &mut Buf,
        w: &Buf,
        kind: NormKind,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        let weight = w;
        let norm = Norm { weight, kind, eps };
        match &self.exchange {
            Some(exchange) => exchange.reduce_add_rms_norm(delta, rows, residual, norm, out),
            None => norm::add_rms_norm(&*self.driver, delta, rows, residual, norm, out),
        }
    }

    fn all_reduce(&self, x: &mut Buf, rows: usize) -> Result<()> {
        match &self.exchange {
            Some(exchange) => exchange.all_reduce(x, rows),
            None => x.any("all_reduce", "x", rows, x.width()).map(drop),
        }
    }

    fn all_gather(&self, x: &Buf, rows: usize, out: &mut Buf) -> Result<()> {
        if let Some(exchange) = &self.exchange {
            return exchange.all_gather(x, rows, out);
        }
        check("all_gather", "width of out", out.width(), x.width())?;
        rows::copy_columns(&*self.driver, x, rows, out, 0)
    }
}

/// The values of a buffer's bytes.
fn values(bytes: &[u8], f32: bool) -> Vec<f32> {
    let mut values = vec![0.0f32; bytes.len() / if f32 { 4 } else { 2 }];
    if f32 {
        cast_slice_mut(&mut values).copy_from_slice(bytes);
    } else {
        let mut narrow = vec![bf16::ZERO; values.len()];
        cast_slice_mut(&mut narrow).copy_from_slice(bytes);
        narrow.convert_to_f32_slice(&mut values);
    }
    values
}

/// Bound of the kept rows of a segment.
fn most_kept(keep: &Keep, pass: &Pass) -> usize {
    match is_walked(keep) {
        true => pass.facts.longest,
        false => keep.iter().map(Vec::len).max().unwrap_or(0),
    }
}
