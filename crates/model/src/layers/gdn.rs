use volley_ops::{Dtype, GdnDims, GdnRows, GdnStates, Ops};

use super::{Mode, Pass};
use crate::shard::scale;
use crate::weights::Scope;
use crate::{Result, Shard, TargetConfig};

/// A gated delta net with the states of all slots; a rank's output is its part of the
/// sum.
pub(crate) struct Gdn<O: Ops> {
    dims: GdnDims,
    eps: f32,
    /// `[q | k | v | z | b | a]`.
    proj: O::Weight,
    conv: O::Buf,
    a_log: O::Buf,
    dt_bias: O::Buf,
    norm: O::Buf,
    out: O::Weight,
    /// `[slots, state_len]`.
    pub(crate) state: O::Buf,
    /// `[slots, conv_state_len]`.
    pub(crate) conv_state: O::Buf,
    /// Rows of the last verification, which the commit needs.
    verified: GdnPass<O>,
}

/// What a GDN layer keeps of a pass.
struct GdnPass<O: Ops> {
    proj: O::Buf,
    rows: GdnRows<O::Buf>,
}

impl<O: Ops> GdnPass<O> {
    fn new(ops: &O, rows: usize, dims: GdnDims) -> Result<Self> {
        let alloc = |width| ops.alloc(rows, width, Dtype::F32);
        let keys = dims.key_heads * dims.key_dim;
        Ok(Self {
            proj: ops.alloc(rows, dims.proj_width(), Dtype::Activation)?,
            rows: GdnRows {
                q: alloc(keys)?,
                k: alloc(keys)?,
                v: alloc(dims.value_width())?,
                g: alloc(dims.value_heads)?,
                beta: alloc(dims.value_heads)?,
                u: alloc(dims.value_width())?,
            },
        })
    }
}

/// Buffers of one pass; prefill keeps nothing, so all layers share its rows.
pub(crate) struct GdnScratch<O: Ops> {
    prefill: GdnPass<O>,
    core: O::Buf,
    gated: O::Buf,
}

impl<O: Ops> GdnScratch<O> {
    pub(crate) fn new(ops: &O, rows: usize, dims: GdnDims) -> Result<Self> {
        let alloc = || ops.alloc(rows, dims.value_width(), Dtype::Activation);
        Ok(Self {
            prefill: GdnPass::new(ops, rows, dims)?,
            core: alloc()?,
            gated: alloc()?,
        })
    }
}

impl<O: Ops> Gdn<O> {
    pub(crate) fn load(
        ops: &O,
        layer: &Scope,
        config: &TargetConfig,
        shard: Shard,
        slots: usize,
        verify_rows: usize,
    ) -> Result<Self> {
        let dims = config.gdn_dims(shard)?;
        let key = shard.split("GDN key heads", config.key_heads)?;
        let heads = shard.split("GDN value heads", config.value_heads)?;
        let (key, value) = (scale(&key, dims.key_dim), scale(&heads, dims.value_dim));
        let keys = config.key_heads * config.key_dim;
        // q, k and v are segments of one tensor, each split by its own heads.
        let channels = [
            key.clone(),
            keys + key.start..keys + key.end,
            2 * keys + value.start..2 * keys + value.end,
        ];
        let proj = layer.rows(&[
            ("linear_attn.in_proj_qkv.weight", &channels),
            ("linear_attn.in_proj_z.weight", std::slice::from_ref(&value)),
            ("linear_attn.in_proj_b.weight", std::slice::from_ref(&heads)),
            ("linear_attn.in_proj_a.weight", std::slice::from_ref(&heads)),
        ]);
        let conv = layer.rows(&[("linear_attn.conv1d.weight", &channels)]);
        let mut gdn = Self {
            dims,
            eps: config.eps,
            proj: proj.weight(ops)?,
            conv: conv.buffer(ops, Dtype::F32)?,
            a_log: layer.vector(ops, "linear_attn.A_log", heads.clone(), Dtype::F32)?,
            dt_bias: layer.vector(ops, "linear_attn.dt_bias", heads, Dtype::F32)?,
            norm: layer.vector(
                ops,
                "linear_attn.norm.weight",
                0..dims.value_dim,
                Dtype::F32,
            )?,
            out: layer
                .columns("linear_attn.out_proj.weight", value)
                .weight(ops)?,
            state: ops.alloc(slots, dims.state_len(), Dtype::F32)?,
            conv_state: ops.alloc(slots, dims.conv_state_len(), Dtype::Activation)?,
            verified: GdnPass::new(ops, verify_rows, dims)?,
        };
        ops.zero(&mut gdn.state, 0..slots)?;
        ops.zero(&mut gdn.conv_state, 0..slots)?;
        Ok(gdn)
    }

    pub(crate) fn forward(
        &mut self,
        pass: &Pass<O>,
        x: &O::Buf,
        scratch: &mut GdnScratch<O>,
        out: &mut O::Buf,
    ) -> Result<()> {
        let Pass {
            ops, batch, rows, ..
        } = *pass;
        let GdnScratch {
            prefill,
            core,
            gated,
        } = scratch;
        let kept = match pass.mode {
            Mode::Prefill => prefill,
            Mode::Verify => &mut self.verified,
        };
        ops.linear(x, rows, &self.proj, &mut kept.proj)?;
        ops.gdn_prepare(
            self.dims,
            &kept.proj,
            &self.conv,
            &self.a_log,
            &self.dt_bias,
            &self.conv_state,
            batch,
            &mut kept.rows,
        )?;
        match pass.mode {
            Mode::Prefill => {
                ops.gdn_prefill(self.dims, &kept.rows, batch, &mut self.state, core)?;
                let all = batch
                    .segments
                    .iter()
                    .map(|s| (0..s.rows.len() as u32).collect());
                ops.conv_commit(
                    self.dims,
                    &kept.proj,
                    batch,
                    &all.collect(),
                    &mut self.conv_state,
                )?;
            }
            Mode::Verify => {
                ops.gdn_verify(self.dims, &mut kept.rows, batch, &self.state, core)?;
            }
        }
        ops.gated_norm(
            self.dims, core, &kept.proj, rows, &self.norm, self.eps, gated,
        )?;
        Ok(ops.linear(gated, rows, &self.out, out)?)
    }

    /// What a commit moves past the accepted rows of the last verification.
    pub(crate) fn states(&mut self) -> GdnStates<'_, O::Buf> {
        GdnStates {
            dims: self.dims,
            rows: &self.verified.rows,
            proj: &self.verified.proj,
            state: &mut self.state,
            conv_state: &mut self.conv_state,
        }
    }

    /// The states of slot `to` become those of slot `from`.
    pub(crate) fn copy(&mut self, ops: &O, from: usize, to: usize) -> Result<()> {
        ops.copy_row(&mut self.state, from, to)?;
        Ok(ops.copy_row(&mut self.conv_state, from, to)?)
    }

    /// Forgets the text of a slot.
    pub(crate) fn reset(&mut self, ops: &O, slot: usize) -> Result<()> {
        ops.zero(&mut self.state, slot..slot + 1)?;
        Ok(ops.zero(&mut self.conv_state, slot..slot + 1)?)
    }
}
