use serde::Serialize;

use crate::checkpoint::{Checkpoint, Tensor};
use crate::{Error, Result, Shard};

/// What the tensor shapes of a drafter say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DrafterShapes {
    /// Width of the residual stream, the target's.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Target layers whose outputs it takes in.
    pub taps: usize,
}

impl DrafterShapes {
    /// Whether this many ranks can share the drafter; the error says what they cannot share.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        let shard = Shard { rank: 0, ranks };
        shard.split("drafter intermediate_size", self.intermediate_size)?;
        shard.split("drafter attention heads", self.heads)?;
        shard.kv_heads(self.kv_heads).map(|_| ())
    }

    /// Reads them off the tensors; the error names a tensor that is missing or of another rank.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let matrix = |name: &str| dims::<2>(checkpoint, name);
        let [hidden_size, features] = matrix("fc.weight")?;
        let [head_dim] = dims::<1>(checkpoint, "layers.0.self_attn.q_norm.weight")?;
        let [queries, _] = matrix("layers.0.self_attn.q_proj.weight")?;
        let [keys, _] = matrix("layers.0.self_attn.k_proj.weight")?;
        let [intermediate_size, _] = matrix("layers.0.mlp.gate_proj.weight")?;
        let is_layer =
            |i: &usize| find(checkpoint, &format!("layers.{i}.self_attn.q_proj.weight")).is_some();
        Ok(Self {
            hidden_size,
            intermediate_size,
            layers: (0..).take_while(is_layer).count(),
            heads: queries / head_dim.max(1),
            kv_heads: keys / head_dim.max(1),
            head_dim,
            taps: features / hidden_size.max(1),
        })
    }
}

/// A drafter's tensor, with or without the prefix `model.`.
fn find<'a>(checkpoint: &'a Checkpoint, name: &str) -> Option<Tensor<'a>> {
    checkpoint
        .tensor(name)
        .or_else(|| checkpoint.tensor(&format!("model.{name}")))
}

fn dims<const N: usize>(checkpoint: &Checkpoint, name: &str) -> Result<[usize; N]> {
    let unreadable = |what: String| Error::Header {
        file: checkpoint.place().to_string(),
        message: format!("not a DFlash drafter: tensor {name} {what}"),
    };
    let tensor = find(checkpoint, name).ok_or_else(|| unreadable("is missing".to_string()))?;
    let shape = tensor.shape();
    shape
        .try_into()
        .map_err(|_| unreadable(format!("has shape {shape:?}, expected {N} dimensions")))
}
