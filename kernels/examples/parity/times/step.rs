//! Whole steps of Qwen3.6-27B and its drafter on random weights, as one CUDA graph: what a step
//! costs before anything is done on the host.

use volley_kernels::CudaOps;
use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, GdnRows, GdnStates, Keep, NormKind, Ops, Result,
    RopeTable,
};

use super::kernels::gdn_rows;
use super::{Buf, Clock, DRAFTER, GDN, TARGET, Weight, batch};

const HIDDEN: usize = 5120;
const INTERMEDIATE: usize = 17_408;
const VOCAB: usize = 248_320;
const LAYERS: usize = 64;
const DRAFTER_LAYERS: usize = 5;
const TAPS: usize = 5;
const BLOCK: usize = 16;
const KIND: NormKind = NormKind::ZeroCentred;
const EPS: f32 = 1e-6;

enum Mixer {
    Gdn {
        proj: Weight,
        out: Weight,
        state: Buf,
        conv_state: Buf,
        rows: Box<GdnRows<Buf>>,
        kept: Buf,
    },
    Attention {
        proj: Weight,
        out: Weight,
        kv: <CudaOps as Ops>::Kv,
    },
}

struct Layer {
    mixer: Mixer,
    gate_up: Weight,
    down: Weight,
}

/// Buffers that all layers share.
struct Scratch {
    residual: Buf,
    normed: Buf,
    delta: Buf,
    proj: Buf,
    q: Buf,
    core: Buf,
    gated: Buf,
    wide: Buf,
    act: Buf,
    logits: Buf,
    drafter_proj: Buf,
    drafter_q: Buf,
    drafter_core: Buf,
}

struct Model<'a> {
    gpu: &'a CudaOps,
    layers: Vec<Layer>,
    drafter: Vec<Layer>,
    features: Weight,
    context: Vec<Weight>,
    head: Weight,
    norm: Buf,
    head_norm: Buf,
    gdn_norm: Buf,
    conv_w: Buf,
    gates: Buf,
    rope: [RopeTable<Buf>; 2],
    taps: Buf,
    kv_rows: Buf,
    scratch: Scratch,
    prompt: Prompt,
}

/// What prompts use: all layers the same.
struct Prompt {
    rows: GdnRows<Buf>,
    kept: Buf,
}

/// Most rows of a verification, of a prompt.
const VERIFY_ROWS: usize = 8 * BLOCK;
const PROMPT_ROWS: usize = 2048;

impl<'a> Model<'a> {
    fn new(clock: &Clock<'a>, slots: usize, blocks: usize) -> Result<Self> {
        let gpu = clock.gpu;
        let mut seed = 0;
        let mut weight = |out: usize, input: usize| {
            seed += 1;
            gpu.dummy_weight(out, input, seed, (3.0 / input as f32).sqrt())
        };
        let mut layer = |dims: Option<AttentionDims>| -> Result<Layer> {
            let mixer = match dims {
                Some(dims) => Mixer::Attention {
                    proj: weight(dims.proj_width(), HIDDEN)?,
                    out: weight(HIDDEN, dims.query_width())?,
                    kv: gpu.kv(dims.kv(), blocks)?,
                },
                None => Mixer::Gdn {
                    proj: weight(GDN.proj_width(), HIDDEN)?,
                    out: weight(HIDDEN, GDN.value_width())?,
                    state: clock.buf(slots, GDN.state_len(), Dtype::F32)?,
                    conv_state: clock.buf(slots, GDN.conv_state_len(), Dtype::Activation)?,
                    rows: Box::new(gdn_rows(clock, VERIFY_ROWS)?),
                    kept: gpu.alloc(VERIFY_ROWS, GDN.proj_width(), Dtype::Activation)?,
                },
            };
            Ok(Layer {
                mixer,
                gate_up: weight(2 * INTERMEDIATE, HIDDEN)?,
                down: weight(HIDDEN, INTERMEDIATE)?,
            })
        };
        let layers = (0..LAYERS).map(|i| layer((i % 4 == 3).then_some(TARGET)));
        let layers = layers.collect::<Result<_>>()?;
        let drafter = (0..DRAFTER_LAYERS).map(|_| layer(Some(DRAFTER)));
        let drafter = drafter.collect::<Result<_>>()?;
        let context = (0..DRAFTER_LAYERS).map(|_| weight(2 * DRAFTER.kv_width(), HIDDEN));
        let context = context.collect::<Result<_>>()?;
        let rows = PROMPT_ROWS;
        let activation = |width| gpu.alloc(rows, width, Dtype::Activation);
        let rope = |dims: AttentionDims| -> Result<RopeTable<Buf>> {
            let half = dims.rotary_dim / 2;
            let frequency = |i| 1e7f32.powf(-(i as f32) / half as f32);
            let data: Vec<f32> = (0..half).map(frequency).collect();
            Ok(RopeTable {
                inv_freq: gpu.upload(&data, 1, half, Dtype::F32)?,
                scale: 1.0,
            })
        };
        Ok(Self {
            gpu,
            layers,
            drafter,
            features: weight(HIDDEN, TAPS * HIDDEN)?,
            context,
            head: weight(VOCAB, HIDDEN)?,
            norm: clock.buf(1, HIDDEN, Dtype::Activation)?,
            head_norm: clock.buf(1, 256, Dtype::Activation)?,
            gdn_norm: clock.buf(1, 128, Dtype::F32)?,
            conv_w: clock.buf(GDN.conv_channels(), 4, Dtype::F32)?,
            gates: clock.buf(1, GDN.value_heads, Dtype::F32)?,
            rope: [rope(TARGET)?, rope(DRAFTER)?],
            taps: clock.buf(rows, TAPS * HIDDEN, Dtype::Activation)?,
            kv_rows: activation(2 * DRAFTER.kv_width())?,
            scratch: Scratch {
                residual: clock.buf(rows, HIDDEN, Dtype::Activation)?,
                normed: activation(HIDDEN)?,
                delta: clock.buf(rows, HIDDEN, Dtype::Activation)?,
                proj: activation(TARGET.proj_width())?,
                q: activation(TARGET.query_width())?,
                core: activation(TARGET.query_width())?,
                gated: activation(GDN.value_width())?,
                wide: activation(2 * INTERMEDIATE)?,
                act: activation(INTERMEDIATE)?,
                logits: gpu.alloc(VERIFY_ROWS, VOCAB, Dtype::F32)?,
                drafter_proj: activation(DRAFTER.proj_width())?,
                drafter_q: activation(DRAFTER.query_width())?,
                drafter_core: activation(DRAFTER.query_width())?,
            },
            prompt: Prompt {
                rows: gdn_rows(clock, PROMPT_ROWS)?,
                kept: activation(GDN.proj_width())?,
            },
        })
    }

    /// All rows of a batch: verified, with the output head for each; or as a prompt, with the states
    /// moved and the output head for one.
    fn target(&mut self, batch: &Batch, prompt: bool) -> Result<()> {
        let all: Keep = batch
            .segments
            .iter()
            .map(|s| (0..s.rows.len() as u32).collect())
            .collect();
        let (gpu, n) = (self.gpu, batch.rows());
        let s = &mut self.scratch;
        for (i, layer) in self.layers.iter_mut().enumerate() {
            gpu.add_rms_norm(
                &s.delta,
                n,
                &mut s.residual,
                &self.norm,
                KIND,
                EPS,
                &mut s.normed,
            )?;
            if i % 16 == 1 {
                gpu.copy_columns(&s.residual, n, &mut self.taps, i / 16 * HIDDEN)?;
            }
            match &mut layer.mixer {
                Mixer::Gdn {
                    proj,
                    out,
                    state,
                    conv_state,
                    rows,
                    kept,
                } => {
                    let (rows, kept) = match prompt {
                        true => (&mut self.prompt.rows, &mut self.prompt.kept),
                        false => (&mut **rows, kept),
                    };
                    gpu.linear(&s.normed, n, proj, kept)?;
                    let (w, g) = (&self.conv_w, &self.gates);
                    gpu.gdn_prepare(GDN, kept, w, g, g, conv_state, batch, rows)?;
                    if prompt {
                        gpu.gdn_prefill(GDN, rows, batch, state, &mut s.core)?;
                        gpu.conv_commit(GDN, kept, batch, &all, conv_state)?;
                    } else {
                        gpu.gdn_verify(GDN, rows, batch, state, &mut s.core)?;
                    }
                    gpu.gated_norm(GDN, &s.core, kept, n, &self.gdn_norm, EPS, &mut s.gated)?;
                    gpu.linear(&s.gated, n, out, &mut s.delta)?;
                }
                Mixer::Attention { proj, out, kv } => {
                    gpu.linear(&s.normed, n, proj, &mut s.proj)?;
                    let (norm, rope) = (&self.head_norm, &self.rope[0]);
                    gpu.attention_prepare(TARGET, &s.proj, norm, norm, rope, batch, &mut s.q, kv)?;
                    let mask = AttentionMask::CAUSAL;
                    gpu.attention(TARGET, &s.q, &s.proj, kv, mask, batch, &mut s.core)?;
                    gpu.linear(&s.core, n, out, &mut s.delta)?;
                }
            }
            gpu.add_rms_norm(
                &s.delta,
                n,
                &mut s.residual,
                &self.norm,
                KIND,
                EPS,
                &mut s.normed,
            )?;
            gpu.linear_swiglu(&s.normed, n, &layer.gate_up, &mut s.wide, &mut s.act)?;
            gpu.linear(&s.act, n, &layer.down, &mut s.delta)?;
        }
        gpu.add_rms_norm(
            &s.delta,
            n,
            &mut s.residual,
            &self.norm,
            KIND,
            EPS,
            &mut s.normed,
        )?;
        let n = if prompt { 1 } else { n };
        gpu.linear(&s.normed, n, &self.head, &mut s.logits)
    }

    fn commit(&mut self, batch: &Batch, keep: &Keep) -> Result<()> {
        let mut layers = Vec::new();
        for layer in &mut self.layers {
            match &mut layer.mixer {
                Mixer::Gdn {
                    state,
                    conv_state,
                    rows,
                    kept,
                    ..
                } => layers.push(GdnStates {
                    dims: GDN,
                    rows,
                    proj: kept,
                    state,
                    conv_state,
                }),
                Mixer::Attention { kv, .. } => {
                    self.gpu.kv_commit(TARGET.kv(), batch, keep, kv)?;
                }
            }
        }
        self.gpu.commit_layers(&mut layers, batch, keep)
    }

    /// The drafter takes in the committed rows and drafts a block per segment.
    fn draft(&mut self, committed: &Batch, blocks: &Batch) -> Result<()> {
        let (gpu, n) = (self.gpu, committed.rows());
        let s = &mut self.scratch;
        gpu.linear(&self.taps, n, &self.features, &mut s.delta)?;
        gpu.rms_norm(&s.delta, n, &self.norm, NormKind::Plain, EPS, &mut s.normed)?;
        let (rope, plain) = (&self.rope[1], NormKind::Plain);
        let norm = &self.gdn_norm;
        for (layer, context) in self.drafter.iter_mut().zip(&self.context) {
            if let Mixer::Attention { kv, .. } = &mut layer.mixer {
                gpu.linear(&s.normed, n, context, &mut self.kv_rows)?;
                gpu.kv_append(DRAFTER, &self.kv_rows, norm, rope, committed, kv)?;
            }
        }
        let n = blocks.rows();
        for (i, layer) in self.drafter.iter_mut().enumerate() {
            gpu.add_rms_norm(
                &s.delta,
                n,
                &mut s.residual,
                &self.norm,
                plain,
                EPS,
                &mut s.normed,
            )?;
            if let Mixer::Attention { proj, out, kv } = &mut layer.mixer {
                gpu.linear(&s.normed, n, proj, &mut s.drafter_proj)?;
                gpu.attention_prepare(
                    DRAFTER,
                    &s.drafter_proj,
                    norm,
                    norm,
                    rope,
                    blocks,
                    &mut s.drafter_q,
                    kv,
                )?;
                let full = i + 1 == DRAFTER_LAYERS;
                let mask = AttentionMask {
                    causal: !full,
                    window: (!full).then_some(2048),
                };
                gpu.attention(
                    DRAFTER,
                    &s.drafter_q,
                    &s.drafter_proj,
                    kv,
                    mask,
                    blocks,
                    &mut s.drafter_core,
                )?;
                gpu.linear(&s.drafter_core, n, out, &mut s.delta)?;
            }
            gpu.add_rms_norm(
                &s.delta,
                n,
                &mut s.residual,
                &self.norm,
                plain,
                EPS,
                &mut s.normed,
            )?;
            gpu.linear_swiglu(&s.normed, n, &layer.gate_up, &mut s.wide, &mut s.act)?;
            gpu.linear(&s.act, n, &layer.down, &mut s.delta)?;
        }
        gpu.add_rms_norm(
            &s.delta,
            n,
            &mut s.residual,
            &self.norm,
            plain,
            EPS,
            &mut s.normed,
        )?;
        gpu.linear(&s.normed, n, &self.head, &mut s.logits)
    }
}

/// Weights that a pass of the target reads, and a step with drafts in all, in bytes.
const TARGET_BYTES: usize = 51_240_000_000;
const STEP_BYTES: usize = 57_200_000_000;

pub fn steps(clock: &mut Clock) -> Result<()> {
    let cases = [
        (1, 1, 512, false),
        (1, BLOCK, 512, false),
        (1, 32, 512, true),
        (1, 1, 16_000, false),
        (1, BLOCK, 16_000, false),
        (8, 1, 512, false),
        (8, BLOCK, 512, false),
    ];
    let tokens = |segments, past: usize| segments * (past + PROMPT_ROWS).div_ceil(16);
    let blocks = cases
        .iter()
        .map(|&(segments, _, past, _)| tokens(segments, past));
    let mut model = Model::new(clock, 8, blocks.max().unwrap_or(1))?;
    for (segments, rows, past, tree) in cases {
        let verified = batch(segments, rows, past, tree);
        let name = format!(
            "{segments} x {rows} rows{}, {past} past",
            if tree { ", tree" } else { "" }
        );
        let case = format!("target: {name}");
        clock.time_once("step", case, TARGET_BYTES, || {
            model.target(&verified, false)
        })?;
        let mut chains = verified.clone();
        chains.segments.iter_mut().for_each(|s| s.parents = None);
        let kept = rows.min(6);
        let keep: Keep = vec![(0..kept as u32).collect(); segments];
        let case = format!("commit: {name}");
        clock.time_once("step", case, 0, || model.commit(&chains, &keep))?;
        if rows >= BLOCK {
            let committed = batch(segments, kept, past, false);
            let blocks = batch(segments, BLOCK, past + kept, false);
            let case = format!("draft: {name}");
            let bytes = STEP_BYTES - TARGET_BYTES;
            clock.time_once("step", case, bytes, || model.draft(&committed, &blocks))?;
        }
    }
    for past in [0, 6000, 14_000] {
        let prompt = batch(1, PROMPT_ROWS, past, false);
        let case = format!("prompt: {PROMPT_ROWS} rows, {past} past");
        clock.time_once("step", case, TARGET_BYTES, || model.target(&prompt, true))?;
    }
    Ok(())
}
