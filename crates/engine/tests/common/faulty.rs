//! A device that fails when told to: real operations with a fault in between.
#![allow(clippy::too_many_arguments)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use volley_ops::{
    AttentionDims, AttentionMask, Batch, Draw, DrawFrom, Dtype, Edit, EditedRows, Error, GdnDims,
    GdnRows, Growth, Keep, KvDims, NormKind, Ops, Result, RopeTable, Walk,
};
use volley_ops_candle::{Buf, CandleOps, Kv, Weight};

/// What happens at the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device reports a failure.
    Error,
    /// A bug, or the driver, panics.
    Panic,
    /// The device fails and never does anything again.
    Death,
    /// The device takes so long.
    Pause(Duration),
}

/// Fails once, after so many linear maps from when it is armed.
#[derive(Clone)]
pub struct Switch {
    left: Arc<AtomicUsize>,
    dead: Arc<AtomicBool>,
    fault: Fault,
    waits: Arc<AtomicUsize>,
    widest: Arc<AtomicUsize>,
}

impl Switch {
    pub fn new(fault: Fault) -> Self {
        Self {
            left: Arc::default(),
            dead: Arc::default(),
            fault,
            waits: Arc::default(),
            widest: Arc::default(),
        }
    }

    pub fn arm(&self, after: usize) {
        self.left.store(after, Ordering::SeqCst);
    }

    /// Linear maps left until the fault; 0 when it is over.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// Times that the host has waited for what the device computed.
    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::SeqCst)
    }

    /// Width of the widest row that the host has read.
    pub fn widest(&self) -> usize {
        self.widest.load(Ordering::SeqCst)
    }

    fn check(&self, op: &'static str) -> Result<()> {
        match self.dead.load(Ordering::SeqCst) {
            true => Err(failure(op)),
            false => Ok(()),
        }
    }

    fn wait(&self, op: &'static str) -> Result<()> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        self.check(op)
    }

    fn count(&self, op: &'static str) -> Result<()> {
        self.check(op)?;
        let down = |n: usize| n.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, down)
        {
            Ok(1) => match self.fault {
                Fault::Error => Err(failure(op)),
                Fault::Panic => panic!("out of luck"),
                Fault::Death => {
                    self.dead.store(true, Ordering::SeqCst);
                    Err(failure(op))
                }
                Fault::Pause(time) => {
                    std::thread::sleep(time);
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }
}

fn failure(op: &'static str) -> Error {
    let message = "out of luck".into();
    Error::Device { op, message }
}

pub struct FaultyOps {
    pub inner: CandleOps,
    pub switch: Switch,
}

macro_rules! delegate {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> $out {
            self.inner.$name($($arg),*)
        })*
    };
}

impl Ops for FaultyOps {
    type Buf = Buf;
    type Weight = Weight;
    type Kv = Kv;
    type Recorded = ();
    type Reading = Vec<Vec<f32>>;

    fn linear(&self, x: &Buf, rows: usize, w: &Weight, out: &mut Buf) -> Result<()> {
        self.switch.count("linear")?;
        self.inner.linear(x, rows, w, out)
    }

    fn upload(&self, data: &[f32], rows: usize, width: usize, dtype: Dtype) -> Result<Buf> {
        self.switch.check("upload")?;
        self.inner.upload(data, rows, width, dtype)
    }

    fn begin_read(&self, parts: &[(&Buf, Range<usize>)]) -> Result<Vec<Vec<f32>>> {
        for (x, rows) in parts {
            let width = if rows.is_empty() { 0 } else { x.width() };
            self.switch.widest.fetch_max(width, Ordering::SeqCst);
        }
        self.inner.begin_read(parts)
    }

    fn end_read(&self, reading: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        self.switch.wait("end_read")?;
        self.inner.end_read(reading)
    }

    delegate! {
        fn rank() -> usize;
        fn ranks() -> usize;
        fn alloc(rows: usize, width: usize, dtype: Dtype) -> Result<Buf>;
        fn weight(data: Vec<f32>, out: usize, input: usize) -> Result<Weight>;
        fn kv(dims: KvDims, blocks: usize) -> Result<Kv>;
        fn block_size() -> usize;
        fn runs_ahead() -> bool;
        fn zero(x: &mut Buf, rows: Range<usize>) -> Result<()>;
        fn copy_row(x: &mut Buf, from: usize, to: usize) -> Result<()>;
        fn copy_block(kv: &mut Kv, from: u32, to: u32) -> Result<()>;
        fn begin(batch: &Batch) -> Result<()>;
        fn embed(ids: &[u32], table: &Weight, first: u32, out: &mut Buf) -> Result<()>;
        fn embed_drawn(
            ids: &[u32], drawn: &Buf, table: &Weight, first: u32, out: &mut Buf
        ) -> Result<()>;
        fn gather(x: &Buf, rows: &[u32], out: &mut Buf) -> Result<()>;
        fn copy_columns(x: &Buf, rows: usize, out: &mut Buf, column: usize) -> Result<()>;
        fn rms_norm(
            x: &Buf, rows: usize, w: &Buf, kind: NormKind, eps: f32, out: &mut Buf
        ) -> Result<()>;
        fn add_rms_norm(
            delta: &Buf, rows: usize, residual: &mut Buf, w: &Buf, kind: NormKind, eps: f32,
            out: &mut Buf
        ) -> Result<()>;
        fn add(delta: &Buf, rows: usize, residual: &mut Buf) -> Result<()>;
        fn swiglu(x: &Buf, rows: usize, out: &mut Buf) -> Result<()>;
        fn gdn_prepare(
            dims: GdnDims, proj: &Buf, conv_w: &Buf, a_log: &Buf, dt_bias: &Buf, conv_state: &Buf,
            batch: &Batch, rows: &mut GdnRows<Buf>
        ) -> Result<()>;
        fn gdn_prefill(
            dims: GdnDims, rows: &GdnRows<Buf>, batch: &Batch, state: &mut Buf, out: &mut Buf
        ) -> Result<()>;
        fn gdn_verify(
            dims: GdnDims, rows: &mut GdnRows<Buf>, batch: &Batch, state: &Buf, out: &mut Buf
        ) -> Result<()>;
        fn gdn_commit(
            dims: GdnDims, rows: &GdnRows<Buf>, batch: &Batch, keep: &Keep, state: &mut Buf
        ) -> Result<()>;
        fn conv_commit(
            dims: GdnDims, proj: &Buf, batch: &Batch, keep: &Keep, conv_state: &mut Buf
        ) -> Result<()>;
        fn gated_norm(
            dims: GdnDims, x: &Buf, proj: &Buf, rows: usize, w: &Buf, eps: f32, out: &mut Buf
        ) -> Result<()>;
        fn attention_prepare(
            dims: AttentionDims, proj: &Buf, q_norm: &Buf, k_norm: &Buf, rope: &RopeTable<Buf>,
            batch: &Batch, q: &mut Buf, kv: &mut Kv
        ) -> Result<()>;
        fn kv_append(
            dims: AttentionDims, proj: &Buf, k_norm: &Buf, rope: &RopeTable<Buf>, batch: &Batch,
            kv: &mut Kv
        ) -> Result<()>;
        fn attention(
            dims: AttentionDims, q: &Buf, proj: &Buf, kv: &Kv, mask: AttentionMask, batch: &Batch,
            out: &mut Buf
        ) -> Result<()>;
        fn kv_commit(dims: KvDims, batch: &Batch, keep: &Keep, kv: &mut Kv) -> Result<()>;
        fn top(
            logits: &Buf, rows: usize, first: u32, allowed: u32, out: &mut Buf
        ) -> Result<()>;
        fn draw(from: &DrawFrom<'_, Buf>, draws: &[Draw], out: &mut Buf) -> Result<()>;
        fn draw_edited(
            from: EditedRows<'_, Buf>, edits: &[Edit], draws: &[Draw], out: &mut Buf
        ) -> Result<()>;
        fn grow(tops: &Buf, trees: &[Growth], out: &mut Buf) -> Result<()>;
        fn plant(batch: &Batch, drafts: &Buf) -> Result<()>;
        fn walk(batch: &Batch, walk: &Walk<'_, Buf>, out: &mut Buf) -> Result<()>;
        fn gather_walked(x: &Buf, batch: &Batch, counts: &[usize], out: &mut Buf) -> Result<()>;
        fn all_reduce(x: &mut Buf, rows: usize) -> Result<()>;
        fn all_gather(x: &Buf, rows: usize, out: &mut Buf) -> Result<()>;
    }
}
