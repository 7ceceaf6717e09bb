mod reader;
mod shapes;

use reader::Reader;
use serde::{Serialize, Serializer};
pub use shapes::DrafterShapes;
use volley_ops::{AttentionDims, AttentionMask, NormKind};

use crate::checkpoint::Checkpoint;
use crate::fields::{self, Fields};
use crate::{Error, Result, Rope, Shard, TargetConfig};

const CONFIG: &str = "config.json";

/// Shapes and constants of a DFlash drafter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DrafterConfig {
    /// Sizes of the tensors.
    pub shapes: DrafterShapes,
    /// Mask of each layer: sliding layers are causal within the block, full layers are not.
    #[serde(serialize_with = "serialize_masks")]
    pub masks: Vec<AttentionMask>,
    /// Epsilon of all norms.
    pub eps: f32,
    /// Rotary embedding, over the whole head.
    pub rope: Rope,
    /// Rows of a block: the anchor and `block_size - 1` mask tokens.
    pub block_size: usize,
    /// Token of the slots to fill in.
    pub mask_token_id: u32,
    /// 0-based target layers whose residual outputs are taken in, in this order.
    pub target_layer_ids: Vec<usize>,
    /// Layers of the target it was trained for, where the config says so.
    pub num_target_layers: Option<usize>,
    /// Vocabulary of the target it was trained for, where the config says so.
    pub vocab_size: Option<usize>,
    /// What neither config nor tensors say and was assumed, for the log.
    pub guesses: Vec<String>,
}

fn serialize_masks<S: Serializer>(
    masks: &[AttentionMask],
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Mask {
        causal: bool,
        window: Option<usize>,
    }
    to.collect_seq(masks.iter().map(|mask| Mask {
        causal: mask.causal,
        window: mask.window,
    }))
}

/// The layers to tap by the reference formula, for a drafter that does not list them.
pub fn target_layer_ids(layers: usize, taps: usize) -> Vec<usize> {
    if taps == 1 {
        return vec![layers / 2];
    }
    let (start, end) = (1.0, layers as f64 - 3.0);
    (0..taps)
        .map(|i| {
            let id = start + i as f64 * (end - start) / (taps as f64 - 1.0);
            id.round_ties_even() as usize
        })
        .collect()
}

impl DrafterConfig {
    /// Reads config.json and fills what it leaves out from the tensor shapes, then from `target`;
    /// a checkpoint without config.json is read from these alone. Assumptions are in `guesses`.
    pub fn read(checkpoint: &Checkpoint, target: Option<&TargetConfig>) -> Result<Self> {
        refuse_other_tensors(checkpoint)?;
        let text = checkpoint.text(CONFIG)?;
        let value = fields::parse(CONFIG, text.as_deref().unwrap_or("{}"))?;
        let empty = fields::parse(CONFIG, "{}")?;
        let root = Fields::root(CONFIG, &value)?;
        let nested = match root.object("dflash_config")? {
            Some(nested) => nested,
            None => Fields::root(CONFIG, &empty)?,
        };
        let reader = Reader {
            root,
            nested,
            bare: text.is_none(),
            checkpoint,
            target,
            guesses: Vec::new(),
        };
        reader.refuse_other_models()?;
        reader.read()
    }

    /// One rank's share of a layer.
    pub fn attention_dims(&self, shard: Shard) -> Result<AttentionDims> {
        let shapes = &self.shapes;
        Ok(AttentionDims {
            heads: shard.split("drafter attention heads", shapes.heads)?.len(),
            kv_heads: shard.kv_heads(shapes.kv_heads)?.len(),
            head_dim: shapes.head_dim,
            rotary_dim: shapes.head_dim,
            gated: false,
            norm: NormKind::Plain,
            eps: self.eps,
        })
    }

    /// Whether this drafter can serve `target`.
    pub fn check_target(&self, target: &TargetConfig) -> Result<()> {
        let same = |what, drafter: Option<usize>, target: usize| match drafter {
            Some(drafter) if drafter != target => Err(Error::Pair {
                what,
                drafter: drafter.to_string(),
                target: target.to_string(),
            }),
            _ => Ok(()),
        };
        same(
            "hidden_size",
            Some(self.shapes.hidden_size),
            target.hidden_size,
        )?;
        same(
            "num_target_layers",
            self.num_target_layers,
            target.layers.len(),
        )?;
        same("vocab_size", self.vocab_size, target.vocab_size)?;
        let below = |what, value: usize, limit: usize| match value < limit {
            true => Ok(()),
            false => Err(Error::Pair {
                what,
                drafter: value.to_string(),
                target: format!("only 0..{limit}"),
            }),
        };
        for &id in &self.target_layer_ids {
            below("target layer id", id, target.layers.len())?;
        }
        below(
            "mask_token_id",
            self.mask_token_id as usize,
            target.vocab_size,
        )
    }
}

/// Names the known relatives of DFlash whose tensors this drafter has no place for.
fn refuse_other_tensors(checkpoint: &Checkpoint) -> Result<()> {
    const RELATIVES: [(&str, &str); 6] = [
        ("conv", "this is a DFlash2 drafter, only DFlash is computed"),
        (
            "selector",
            "this is a DFlash2 drafter, only DFlash is computed",
        ),
        ("aux_hidden_norms.", "norms on the taps are not computed"),
        ("g_proj", "gated drafters are not computed"),
        ("d2t", "a vocabulary of its own is not computed"),
        ("t2d", "a vocabulary of its own is not computed"),
    ];
    for tensor in checkpoint.tensors() {
        if let Some((_, why)) = RELATIVES
            .iter()
            .find(|(part, _)| tensor.name().contains(part))
        {
            return Err(Error::Unsupported {
                file: tensor.file().to_string(),
                what: format!("tensor {} of shape {:?}", tensor.name(), tensor.shape()),
                why: (*why).to_string(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_formula_gives_the_shipped_layer_ids() {
        assert_eq!(target_layer_ids(64, 5), [1, 16, 31, 46, 61]);
        assert_eq!(target_layer_ids(36, 5), [1, 9, 17, 25, 33]);
        assert_eq!(target_layer_ids(40, 5), [1, 10, 19, 28, 37]);
        assert_eq!(target_layer_ids(32, 5), [1, 8, 15, 22, 29]);
        assert_eq!(target_layer_ids(64, 1), [32]);
        // Half-way values round to even: 1 + 1.5 = 2.5 -> 2.
        assert_eq!(target_layer_ids(7, 3), [1, 2, 4]);
    }
}
