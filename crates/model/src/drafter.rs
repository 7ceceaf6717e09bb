use volley_ops::{Batch, Draw, Dtype, Edit, Growth, NormKind, Ops, RopeTable, Segment};

use crate::checkpoint::Checkpoint;
use crate::layers::{
    Attention, AttentionPlan, AttentionScratch, Layer, Mixer, Mlp, MlpScratch, Mode, Pass, Scratch,
    Stream,
};
use crate::target::copy_block;
use crate::weights::{Scope, Weights, drafter_name};
use crate::{DrafterConfig, Limits, Outcome, Result, Shard, Target, TargetConfig, check, manifest};

/// One rank of a DFlash drafter with its cache. Heads and MLP are split among
/// the ranks, `fc` is replicated: its output is needed whole by every rank.
///
/// A block's keys and values are written behind the context, which never advances over them.
pub struct Drafter<O: Ops> {
    config: DrafterConfig,
    limits: Limits,
    layers: Vec<Layer<O>>,
    norm: O::Buf,
    rope: RopeTable<O::Buf>,
    stream: Stream<O>,
    scratch: Scratch<O>,
    features: Features<O>,
    appends: O::Recorded,
    blocks: O::Recorded,
}

/// What turns the target's taps into context: `hidden_norm(fc taps)`.
struct Features<O: Ops> {
    fc: O::Weight,
    norm: O::Buf,
    taps: O::Buf,
    projected: O::Buf,
    normed: O::Buf,
    /// `[k | v]` of one layer.
    kv: O::Buf,
}

impl<O: Ops> Drafter<O> {
    /// Loads this rank's share of a drafter for `target`. `limits.max_rows` bounds the rows of an
    /// append and of a draft (`block_size` per sequence); slots and `verify_rows` are not used.
    pub fn load(
        ops: &O,
        checkpoint: &Checkpoint,
        target: &TargetConfig,
        limits: Limits,
    ) -> Result<Self> {
        let config = DrafterConfig::read(checkpoint, Some(target))?;
        config.check_target(target)?;
        limits.check("Drafter::load")?;
        config.shapes.check_ranks(ops.ranks())?;
        if limits.max_rows < config.block_size {
            let expected = format!("at least the block of {}", config.block_size);
            return Err(check::error(
                "Drafter::load",
                "limits.max_rows",
                expected,
                limits.max_rows,
            ));
        }
        let weights = Weights::new(checkpoint, drafter_name)?;
        let specs = manifest::drafter(&config.shapes);
        weights.check(&specs)?;
        let drafter = Self::build(ops, &weights, config, limits)?;
        weights.finish(&specs);
        Ok(drafter)
    }

    fn build(ops: &O, weights: &Weights, config: DrafterConfig, limits: Limits) -> Result<Self> {
        let shard = Shard::of(ops);
        let (rows, shapes) = (limits.max_rows, config.shapes);
        let dims = config.attention_dims(shard)?;
        let root = weights.scope("");
        let layers = (0..shapes.layers)
            .map(|i| {
                let plan = AttentionPlan {
                    dims,
                    mask: config.masks[i],
                    kv_heads: shapes.kv_heads,
                    shard,
                    blocks: limits.blocks,
                    appends: true,
                };
                let layer = weights.scope(format!("layers.{i}."));
                load_layer(ops, &layer, plan, shapes.intermediate_size)
            })
            .collect::<Result<_>>()?;
        let hidden = shapes.hidden_size;
        let alloc = |width| ops.alloc(rows, width, Dtype::Activation);
        let fc = root.matrix("fc.weight");
        Ok(Self {
            layers,
            norm: root.norm(ops, "norm.weight")?,
            rope: config.rope.table(ops)?,
            stream: Stream::new(ops, rows, hidden, NormKind::Plain, config.eps)?,
            scratch: Scratch {
                gdn: None,
                attention: AttentionScratch::new(ops, rows, dims)?,
                mlp: MlpScratch::new(ops, rows, shapes.intermediate_size, shard)?,
            },
            features: Features {
                fc: fc.weight(ops)?,
                norm: root.norm(ops, "hidden_norm.weight")?,
                taps: alloc(shapes.taps * hidden)?,
                projected: alloc(hidden)?,
                normed: alloc(hidden)?,
                kv: alloc(2 * dims.kv_width())?,
            },
            appends: O::Recorded::default(),
            blocks: O::Recorded::default(),
            config,
            limits,
        })
    }

    /// Shapes, constants and guesses.
    pub fn config(&self) -> &DrafterConfig {
        &self.config
    }

    /// Takes in committed tokens: row `rows[i]` of `taps` is row `i` of `batch`, whose segments
    /// start at the drafter's context length (`past`).
    pub fn append(&mut self, ops: &O, taps: &O::Buf, rows: &[u32], batch: &Batch) -> Result<()> {
        self.check_append(ops, rows.len(), batch)?;
        ops.gather(taps, rows, &mut self.features.taps)?;
        self.take_in(ops, batch)
    }

    /// As [`Drafter::append`] of the rows of `verified` that [`Target::walk`] has kept, which need not be known
    /// yet: of segment `i` at most `counts[i]`. What is written behind those that were kept is to be
    /// overwritten by what comes next.
    pub fn append_walked(
        &mut self,
        ops: &O,
        taps: &O::Buf,
        verified: &Batch,
        counts: &[usize],
    ) -> Result<()> {
        let mut batch = Batch::default();
        for (segment, &count) in verified.segments.iter().zip(counts) {
            let first = batch.rows();
            if count > 0 {
                batch.segments.push(Segment {
                    rows: first..first + count,
                    parents: None,
                    ..segment.clone()
                });
            }
        }
        self.check_append(ops, batch.rows(), &batch)?;
        ops.gather_walked(taps, verified, counts, &mut self.features.taps)?;
        self.take_in(ops, &batch)
    }

    fn check_append(&self, ops: &O, rows: usize, batch: &Batch) -> Result<()> {
        let call = "Drafter::append";
        check::pass(call, rows, batch, self.limits.max_rows)?;
        check::chains(call, batch)?;
        self.check_places(ops, call, batch)
    }

    /// Takes in the rows of taps that were gathered.
    fn take_in(&mut self, ops: &O, batch: &Batch) -> Result<()> {
        let pass = Pass {
            ops,
            batch,
            rows: batch.rows(),
            mode: Mode::Prefill,
            rope: &self.rope,
        };
        let (block, eps) = (self.config.block_size, self.config.eps);
        let Self {
            features, layers, ..
        } = self;
        let mut run = || -> Result<()> {
            let Features {
                fc,
                norm,
                taps,
                projected,
                normed,
                kv,
            } = &mut *features;
            ops.linear(taps, pass.rows, fc, projected)?;
            ops.rms_norm(projected, pass.rows, norm, NormKind::Plain, eps, normed)?;
            for layer in layers.iter_mut() {
                if let Mixer::Attention(attention) = &mut layer.mixer {
                    attention.append(&pass, normed, kv)?;
                }
            }
            Ok(())
        };
        // Chunks of a prompt do not come again.
        if batch.segments.iter().any(|s| s.rows.len() > block) {
            ops.begin(batch)?;
            return run();
        }
        ops.recorded(&mut self.appends, batch, None, &mut run)
    }

    /// One block per segment of `batch` (`past` = context length, `block_size` rows), each from its
    /// anchor, the token at position `past`. Returns the target head's likeliest tokens below
    /// `allowed` for the first `depth` positions behind the anchors, `[segments * depth]`, the same
    /// on every rank; with `draws`, one per row, the device draws a token from each row, too, after its one of
    /// `edits` if there are any.
    #[allow(clippy::too_many_arguments)]
    pub fn draft(
        &mut self,
        ops: &O,
        target: &mut Target<O>,
        anchors: &[u32],
        batch: &Batch,
        [depth, allowed]: [usize; 2],
        draws: &[Draw],
        edits: &[Edit],
    ) -> Result<Outcome> {
        self.block(ops, target, anchors, batch)?;
        let rows = self.predictions(batch, depth);
        let hidden = self.stream.normed();
        target
            .vocabulary()
            .candidates(ops, hidden, &rows, allowed, draws, edits)
    }

    /// As [`Drafter::draft`], but the device draws the tokens, one for each of `draws`
    /// (`[segments * depth]`, or none), and keeps them: row `i` of them is the id `DRAWN | i` of the next
    /// [`Target::verify`]. Behind these it grows `trees` from the candidates of the same rows. Nothing is
    /// waited for.
    #[allow(clippy::too_many_arguments)]
    pub fn draw(
        &mut self,
        ops: &O,
        target: &mut Target<O>,
        anchors: &[u32],
        batch: &Batch,
        [depth, allowed]: [usize; 2],
        draws: &[Draw],
        trees: &[Growth],
    ) -> Result<()> {
        self.block(ops, target, anchors, batch)?;
        let rows = self.predictions(batch, depth);
        let hidden = self.stream.normed();
        target
            .vocabulary()
            .draft(ops, hidden, &rows, allowed, draws, trees)
    }

    /// As [`Drafter::draft`], all f32 logits of all positions:
    /// `[segments * (block_size - 1), vocab_size]`.
    pub fn draft_logits(
        &mut self,
        ops: &O,
        target: &mut Target<O>,
        anchors: &[u32],
        batch: &Batch,
    ) -> Result<Vec<f32>> {
        self.block(ops, target, anchors, batch)?;
        let rows = self.predictions(batch, self.config.block_size - 1);
        let hidden = self.stream.normed();
        target.vocabulary().logits(ops, hidden, &rows)
    }

    /// Runs blocks of an anchor and masks.
    fn block(&mut self, ops: &O, target: &Target<O>, anchors: &[u32], batch: &Batch) -> Result<()> {
        let block = self.config.block_size;
        self.check_blocks(ops, anchors.len() * block, batch)?;
        let mut ids = vec![self.config.mask_token_id; batch.rows()];
        for (anchor, slot) in anchors.iter().zip(ids.iter_mut().step_by(block)) {
            *slot = *anchor;
        }
        target.embed(ops, &ids, self.stream.restart())?;
        self.forward(ops, batch)
    }

    /// Rows of the first `depth` positions behind the anchors.
    fn predictions(&self, batch: &Batch, depth: usize) -> Vec<u32> {
        let block = self.config.block_size;
        let depth = depth.min(block - 1);
        let rows = 0..batch.rows() as u32;
        rows.filter(|row| (1..=depth).contains(&(*row as usize % block)))
            .collect()
    }

    /// Block `to` of the caches becomes block `from`.
    pub fn copy_block(&mut self, ops: &O, from: u32, to: u32) -> Result<()> {
        copy_block(&mut self.layers, ops, from, to)
    }

    /// Runs blocks whose embeddings `[segments * block_size, hidden_size]` are given; the result is
    /// [`Drafter::hidden`].
    pub fn run(&mut self, ops: &O, embeddings: &O::Buf, batch: &Batch) -> Result<()> {
        self.check_blocks(ops, batch.rows(), batch)?;
        let rows: Vec<u32> = (0..batch.rows() as u32).collect();
        ops.gather(embeddings, &rows, self.stream.restart())?;
        self.forward(ops, batch)
    }

    /// Final-normed hidden states of the last blocks, `[segments * block_size, hidden_size]`.
    pub fn hidden(&self) -> &O::Buf {
        self.stream.normed()
    }

    fn check_places(&self, ops: &O, call: &'static str, batch: &Batch) -> Result<()> {
        let size = ops.block_size();
        let mut segments = batch.segments.iter();
        segments.try_for_each(|segment| check::blocks(call, segment, &self.limits, size))
    }

    fn check_blocks(&self, ops: &O, rows: usize, batch: &Batch) -> Result<()> {
        let (call, block) = ("Drafter::draft", self.config.block_size);
        check::pass(call, rows, batch, self.limits.max_rows)?;
        check::chains(call, batch)?;
        self.check_places(ops, call, batch)?;
        match batch.segments.iter().find(|s| s.rows.len() != block) {
            Some(segment) => {
                let expected = format!("{block} rows, a block");
                Err(check::error(call, "segment", expected, segment.rows.len()))
            }
            None => Ok(()),
        }
    }

    /// From the embeddings in the stream to the final norm.
    fn forward(&mut self, ops: &O, batch: &Batch) -> Result<()> {
        let rows = batch.rows();
        let pass = Pass {
            ops,
            batch,
            rows,
            mode: Mode::Verify,
            rope: &self.rope,
        };
        let Self {
            layers,
            norm,
            stream,
            scratch,
            ..
        } = self;
        ops.recorded(&mut self.blocks, batch, None, &mut || {
            for layer in layers.iter_mut() {
                stream.norm(ops, rows, &layer.input_norm)?;
                layer.forward(&pass, stream, scratch)?;
            }
            stream.norm(ops, rows, norm)
        })
    }
}

fn load_layer<O: Ops>(
    ops: &O,
    layer: &Scope,
    plan: AttentionPlan,
    intermediate: usize,
) -> Result<Layer<O>> {
    Ok(Layer {
        input_norm: layer.norm(ops, "input_layernorm.weight")?,
        mixer: Mixer::Attention(Box::new(Attention::load(ops, layer, plan)?)),
        post_norm: layer.norm(ops, "post_attention_layernorm.weight")?,
        mlp: Mlp::load(ops, layer, intermediate, plan.shard)?,
    })
}
