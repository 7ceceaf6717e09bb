use volley_ops::{Batch, Draw, Dtype, Edit, NormKind, Ops, RopeTable};

use crate::checkpoint::Checkpoint;
use crate::layers::{
    Attention, AttentionPlan, AttentionScratch, Layer, Mixer, Mlp, MlpScratch, Mode, Pass, Scratch,
    Stream,
};
use crate::target::copy_block;
use crate::weights::{Weights, target_name};
use crate::{Limits, Outcome, Result, Shard, Target, TargetConfig, check, manifest};

/// Where the hidden states of a pass of the MTP head come from: rows of a buffer, one per id.
#[derive(Clone, Copy, Debug)]
pub enum HiddenRows<'a, B> {
    /// The target's last pass: the rows before the tokens.
    Target(&'a [u32]),
    /// The head's own last pass: further drafts in a chain.
    Head(&'a [u32]),
    /// Rows of another buffer, where such states were kept.
    Kept(&'a B, &'a [u32]),
}

/// One rank of the multi-token prediction head with its cache. `fc` is replicated,
/// its layer is split like the target's.
pub struct Mtp<O: Ops> {
    limits: Limits,
    eps: f32,
    embedding_norm: O::Buf,
    hidden_norm: O::Buf,
    fc: O::Weight,
    layer: Layer<O>,
    norm: O::Buf,
    rope: RopeTable<O::Buf>,
    stream: Stream<O>,
    scratch: Scratch<O>,
    hidden: O::Buf,
    normed: O::Buf,
    joined: O::Buf,
    width: usize,
    rows: usize,
    passes: O::Recorded,
}

/// Rows of a sequence up to which passes come again and again: drafts, and what a step keeps.
const FEW_ROWS: usize = 16;

impl<O: Ops> Mtp<O> {
    /// Loads this rank's share of the `mtp.*` tensors; an incomplete set is an error that names
    /// what is missing. Slots and `verify_rows` are not used.
    pub fn load(
        ops: &O,
        checkpoint: &Checkpoint,
        config: &TargetConfig,
        limits: Limits,
    ) -> Result<Self> {
        limits.check("Mtp::load")?;
        config.check_ranks(ops.ranks())?;
        let specs = manifest::mtp(config);
        let names = |name: &str| target_name(name).filter(|name| name.starts_with("mtp."));
        let weights = Weights::new(checkpoint, names)?;
        weights.check(&specs)?;
        let mtp = Self::build(ops, &weights, config, limits)?;
        weights.finish(&specs);
        Ok(mtp)
    }

    fn build(ops: &O, weights: &Weights, config: &TargetConfig, limits: Limits) -> Result<Self> {
        let shard = Shard::of(ops);
        let (rows, width) = (limits.max_rows, config.hidden_size);
        let (root, layer) = (weights.scope("mtp."), weights.scope("mtp.layers.0."));
        let dims = config.attention_dims(shard)?;
        let plan = AttentionPlan {
            dims,
            mask: config.mask(),
            kv_heads: config.kv_heads,
            shard,
            blocks: limits.blocks,
            appends: false,
        };
        let alloc = |width| ops.alloc(rows, width, Dtype::Activation);
        Ok(Self {
            limits,
            eps: config.eps,
            embedding_norm: root.norm(ops, "pre_fc_norm_embedding.weight")?,
            hidden_norm: root.norm(ops, "pre_fc_norm_hidden.weight")?,
            fc: root.matrix("fc.weight").weight(ops)?,
            layer: Layer {
                input_norm: layer.norm(ops, "input_layernorm.weight")?,
                mixer: Mixer::Attention(Box::new(Attention::load(ops, &layer, plan)?)),
                post_norm: layer.norm(ops, "post_attention_layernorm.weight")?,
                mlp: Mlp::load(ops, &layer, config.intermediate_size, shard)?,
            },
            norm: root.norm(ops, "norm.weight")?,
            rope: config.rope.table(ops)?,
            stream: Stream::new(ops, rows, width, NormKind::ZeroCentred, config.eps)?,
            scratch: Scratch {
                gdn: None,
                attention: AttentionScratch::new(ops, rows, dims)?,
                mlp: MlpScratch::new(ops, rows, config.intermediate_size, shard)?,
            },
            hidden: alloc(width)?,
            normed: alloc(width)?,
            joined: alloc(2 * width)?,
            width,
            rows: 0,
            passes: O::Recorded::default(),
        })
    }

    /// Runs rows: row `i` has the token `ids[i]` that follows the hidden state of the same index
    /// in `hidden`, and the position of that hidden state (`past + i`). Keys and values are written there;
    /// rows that turn out wrong are overwritten by a later pass.
    pub fn forward(
        &mut self,
        ops: &O,
        target: &Target<O>,
        ids: &[u32],
        hidden: HiddenRows<'_, O::Buf>,
        batch: &Batch,
    ) -> Result<()> {
        let call = "Mtp::forward";
        check::pass(call, ids.len(), batch, self.limits.max_rows)?;
        check::chains(call, batch)?;
        let size = ops.block_size();
        let mut segments = batch.segments.iter();
        segments.try_for_each(|segment| check::blocks(call, segment, &self.limits, size))?;
        let n = ids.len();
        let (source, rows, limit) = match hidden {
            HiddenRows::Target(rows) => (target.hidden(), rows, target.rows()),
            HiddenRows::Head(rows) => (self.stream.normed(), rows, self.rows),
            HiddenRows::Kept(buffer, rows) => (buffer, rows, usize::MAX),
        };
        check::rows(call, rows, limit)?;
        if rows.len() != n {
            let expected = format!("{n}, one per id");
            return Err(check::error(
                call,
                "number of hidden rows",
                expected,
                rows.len(),
            ));
        }
        ops.gather(source, rows, &mut self.hidden)?;
        self.rows = 0;
        target.embed(ops, ids, self.stream.restart())?;
        let pass = Pass {
            ops,
            batch,
            rows: n,
            mode: Mode::Prefill,
            rope: &self.rope,
        };
        let (eps, width) = (self.eps, self.width);
        let Self {
            embedding_norm,
            hidden_norm,
            fc,
            layer,
            norm,
            stream,
            scratch,
            hidden,
            normed,
            joined,
            ..
        } = self;
        let mut run = || -> Result<()> {
            // `[norm(embedding) | norm(hidden)]`
            let halves = [
                (&stream.residual, &*embedding_norm),
                (&*hidden, &*hidden_norm),
            ];
            for (i, (x, w)) in halves.into_iter().enumerate() {
                ops.rms_norm(x, n, w, NormKind::ZeroCentred, eps, normed)?;
                ops.copy_columns(normed, n, joined, i * width)?;
            }
            ops.linear(joined, n, fc, stream.restart())?;
            stream.norm(ops, n, &layer.input_norm)?;
            layer.forward(&pass, stream, scratch)?;
            stream.norm(ops, n, norm)
        };
        match batch.segments.iter().all(|s| s.rows.len() <= FEW_ROWS) {
            true => ops.recorded(&mut self.passes, batch, None, &mut run)?,
            // Chunks of a prompt do not come again.
            false => {
                ops.begin(batch)?;
                run()?;
            }
        }
        self.rows = n;
        Ok(())
    }

    /// f32 logits `[rows.len(), vocab_size]` of rows of the last pass, by the target's head.
    pub fn logits(&self, ops: &O, target: &mut Target<O>, rows: &[u32]) -> Result<Vec<f32>> {
        check::rows("Mtp::logits", rows, self.rows)?;
        target.vocabulary().logits(ops, self.stream.normed(), rows)
    }

    /// Block `to` of the cache becomes block `from`.
    pub fn copy_block(&mut self, ops: &O, from: u32, to: u32) -> Result<()> {
        copy_block(std::slice::from_mut(&mut self.layer), ops, from, to)
    }

    /// Likeliest tokens below `allowed` of rows of the last pass, or of hidden states kept from an earlier one,
    /// by the target's head; with `draws`, one per row, the device draws a token from each row, too, after its
    /// one of `edits` if there are any.
    pub fn candidates(
        &self,
        ops: &O,
        target: &mut Target<O>,
        hidden: HiddenRows<'_, O::Buf>,
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
    ) -> Result<Outcome> {
        let (x, rows) = self.own(hidden)?;
        target
            .vocabulary()
            .candidates(ops, x, rows, allowed, draws, edits)
    }

    /// The device draws a token for each of `draws` from its row, of the last pass or of hidden
    /// states kept from an earlier one, and keeps it behind those that it drew before: row `i` of
    /// them is the id `DRAWN | (first + i)` of the next pass. Comes to `first`; nothing is waited
    /// for.
    pub fn draw(
        &self,
        ops: &O,
        target: &mut Target<O>,
        hidden: HiddenRows<'_, O::Buf>,
        allowed: usize,
        draws: &[Draw],
    ) -> Result<usize> {
        let (x, rows) = self.own(hidden)?;
        target.vocabulary().draft_more(ops, x, rows, allowed, draws)
    }

    /// Hidden states of the head, of which some rows are meant.
    fn own<'a>(&'a self, hidden: HiddenRows<'a, O::Buf>) -> Result<(&'a O::Buf, &'a [u32])> {
        match hidden {
            HiddenRows::Kept(buffer, rows) => Ok((buffer, rows)),
            HiddenRows::Head(rows) => {
                check::rows("Mtp::candidates", rows, self.rows)?;
                Ok((self.stream.normed(), rows))
            }
            HiddenRows::Target(_) => {
                let expected = "rows of the head".to_string();
                let got = "the target's";
                Err(check::error("Mtp::draw", "hidden rows", expected, got))
            }
        }
    }

    /// Width of the hidden states.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Normed hidden states of the last pass, `[rows, hidden_size]`.
    pub fn hidden(&self) -> &O::Buf {
        self.stream.normed()
    }
}
