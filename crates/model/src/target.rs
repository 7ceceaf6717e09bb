use volley_ops::{
    Batch, DRAWN, Draw, Dtype, Edit, Keep, NormKind, Ops, RopeTable, WalkEnd, walked,
};

use crate::checkpoint::Checkpoint;
use crate::head::{Asked, Outcome, Vocabulary};
use crate::layers::{
    Attention, AttentionPlan, AttentionScratch, Gdn, GdnScratch, Layer, Mixer, Mlp, MlpScratch,
    Mode, Pass, Scratch, Stream,
};
use crate::weights::{Scope, Weights, target_name};
use crate::{Drawn, LayerKind, Limits, Result, Shard, TargetConfig, TopRows, check, manifest};

/// One rank of a Qwen3.5 / Qwen3.6 text model with the states of all slots.
pub struct Target<O: Ops> {
    config: TargetConfig,
    limits: Limits,
    vocabulary: Vocabulary<O>,
    layers: Vec<Layer<O>>,
    norm: O::Buf,
    rope: RopeTable<O::Buf>,
    stream: Stream<O>,
    scratch: Scratch<O>,
    tapped: Vec<usize>,
    taps: O::Buf,
    /// Rows of the last pass.
    rows: usize,
    /// Batch of the last verification until its commit.
    verified: Option<Batch>,
    verifications: O::Recorded,
    commits: O::Recorded,
}

impl<O: Ops> Target<O> {
    /// Loads this rank's share. `taps` lists the layers whose residual outputs are kept, in order.
    /// Tensors that the config does not know, or of other shapes, are errors; a set of `mtp.*`
    /// tensors is checked but read by [`crate::Mtp::load`] only.
    pub fn load(ops: &O, checkpoint: &Checkpoint, taps: &[usize], limits: Limits) -> Result<Self> {
        let config = TargetConfig::read(checkpoint)?;
        if let Some(id) = taps.iter().find(|&&id| id >= config.layers.len()) {
            let expected = format!("a layer id below {}", config.layers.len());
            return Err(check::error("Target::load", "tap", expected, id));
        }
        limits.check("Target::load")?;
        config.check_ranks(ops.ranks())?;
        let weights = Weights::new(checkpoint, target_name)?;
        let specs = manifest::target(&config);
        check_tensors(&weights, &config)?;
        let target = Self::build(ops, &weights, config, taps, limits)?;
        weights.finish(&specs);
        Ok(target)
    }

    fn build(
        ops: &O,
        weights: &Weights,
        config: TargetConfig,
        taps: &[usize],
        limits: Limits,
    ) -> Result<Self> {
        let shard = Shard::of(ops);
        let (rows, hidden) = (limits.max_rows, config.hidden_size);
        let root = weights.scope("");
        let sizes = [config.vocab_size, hidden];
        let tied = config.tie_word_embeddings;
        let layers = (0..config.layers.len())
            .map(|i| {
                let layer = weights.scope(format!("model.layers.{i}."));
                load_layer(ops, &layer, &config, config.layers[i], shard, limits)
            })
            .collect::<Result<_>>()?;
        let gdn = match config.gdn_layers() {
            0 => None,
            _ => Some(GdnScratch::new(ops, rows, config.gdn_dims(shard)?)?),
        };
        Ok(Self {
            vocabulary: Vocabulary::load(ops, &root, sizes, tied, shard, limits.verify_rows)?,
            layers,
            norm: root.norm(ops, "model.norm.weight")?,
            rope: config.rope.table(ops)?,
            stream: Stream::new(ops, rows, hidden, NormKind::ZeroCentred, config.eps)?,
            scratch: Scratch {
                gdn,
                attention: AttentionScratch::new(ops, rows, config.attention_dims(shard)?)?,
                mlp: MlpScratch::new(ops, rows, config.intermediate_size, shard)?,
            },
            tapped: taps.to_vec(),
            taps: ops.alloc(rows, taps.len().max(1) * hidden, Dtype::Activation)?,
            rows: 0,
            verified: None,
            verifications: O::Recorded::default(),
            commits: O::Recorded::default(),
            config,
            limits,
        })
    }

    /// Shapes and constants of the model.
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// Runs rows of the text and advances all states. Chains only.
    pub fn prefill(&mut self, ops: &O, ids: &[u32], batch: &Batch) -> Result<()> {
        let call = "Target::prefill";
        check::pass(call, ids.len(), batch, self.limits.max_rows)?;
        check::chains(call, batch)?;
        self.verified = None;
        self.pass(ops, ids, batch, Mode::Prefill)
    }

    /// Runs proposed rows, chains or trees; no state moves before [`Target::commit`]. An id with the
    /// bit [`volley_ops::DRAWN`] is what [`crate::Drafter::draw`] drew in that row, a parent what it grew.
    pub fn verify(&mut self, ops: &O, ids: &[u32], batch: &Batch) -> Result<()> {
        check::pass("Target::verify", ids.len(), batch, self.limits.verify_rows)?;
        self.verified = None;
        self.pass(ops, ids, batch, Mode::Verify)?;
        self.verified = Some(batch.clone());
        Ok(())
    }

    /// Moves all states past the kept rows of the last [`Target::verify`], whose batch this is, with the
    /// parents that were grown.
    pub fn commit(&mut self, ops: &O, batch: &Batch, keep: &Keep) -> Result<()> {
        let call = "Target::commit";
        let verified = self.verified.as_ref();
        if batch.is_grown() || !verified.is_some_and(|verified| verified.becomes(batch)) {
            let got = format!("a batch of {} rows", batch.rows());
            return Err(check::error(call, "batch", "that of the last verify", got));
        }
        check::keep(call, batch, keep)?;
        self.keep(ops, call, batch, keep)
    }

    /// As [`Target::outcome`] of all rows of the last [`Target::verify`], whose tokens these are; and all states
    /// move past the rows that hold the tokens chosen, up to the end of each segment. Nothing is waited for:
    /// [`Target::answer`] does that.
    pub fn walk(
        &mut self,
        ops: &O,
        ids: &[u32],
        allowed: usize,
        draws: &[Draw],
        ends: &[WalkEnd<'_>],
    ) -> Result<Asked<O>> {
        let call = "Target::walk";
        let Some(batch) = self.verified.take() else {
            return Err(check::error(call, "batch", "that of a verify", "none"));
        };
        let hidden = self.stream.normed();
        let vocabulary = &mut self.vocabulary;
        let asked = vocabulary.walk(ops, hidden, ids, &batch, allowed, draws, ends)?;
        self.keep(ops, call, &batch, &walked(&batch))?;
        Ok(asked)
    }

    /// What [`Target::walk`] asked for. Hands out drafts as [`Target::outcome`] does.
    pub fn answer(&mut self, ops: &O, asked: Asked<O>) -> Result<Outcome> {
        self.vocabulary.read(ops, asked)
    }

    /// Moves all states past kept rows of the last verification.
    fn keep(&mut self, ops: &O, call: &'static str, batch: &Batch, keep: &Keep) -> Result<()> {
        check::own_slots(call, batch)?;
        let layers = &mut self.layers;
        ops.recorded(
            &mut self.commits,
            batch,
            Some(keep),
            &mut || -> Result<()> {
                let mut gdn_layers = Vec::new();
                for layer in layers.iter_mut() {
                    match &mut layer.mixer {
                        Mixer::Gdn(gdn) => gdn_layers.push(gdn.states()),
                        Mixer::Attention(attention) => attention.commit(ops, batch, keep)?,
                    }
                }
                Ok(ops.commit_layers(&mut gdn_layers, batch, keep)?)
            },
        )?;
        self.verified = None;
        Ok(())
    }

    fn pass(&mut self, ops: &O, ids: &[u32], batch: &Batch, mode: Mode) -> Result<()> {
        let known = ids.iter().filter(|id| **id & DRAWN == 0);
        check::ids("ids", known, self.config.vocab_size)?;
        check::places("Target", batch, &self.limits, ops.block_size())?;
        self.rows = 0;
        let rows = ids.len();
        self.vocabulary.plant(ops, batch)?;
        self.vocabulary.embed(ops, ids, self.stream.restart())?;
        let pass = Pass {
            ops,
            batch,
            rows,
            mode,
            rope: &self.rope,
        };
        let Self {
            layers,
            norm,
            stream,
            scratch,
            tapped,
            taps,
            ..
        } = self;
        let mut run = || -> Result<()> {
            for (i, layer) in layers.iter_mut().enumerate() {
                stream.norm(ops, rows, &layer.input_norm)?;
                if let Some(done) = i.checked_sub(1) {
                    tap(ops, stream, rows, tapped, done, taps)?;
                }
                layer.forward(&pass, stream, scratch)?;
            }
            stream.norm(ops, rows, norm)?;
            tap(ops, stream, rows, tapped, layers.len() - 1, taps)
        };
        match mode {
            Mode::Prefill => {
                ops.begin(batch)?;
                run()?;
            }
            Mode::Verify => ops.recorded(&mut self.verifications, batch, None, &mut run)?,
        }
        self.rows = rows;
        Ok(())
    }

    /// f32 logits `[rows.len(), vocab_size]` of rows of the last pass, the same on every rank. Ids
    /// without a token are the caller's to mask.
    pub fn logits(&mut self, ops: &O, rows: &[u32]) -> Result<Vec<f32>> {
        check::rows("Target::logits", rows, self.rows)?;
        self.vocabulary.logits(ops, self.stream.normed(), rows)
    }

    /// Likeliest tokens below `allowed` of rows of the last pass, at most `verify_rows` of them.
    pub fn candidates(&mut self, ops: &O, rows: &[u32], allowed: usize) -> Result<TopRows> {
        check::rows("Target::candidates", rows, self.rows)?;
        let hidden = self.stream.normed();
        let found = self
            .vocabulary
            .candidates(ops, hidden, rows, allowed, &[], &[])?;
        Ok(found.tops)
    }

    /// Whether drafts were drawn that [`Target::outcome`] has not handed out.
    pub fn has_drafted(&self) -> bool {
        self.vocabulary.has_drafted()
    }

    /// As [`Target::candidates`]; with `draws`, one per row, the device draws a token from each row,
    /// too, after its one of `edits` if there are any. Hands out what [`crate::Drafter::draw`] or [`crate::Mtp::draw`] drew last, once.
    pub fn outcome(
        &mut self,
        ops: &O,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
    ) -> Result<Outcome> {
        check::rows("Target::outcome", rows, self.rows)?;
        let hidden = self.stream.normed();
        self.vocabulary
            .outcome(ops, hidden, rows, allowed, draws, edits)
    }

    /// Draws a token from row `row` of the last [`Target::outcome`], [`Target::candidates`] or
    /// [`crate::Drafter::draft`], changed by `edit` first, and waits for it: the same on every rank, and all
    /// of them have to ask.
    pub fn draw_one(
        &mut self,
        ops: &O,
        row: usize,
        allowed: usize,
        draw: &Draw,
        edit: &Edit,
    ) -> Result<Drawn> {
        self.vocabulary.draw_one(ops, row, allowed, draw, edit)
    }

    /// Tapped residuals of the last pass, `[rows, taps * hidden_size]`.
    pub fn taps(&self) -> &O::Buf {
        &self.taps
    }

    /// Hidden states after the final norm of the last pass, `[rows, hidden_size]`.
    pub fn hidden(&self) -> &O::Buf {
        self.stream.normed()
    }

    /// Rows of the last pass: what [`Target::taps`] and [`Target::hidden`] hold.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Empties the recurrent states of a slot, for a new text.
    pub fn reset(&mut self, ops: &O, slot: usize) -> Result<()> {
        check::slot("Target::reset", slot, self.limits.slots)?;
        self.layers
            .iter_mut()
            .try_for_each(|layer| match &mut layer.mixer {
                Mixer::Gdn(gdn) => gdn.reset(ops, slot),
                Mixer::Attention(_) => Ok(()),
            })
    }

    /// The recurrent states of slot `to` become those of slot `from`.
    pub fn copy_slot(&mut self, ops: &O, from: usize, to: usize) -> Result<()> {
        check::slot("Target::copy_slot", from, self.limits.slots)?;
        check::slot("Target::copy_slot", to, self.limits.slots)?;
        self.layers
            .iter_mut()
            .try_for_each(|layer| match &mut layer.mixer {
                Mixer::Gdn(gdn) => gdn.copy(ops, from, to),
                Mixer::Attention(_) => Ok(()),
            })
    }

    /// Block `to` of the caches becomes block `from`.
    pub fn copy_block(&mut self, ops: &O, from: u32, to: u32) -> Result<()> {
        copy_block(&mut self.layers, ops, from, to)
    }

    /// This rank's recurrent state `[value_heads, key_dim, value_dim]` and convolution state
    /// `[conv_kernel - 1, conv_channels]` of a GDN layer; an error for an attention layer.
    pub fn state(&self, ops: &O, layer: usize, slot: usize) -> Result<(Vec<f32>, Vec<f32>)> {
        let call = "Target::state";
        check::slot(call, slot, self.limits.slots)?;
        match self.layers.get(layer).map(|layer| &layer.mixer) {
            Some(Mixer::Gdn(gdn)) => Ok((
                ops.read(&gdn.state, slot..slot + 1)?,
                ops.read(&gdn.conv_state, slot..slot + 1)?,
            )),
            _ => Err(check::error(call, "layer", "a GDN layer", layer)),
        }
    }

    /// Token embeddings, the same on every rank.
    pub(crate) fn embed(&self, ops: &O, ids: &[u32], out: &mut O::Buf) -> Result<()> {
        let known = ids.iter().filter(|id| **id & DRAWN == 0);
        check::ids("ids", known, self.config.vocab_size)?;
        self.vocabulary.embed(ops, ids, out)
    }

    /// The output head, for another model's final hidden states.
    pub(crate) fn vocabulary(&mut self) -> &mut Vocabulary<O> {
        &mut self.vocabulary
    }
}

/// The text model's tensors and, where there is any `mtp.*`, all of the MTP head's.
pub(crate) fn check_tensors(weights: &Weights, config: &TargetConfig) -> Result<()> {
    let mut specs = manifest::target(config);
    if weights.has_prefix("mtp.") {
        specs.extend(manifest::mtp(config));
    }
    weights.check(&specs)
}

fn load_layer<O: Ops>(
    ops: &O,
    layer: &Scope,
    config: &TargetConfig,
    kind: LayerKind,
    shard: Shard,
    limits: Limits,
) -> Result<Layer<O>> {
    let mixer = match kind {
        LayerKind::LinearAttention => {
            let gdn = Gdn::load(ops, layer, config, shard, limits.slots, limits.verify_rows)?;
            Mixer::Gdn(Box::new(gdn))
        }
        LayerKind::FullAttention => {
            let plan = AttentionPlan {
                dims: config.attention_dims(shard)?,
                mask: config.mask(),
                kv_heads: config.kv_heads,
                shard,
                blocks: limits.blocks,
                appends: false,
            };
            Mixer::Attention(Box::new(Attention::load(ops, layer, plan)?))
        }
    };
    Ok(Layer {
        input_norm: layer.norm(ops, "input_layernorm.weight")?,
        mixer,
        post_norm: layer.norm(ops, "post_attention_layernorm.weight")?,
        mlp: Mlp::load(ops, layer, config.intermediate_size, shard)?,
    })
}

/// Block `to` of every layer's cache becomes block `from`.
pub(crate) fn copy_block<O: Ops>(
    layers: &mut [Layer<O>],
    ops: &O,
    from: u32,
    to: u32,
) -> Result<()> {
    layers
        .iter_mut()
        .try_for_each(|layer| match &mut layer.mixer {
            Mixer::Attention(attention) => attention.copy_block(ops, from, to),
            Mixer::Gdn(_) => Ok(()),
        })
}

/// Copies the residual into the columns of those taps that are layer `layer`.
fn tap<O: Ops>(
    ops: &O,
    stream: &Stream<O>,
    rows: usize,
    tapped: &[usize],
    layer: usize,
    taps: &mut O::Buf,
) -> Result<()> {
    for (i, _) in tapped.iter().enumerate().filter(|&(_, &id)| id == layer) {
        ops.copy_columns(&stream.residual, rows, taps, i * stream.width)?;
    }
    Ok(())
}
