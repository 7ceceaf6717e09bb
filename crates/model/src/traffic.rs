use crate::manifest::{self, Part, Spec, Split};
use crate::{DrafterConfig, Result, Shard, TargetConfig};

const BF16_BYTES: usize = 2;
const F32_BYTES: usize = 4;

/// What one rank must read of memory at least, in bytes, weights and caches in bf16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Weights of a pass, without the output head.
    pub weights: usize,
    /// The output head.
    pub head: usize,
    /// Keys and values of a token of context.
    pub kv_per_token: usize,
    /// Recurrent and convolution states of a sequence.
    pub states_per_sequence: usize,
}

impl TargetConfig {
    /// Of a pass of the target.
    pub fn traffic(&self, shard: Shard) -> Result<Traffic> {
        let specs = manifest::target(self);
        let head = match self.tie_word_embeddings {
            true => Part::Embedding,
            false => Part::Head,
        };
        let apart = [Part::Embedding, Part::Head];
        let (attention, gdn) = (self.attention_dims(shard)?, self.gdn_dims(shard)?);
        let states = gdn.state_len() * F32_BYTES + gdn.conv_state_len() * BF16_BYTES;
        let of = |wanted: &dyn Fn(&Spec) -> bool| bytes(&specs, wanted, shard, self.kv_heads);
        Ok(Traffic {
            weights: of(&|spec| !apart.contains(&spec.part))?,
            head: of(&|spec| spec.part == head)?,
            kv_per_token: self.attention_layers() * 2 * attention.kv_width() * BF16_BYTES,
            states_per_sequence: self.gdn_layers() * states,
        })
    }
}

impl TargetConfig {
    /// Of a pass of the MTP head; the output head is the target's.
    pub fn mtp_traffic(&self, shard: Shard) -> Result<Traffic> {
        let attention = self.attention_dims(shard)?;
        Ok(Traffic {
            weights: bytes(&manifest::mtp(self), &|_| true, shard, self.kv_heads)?,
            kv_per_token: 2 * attention.kv_width() * BF16_BYTES,
            ..Traffic::default()
        })
    }
}

impl DrafterConfig {
    /// Of the draft of a block and of taking in context; the head is the target's.
    pub fn traffic(&self, shard: Shard) -> Result<Traffic> {
        let kv_heads = self.shapes.kv_heads;
        let kv_width = shard.kv_heads(kv_heads)?.len() * self.shapes.head_dim;
        let specs = manifest::drafter(&self.shapes);
        Ok(Traffic {
            weights: bytes(&specs, &|_| true, shard, kv_heads)?,
            kv_per_token: self.shapes.layers * 2 * kv_width * BF16_BYTES,
            ..Traffic::default()
        })
    }
}

fn bytes(
    specs: &[Spec],
    wanted: &dyn Fn(&Spec) -> bool,
    shard: Shard,
    kv_heads: usize,
) -> Result<usize> {
    let mut bytes = 0;
    for spec in specs.iter().filter(|spec| wanted(spec)) {
        let whole = spec.shape.iter().product::<usize>() * BF16_BYTES;
        bytes += match spec.split {
            Split::Replicated => whole,
            Split::Sharded => whole / shard.ranks,
            Split::KvHeads => whole / kv_heads * shard.kv_heads(kv_heads)?.len(),
        };
    }
    Ok(bytes)
}
