use volley_ops::{Dtype, Ops};

use super::Pass;
use crate::weights::Scope;
use crate::{Result, Shard};

/// SwiGLU: `down(silu(gate x) * up x)`; a rank's output is its part of the sum.
pub(crate) struct Mlp<O: Ops> {
    gate_up: O::Weight,
    down: O::Weight,
}

pub(crate) struct MlpScratch<O: Ops> {
    gate_up: O::Buf,
    act: O::Buf,
}

impl<O: Ops> MlpScratch<O> {
    pub(crate) fn new(ops: &O, rows: usize, intermediate: usize, shard: Shard) -> Result<Self> {
        let width = shard.split("intermediate_size", intermediate)?.len();
        Ok(Self {
            gate_up: ops.alloc(rows, 2 * width, Dtype::Activation)?,
            act: ops.alloc(rows, width, Dtype::Activation)?,
        })
    }
}

impl<O: Ops> Mlp<O> {
    pub(crate) fn load(ops: &O, layer: &Scope, intermediate: usize, shard: Shard) -> Result<Self> {
        let share = shard.split("intermediate_size", intermediate)?;
        let rows = std::slice::from_ref(&share);
        let gate_up = layer.rows(&[("mlp.gate_proj.weight", rows), ("mlp.up_proj.weight", rows)]);
        Ok(Self {
            gate_up: gate_up.weight(ops)?,
            down: layer.columns("mlp.down_proj.weight", share).weight(ops)?,
        })
    }

    pub(crate) fn forward(
        &self,
        pass: &Pass<O>,
        x: &O::Buf,
        scratch: &mut MlpScratch<O>,
        out: &mut O::Buf,
    ) -> Result<()> {
        let (ops, rows) = (pass.ops, pass.rows);
        let MlpScratch { gate_up, act } = scratch;
        ops.linear_swiglu(x, rows, &self.gate_up, gate_up, act)?;
        Ok(ops.linear(act, rows, &self.down, out)?)
    }
}
