use std::ops::Range;
use std::time::Duration;

use crate::{
    AttentionDims, AttentionMask, Batch, Draw, DrawFrom, Edit, EditedRows, Error, GdnDims, Growth,
    Keep, KvDims, MatrixData, NormKind, Result, Walk,
};

/// Tokens per row that [`Ops::top`] finds.
pub const CANDIDATES: usize = 64;
/// Values per row of [`Ops::top`]'s output.
pub const TOP_WIDTH: usize = 2 * CANDIDATES + 1;

/// Number format of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// What the device computes activations in (f32 on the CPU, bf16 on a GPU).
    Activation,
    /// Always f32: recurrent states, gates, logits.
    F32,
}

/// Rotary embedding: `inv_freq` has `rotary_dim / 2` values; cos and sin are multiplied by `scale`
/// (1 but for YaRN).
pub struct RopeTable<B> {
    /// Inverse frequencies, `[1, rotary_dim / 2]`, f32.
    pub inv_freq: B,
    /// Factor on cos and sin.
    pub scale: f32,
}

/// What a gated-delta-net layer computes from its projection, per row. Kept until the commit.
pub struct GdnRows<B> {
    /// Normalised and scaled queries, `[rows, key_heads * key_dim]`, f32.
    pub q: B,
    /// Normalised keys, `[rows, key_heads * key_dim]`, f32.
    pub k: B,
    /// Values after the convolution, `[rows, value_heads * value_dim]`, f32.
    pub v: B,
    /// Log decay `g <= 0`, `[rows, value_heads]`, f32.
    pub g: B,
    /// Write strength in (0, 1), `[rows, value_heads]`, f32.
    pub beta: B,
    /// Corrections `u = beta * (v - S^T k)`, `[rows, value_heads * value_dim]`, f32; written by
    /// [`Ops::gdn_verify`].
    pub u: B,
}

/// A gated-delta-net layer whose states a commit moves.
pub struct GdnStates<'a, B> {
    /// Shapes of the layer.
    pub dims: GdnDims,
    /// Rows of the last verification.
    pub rows: &'a GdnRows<B>,
    /// Their packed projection, `[rows, proj_width]`.
    pub proj: &'a B,
    /// Recurrent states, `[slots, state_len]`, f32.
    pub state: &'a mut B,
    /// Convolution states, `[slots, conv_state_len]`.
    pub conv_state: &'a mut B,
}

/// The operations of one rank.
///
/// A buffer is a matrix of rows; an operation writes the first `rows` rows of its output, taken
/// from its input or the batch. All collectives sum in rank order, so every rank holds the same
/// bits.
pub trait Ops: Sized {
    /// A matrix on the device with room for a fixed number of rows.
    type Buf;
    /// The weight of a linear map, `[out, in]`, in the device's preferred layout.
    type Weight;
    /// One layer's paged key/value cache.
    type Kv;
    /// Records of one kind of pass ([`Ops::recorded`]); belongs to the model whose buffers it names.
    type Recorded: Default;
    /// Values on their way to the host.
    type Reading;

    /// This rank.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// A buffer of `rows x width`; contents are unspecified.
    fn alloc(&self, rows: usize, width: usize, dtype: Dtype) -> Result<Self::Buf>;
    /// A buffer filled from the host, row-major.
    fn upload(&self, data: &[f32], rows: usize, width: usize, dtype: Dtype) -> Result<Self::Buf>;
    /// A linear weight `[out, in]` from row-major values.
    fn weight(&self, data: Vec<f32>, out: usize, input: usize) -> Result<Self::Weight>;
    /// A linear weight from where its values lie.
    fn load(&self, data: &MatrixData<'_>) -> Result<Self::Weight> {
        self.weight(data.values(), data.out, data.input)
    }
    /// A zeroed cache of `blocks` blocks of [`Ops::block_size`] tokens.
    fn kv(&self, dims: KvDims, blocks: usize) -> Result<Self::Kv>;
    /// Tokens per cache block.
    fn block_size(&self) -> usize;
    /// Rows `rows` of `x` on the host, row-major, in f32.
    fn read(&self, x: &Self::Buf, rows: Range<usize>) -> Result<Vec<f32>> {
        let mut parts = self.read_each(&[(x, rows)])?;
        Ok(parts.pop().unwrap_or_default())
    }
    /// As [`Ops::read`], of several buffers after one wait.
    fn read_each(&self, parts: &[(&Self::Buf, Range<usize>)]) -> Result<Vec<Vec<f32>>> {
        let reading = self.begin_read(parts)?;
        self.end_read(reading)
    }
    /// Begins to copy what the operations so far leave in these rows to the host. One such copy is under way
    /// at a time: another read takes its place.
    fn begin_read(&self, parts: &[(&Self::Buf, Range<usize>)]) -> Result<Self::Reading>;
    /// Waits for what was copied, and not for what was begun since.
    fn end_read(&self, reading: Self::Reading) -> Result<Vec<Vec<f32>>>;
    /// Whether operations are under way while the host does other things: what need not wait for the host
    /// gains by being begun before it knows.
    fn runs_ahead(&self) -> bool;
    /// Time, since the start, in which the device had nothing to do: from the ends of reads to the
    /// next launches.
    fn idle(&self) -> Duration {
        Duration::ZERO
    }
    /// Sets rows `rows` of `x` to zero.
    fn zero(&self, x: &mut Self::Buf, rows: Range<usize>) -> Result<()>;
    /// Row `to` of `x` becomes row `from`.
    fn copy_row(&self, x: &mut Self::Buf, from: usize, to: usize) -> Result<()>;
    /// Block `to` of a cache becomes block `from`.
    fn copy_block(&self, kv: &mut Self::Kv, from: u32, to: u32) -> Result<()>;

    /// Called before the first operation of a pass: the device copies what the pass needs of the
    /// batch (positions, lengths, tables).
    fn begin(&self, batch: &Batch) -> Result<()>;

    /// Runs `run`: operations on the model that owns `recorded`, of which nothing changes from one
    /// call to the next but the batch and the kept rows. A device may record them, and repeat the
    /// record for batches of the same shape; `run` is not called then. The caller has checked that
    /// slots and blocks exist. Inside, only operations that take the batch, and those on whole
    /// buffers, are allowed: no `read`, `embed` or `gather`.
    fn recorded<E: From<Error>>(
        &self,
        recorded: &mut Self::Recorded,
        batch: &Batch,
        keep: Option<&Keep>,
        run: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let _ = (recorded, keep);
        self.begin(batch)?;
        run()
    }

    /// Rows of `table` (`[vocab shard, width]`, first id `first`); ids outside the shard give zeros.
    fn embed(
        &self,
        ids: &[u32],
        table: &Self::Weight,
        first: u32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// As [`Ops::embed`], where an id with the bit [`crate::DRAWN`] stands for the token in that row
    /// of `drawn` (as [`Ops::draw`] leaves them), which need not be known yet.
    fn embed_drawn(
        &self,
        ids: &[u32],
        drawn: &Self::Buf,
        table: &Self::Weight,
        first: u32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// `out[i] = x[rows[i]]`.
    fn gather(&self, x: &Self::Buf, rows: &[u32], out: &mut Self::Buf) -> Result<()>;
    /// Copies the first `rows` rows of `x` into columns `column..` of `out`.
    fn copy_columns(
        &self,
        x: &Self::Buf,
        rows: usize,
        out: &mut Self::Buf,
        column: usize,
    ) -> Result<()>;
    /// `out = x W^T` for the first `rows` rows.
    fn linear(
        &self,
        x: &Self::Buf,
        rows: usize,
        w: &Self::Weight,
        out: &mut Self::Buf,
    ) -> Result<()>;

    /// RMS norm over the whole row, `w` of shape `[1, width]`.
    fn rms_norm(
        &self,
        x: &Self::Buf,
        rows: usize,
        w: &Self::Buf,
        kind: NormKind,
        eps: f32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// `residual += delta`, then `out = norm(residual)`.
    #[allow(clippy::too_many_arguments)]
    fn add_rms_norm(
        &self,
        delta: &Self::Buf,
        rows: usize,
        residual: &mut Self::Buf,
        w: &Self::Buf,
        kind: NormKind,
        eps: f32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// `residual += delta`.
    fn add(&self, delta: &Self::Buf, rows: usize, residual: &mut Self::Buf) -> Result<()>;
    /// `out = silu(x[:, ..m]) * x[:, m..]` for `x` of width `2 m`.
    fn swiglu(&self, x: &Self::Buf, rows: usize, out: &mut Self::Buf) -> Result<()>;

    /// [`Ops::swiglu`] of `x W^T`, for which `wide` has room; whether `wide` is written is up to the
    /// device.
    fn linear_swiglu(
        &self,
        x: &Self::Buf,
        rows: usize,
        w: &Self::Weight,
        wide: &mut Self::Buf,
        out: &mut Self::Buf,
    ) -> Result<()> {
        self.linear(x, rows, w, wide)?;
        self.swiglu(wide, rows, out)
    }

    /// Convolution, SiLU, l2 norm and gates of the packed projection
    /// `[q | k | v | z | b | a]`. Each row convolves over its ancestors; those before the segment
    /// come from `conv_state` (`[slots, conv_state_len]`), which stays as it is.
    /// `conv_w` is `[conv_channels, conv_kernel]`, `a_log` and `dt_bias` are `[1, value_heads]`.
    #[allow(clippy::too_many_arguments)]
    fn gdn_prepare(
        &self,
        dims: GdnDims,
        proj: &Self::Buf,
        conv_w: &Self::Buf,
        a_log: &Self::Buf,
        dt_bias: &Self::Buf,
        conv_state: &Self::Buf,
        batch: &Batch,
        rows: &mut GdnRows<Self::Buf>,
    ) -> Result<()>;
    /// Chunked form: outputs `[rows, value_width]` and the states (`[slots,
    /// state_len]`) after the last row of each segment. Chains only.
    fn gdn_prefill(
        &self,
        dims: GdnDims,
        rows: &GdnRows<Self::Buf>,
        batch: &Batch,
        state: &mut Self::Buf,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// Output-only form for chains and trees: reads the states, writes outputs
    /// and `rows.u`.
    fn gdn_verify(
        &self,
        dims: GdnDims,
        rows: &mut GdnRows<Self::Buf>,
        batch: &Batch,
        state: &Self::Buf,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// Folds the kept rows of each segment into its state: `S = e^G S + sum e^(G - G_j) k_j u_j^T`.
    fn gdn_commit(
        &self,
        dims: GdnDims,
        rows: &GdnRows<Self::Buf>,
        batch: &Batch,
        keep: &Keep,
        state: &mut Self::Buf,
    ) -> Result<()>;
    /// Moves the convolution states past the kept rows of `proj`.
    fn conv_commit(
        &self,
        dims: GdnDims,
        proj: &Self::Buf,
        batch: &Batch,
        keep: &Keep,
        conv_state: &mut Self::Buf,
    ) -> Result<()>;
    /// [`Ops::gdn_commit`] and [`Ops::conv_commit`] of layers of the same shapes, at once where the
    /// device gains by that.
    fn commit_layers(
        &self,
        layers: &mut [GdnStates<Self::Buf>],
        batch: &Batch,
        keep: &Keep,
    ) -> Result<()> {
        for layer in layers {
            self.gdn_commit(layer.dims, layer.rows, batch, keep, layer.state)?;
            self.conv_commit(layer.dims, layer.proj, batch, keep, layer.conv_state)?;
        }
        Ok(())
    }
    /// Per value head: `out = norm(x) * w * silu(z)`, `z` taken from the packed projection.
    #[allow(clippy::too_many_arguments)]
    fn gated_norm(
        &self,
        dims: GdnDims,
        x: &Self::Buf,
        proj: &Self::Buf,
        rows: usize,
        w: &Self::Buf,
        eps: f32,
        out: &mut Self::Buf,
    ) -> Result<()>;

    /// From the packed projection `[q (+ gate) | k | v]`: normed and rotated queries into `q`,
    /// normed and rotated keys and plain values into the cache at token `past + i` of each row `i`.
    #[allow(clippy::too_many_arguments)]
    fn attention_prepare(
        &self,
        dims: AttentionDims,
        proj: &Self::Buf,
        q_norm: &Self::Buf,
        k_norm: &Self::Buf,
        rope: &RopeTable<Self::Buf>,
        batch: &Batch,
        q: &mut Self::Buf,
        kv: &mut Self::Kv,
    ) -> Result<()>;
    /// Keys and values only, from `proj = [k | v]`: how the drafter takes in committed context.
    fn kv_append(
        &self,
        dims: AttentionDims,
        proj: &Self::Buf,
        k_norm: &Self::Buf,
        rope: &RopeTable<Self::Buf>,
        batch: &Batch,
        kv: &mut Self::Kv,
    ) -> Result<()>;
    /// Softmax attention of each row over its context and the rows of its segment that `mask`
    /// lets it see; times `sigmoid(gate)` (from `proj`) when the layer is gated.
    #[allow(clippy::too_many_arguments)]
    fn attention(
        &self,
        dims: AttentionDims,
        q: &Self::Buf,
        proj: &Self::Buf,
        kv: &Self::Kv,
        mask: AttentionMask,
        batch: &Batch,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// Moves the kept rows' keys and values to the tokens right behind the committed context.
    fn kv_commit(&self, dims: KvDims, batch: &Batch, keep: &Keep, kv: &mut Self::Kv) -> Result<()>;

    /// The [`CANDIDATES`] largest of each of the first `rows` rows of f32 logits, whose first
    /// column is token `first`, among tokens below `allowed`. A row of `out` (f32, [`TOP_WIDTH`]
    /// wide) holds the logits, descending and ties by lowest id; then their ids (exact in f32
    /// below 2^24); then the log of the sum of `exp(logit - largest)`, NaN when a logit is NaN or
    /// positive infinity. Places without a token have logit negative infinity.
    fn top(
        &self,
        logits: &Self::Buf,
        rows: usize,
        first: u32,
        allowed: u32,
        out: &mut Self::Buf,
    ) -> Result<()>;

    /// A token for each of `draws` from its row: the likeliest, or at a temperature Gumbel-max among the
    /// tokens that the filters leave (top-k, top-p of the rest, min-p; as sampling on the host does it,
    /// but for arrivals and masses that differ by less than 1e-5 of themselves), with noise that depends
    /// on seed, position and token only. A row of `out` (f32, [`crate::DRAWN_WIDTH`] wide) holds the id and its
    /// logit; rows without candidates, or with a logit that is NaN or positive infinity, give any id.
    fn draw(
        &self,
        from: &DrawFrom<'_, Self::Buf>,
        draws: &[Draw],
        out: &mut Self::Buf,
    ) -> Result<()>;

    /// As [`Ops::draw`], each row changed by its one of `edits` first; candidates and log-sum-exp are those of
    /// the changed row then. The logit that comes out is the row's own, before any change; but what a change
    /// made of it where that is positive infinity, and negative infinity where no token is left.
    fn draw_edited(
        &self,
        from: EditedRows<'_, Self::Buf>,
        edits: &[Edit],
        draws: &[Draw],
        out: &mut Self::Buf,
    ) -> Result<()>;

    /// Grows each of `trees` from rows of [`Ops::top`], those of all ranks side by side. A row of `out` (f32,
    /// [`crate::DRAWN_WIDTH`] wide) holds the token of a node and the row of its parent in the segment that
    /// is to come, where 0 is the anchor and the first node 1.
    ///
    /// A token's surprisal is whole, in units of 2^-16 bits, so that it is the same on every device:
    /// with `x` the difference of its logit to the likeliest's times [`Growth::scale`] in f32, cut to a whole
    /// number, at most 60 bits, it is `x` plus the logarithm of the sum of `2^-x` over the candidates,
    /// both powers and logarithm by the polynomials that `volley_speculate::surprisals` has. Places
    /// without a candidate count as token 0 with the greatest `x`.
    fn grow(&self, tops: &Self::Buf, trees: &[Growth], out: &mut Self::Buf) -> Result<()>;
    /// The parents of `batch` with the bit [`crate::DRAWN`] are those in these rows of `drafts`, which need not
    /// be known yet: for the next pass over the batch, and for that over what [`Batch::becomes`] of it.
    fn plant(&self, batch: &Batch, drafts: &Self::Buf) -> Result<()>;

    /// Goes down the rows of each segment of `batch`, the last that was verified, from the first one on to the
    /// row that holds the token chosen behind the row before, as long as there is one and no end comes first.
    /// The rows on the way are the kept ones that [`crate::walked`] stands for in the operations that follow.
    /// Row `i` of `out` (f32, [`crate::WALKED_WIDTH`] wide) says which they are in segment `i`.
    fn walk(&self, batch: &Batch, walk: &Walk<'_, Self::Buf>, out: &mut Self::Buf) -> Result<()>;
    /// Rows of `x`, which has those of `batch`, that were kept of it by the last [`Ops::walk`]: of segment `i` the
    /// first `counts[i]`, segment by segment. Behind the last that was kept comes any row.
    fn gather_walked(
        &self,
        x: &Self::Buf,
        batch: &Batch,
        counts: &[usize],
        out: &mut Self::Buf,
    ) -> Result<()>;

    /// `residual += delta` summed over the ranks, then `out = norm(residual)`; leaves anything in
    /// `delta`.
    #[allow(clippy::too_many_arguments)]
    fn reduce_add_rms_norm(
        &self,
        delta: &mut Self::Buf,
        rows: usize,
        residual: &mut Self::Buf,
        w: &Self::Buf,
        kind: NormKind,
        eps: f32,
        out: &mut Self::Buf,
    ) -> Result<()> {
        self.all_reduce(delta, rows)?;
        self.add_rms_norm(delta, rows, residual, w, kind, eps, out)
    }
    /// Sum over the ranks, in place, of the first `rows` rows.
    fn all_reduce(&self, x: &mut Self::Buf, rows: usize) -> Result<()>;
    /// The ranks' columns side by side: `[rows, width]` to `[rows, ranks * width]`.
    fn all_gather(&self, x: &Self::Buf, rows: usize, out: &mut Self::Buf) -> Result<()>;
}
