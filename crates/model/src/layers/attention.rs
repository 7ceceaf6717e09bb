use volley_ops::{AttentionDims, AttentionMask, Batch, Dtype, Keep, Ops};

use super::Pass;
use crate::shard::scale;
use crate::weights::Scope;
use crate::{Result, Shard};

/// Softmax attention over the paged cache; a rank's output is its part of
/// the sum.
pub(crate) struct Attention<O: Ops> {
    dims: AttentionDims,
    mask: AttentionMask,
    /// `[q (+ gate per head) | k | v]`.
    proj: O::Weight,
    /// `[k | v]`, for context that has no queries.
    context: Option<O::Weight>,
    q_norm: O::Buf,
    k_norm: O::Buf,
    out: O::Weight,
    kv: O::Kv,
}

pub(crate) struct AttentionScratch<O: Ops> {
    proj: O::Buf,
    q: O::Buf,
    out: O::Buf,
}

impl<O: Ops> AttentionScratch<O> {
    pub(crate) fn new(ops: &O, rows: usize, dims: AttentionDims) -> Result<Self> {
        Ok(Self {
            proj: ops.alloc(rows, dims.proj_width(), Dtype::Activation)?,
            q: ops.alloc(rows, dims.query_width(), Dtype::Activation)?,
            out: ops.alloc(rows, dims.query_width(), Dtype::Activation)?,
        })
    }
}

/// What an attention layer is, beside its weights.
#[derive(Clone, Copy)]
pub(crate) struct AttentionPlan {
    /// This rank's shapes.
    pub(crate) dims: AttentionDims,
    pub(crate) mask: AttentionMask,
    /// Key/value heads of the whole model.
    pub(crate) kv_heads: usize,
    pub(crate) shard: Shard,
    /// Cache blocks.
    pub(crate) blocks: usize,
    /// Whether context enters through [`Attention::append`].
    pub(crate) appends: bool,
}

impl<O: Ops> Attention<O> {
    pub(crate) fn load(ops: &O, layer: &Scope, plan: AttentionPlan) -> Result<Self> {
        let AttentionPlan { dims, shard, .. } = plan;
        let first_head = shard.rank * dims.heads;
        let heads = first_head..first_head + dims.heads;
        let per_head = dims.head_dim * if dims.gated { 2 } else { 1 };
        let kv = [scale(&shard.kv_heads(plan.kv_heads)?, dims.head_dim)];
        let kv = layer.rows(&[
            ("self_attn.k_proj.weight", &kv),
            ("self_attn.v_proj.weight", &kv),
        ]);
        let context = match plan.appends {
            true => Some(kv.clone().weight(ops)?),
            false => None,
        };
        let q = layer.rows(&[("self_attn.q_proj.weight", &[scale(&heads, per_head)])]);
        let columns = scale(&heads, dims.head_dim);
        Ok(Self {
            dims,
            mask: plan.mask,
            proj: q.stack(kv).weight(ops)?,
            context,
            q_norm: layer.norm(ops, "self_attn.q_norm.weight")?,
            k_norm: layer.norm(ops, "self_attn.k_norm.weight")?,
            out: layer
                .columns("self_attn.o_proj.weight", columns)
                .weight(ops)?,
            kv: ops.kv(dims.kv(), plan.blocks)?,
        })
    }

    /// Puts keys and values of `features` behind the context; `kv` is a buffer for them.
    pub(crate) fn append(
        &mut self,
        pass: &Pass<O>,
        features: &O::Buf,
        kv: &mut O::Buf,
    ) -> Result<()> {
        let Pass {
            ops,
            batch,
            rows,
            rope,
            ..
        } = *pass;
        let context = self.context.as_ref();
        let context = context.expect("loaded with `appends`: this is a bug");
        ops.linear(features, rows, context, kv)?;
        Ok(ops.kv_append(self.dims, kv, &self.k_norm, rope, batch, &mut self.kv)?)
    }

    pub(crate) fn forward(
        &mut self,
        pass: &Pass<O>,
        x: &O::Buf,
        scratch: &mut AttentionScratch<O>,
        out: &mut O::Buf,
    ) -> Result<()> {
        let Pass {
            ops,
            batch,
            rows,
            rope,
            ..
        } = *pass;
        let AttentionScratch { proj, q, out: core } = scratch;
        ops.linear(x, rows, &self.proj, proj)?;
        ops.attention_prepare(
            self.dims,
            proj,
            &self.q_norm,
            &self.k_norm,
            rope,
            batch,
            q,
            &mut self.kv,
        )?;
        ops.attention(self.dims, q, proj, &self.kv, self.mask, batch, core)?;
        Ok(ops.linear(core, rows, &self.out, out)?)
    }

    /// Block `to` of the cache becomes block `from`.
    pub(crate) fn copy_block(&mut self, ops: &O, from: u32, to: u32) -> Result<()> {
        Ok(ops.copy_block(&mut self.kv, from, to)?)
    }

    /// Keeps the accepted rows' keys and values.
    pub(crate) fn commit(&mut self, ops: &O, batch: &Batch, keep: &Keep) -> Result<()> {
        Ok(ops.kv_commit(self.dims.kv(), batch, keep, &mut self.kv)?)
    }
}
