//! The tensors that a model consists of, by name and shape: what a
//! checkpoint is checked against.

use serde::Serialize;

use crate::{DrafterShapes, LayerKind, TargetConfig};

/// Part of a model that a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Token embeddings.
    Embedding,
    /// Output head.
    Head,
    /// GDN layers without their MLP.
    Gdn,
    /// Attention layers without their MLP.
    Attention,
    /// MLPs.
    Mlp,
    /// Norms on the residual stream.
    Norm,
    /// Multi-token prediction head.
    Mtp,
    /// A drafter's projection of the target's features.
    Features,
}

impl Part {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Head => "head",
            Self::Gdn => "GDN",
            Self::Attention => "attention",
            Self::Mlp => "MLP",
            Self::Norm => "norms",
            Self::Mtp => "MTP",
            Self::Features => "features",
        }
    }
}

/// How a tensor is shared among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Every rank holds all of it.
    Replicated,
    /// Each rank holds a part.
    Sharded,
    /// Split by key/value heads, of which every rank holds at least one.
    KvHeads,
}

/// A tensor that has to be there.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Name without the prefixes that exports differ in.
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) part: Part,
    pub(crate) split: Split,
    /// A tied head may be in the files or not; it is not read.
    pub(crate) optional: bool,
}

struct List {
    prefix: String,
    specs: Vec<Spec>,
}

impl List {
    fn new() -> Self {
        Self {
            prefix: String::new(),
            specs: Vec::new(),
        }
    }

    fn push(&mut self, name: &str, shape: &[usize], part: Part, split: Split) {
        self.specs.push(Spec {
            name: format!("{}{name}", self.prefix),
            shape: shape.to_vec(),
            part,
            split,
            optional: false,
        });
    }

    fn norms(&mut self, hidden: usize) {
        for name in ["input_layernorm", "post_attention_layernorm"] {
            self.push(
                &format!("{name}.weight"),
                &[hidden],
                Part::Norm,
                Split::Replicated,
            );
        }
    }

    fn mlp(&mut self, hidden: usize, intermediate: usize) {
        let (up, down) = ([intermediate, hidden], [hidden, intermediate]);
        self.push("mlp.gate_proj.weight", &up, Part::Mlp, Split::Sharded);
        self.push("mlp.up_proj.weight", &up, Part::Mlp, Split::Sharded);
        self.push("mlp.down_proj.weight", &down, Part::Mlp, Split::Sharded);
    }

    fn attention(&mut self, hidden: usize, head_dim: usize, heads: [usize; 2], gated: bool) {
        let part = Part::Attention;
        let [query, kv] = heads.map(|heads| heads * head_dim);
        let query_rows = if gated { 2 * query } else { query };
        self.push(
            "self_attn.q_proj.weight",
            &[query_rows, hidden],
            part,
            Split::Sharded,
        );
        self.push(
            "self_attn.k_proj.weight",
            &[kv, hidden],
            part,
            Split::KvHeads,
        );
        self.push(
            "self_attn.v_proj.weight",
            &[kv, hidden],
            part,
            Split::KvHeads,
        );
        self.push(
            "self_attn.o_proj.weight",
            &[hidden, query],
            part,
            Split::Sharded,
        );
        self.push(
            "self_attn.q_norm.weight",
            &[head_dim],
            part,
            Split::Replicated,
        );
        self.push(
            "self_attn.k_norm.weight",
            &[head_dim],
            part,
            Split::Replicated,
        );
    }

    fn gdn(&mut self, c: &TargetConfig) {
        let (part, split) = (Part::Gdn, Split::Sharded);
        let (hidden, value) = (c.hidden_size, c.value_heads * c.value_dim);
        let channels = 2 * c.key_heads * c.key_dim + value;
        self.push(
            "linear_attn.in_proj_qkv.weight",
            &[channels, hidden],
            part,
            split,
        );
        self.push(
            "linear_attn.in_proj_z.weight",
            &[value, hidden],
            part,
            split,
        );
        self.push(
            "linear_attn.in_proj_b.weight",
            &[c.value_heads, hidden],
            part,
            split,
        );
        self.push(
            "linear_attn.in_proj_a.weight",
            &[c.value_heads, hidden],
            part,
            split,
        );
        self.push(
            "linear_attn.conv1d.weight",
            &[channels, 1, c.conv_kernel],
            part,
            split,
        );
        self.push("linear_attn.A_log", &[c.value_heads], part, split);
        self.push("linear_attn.dt_bias", &[c.value_heads], part, split);
        self.push(
            "linear_attn.norm.weight",
            &[c.value_dim],
            part,
            Split::Replicated,
        );
        self.push("linear_attn.out_proj.weight", &[hidden, value], part, split);
    }
}

/// Tensors of the text model.
pub(crate) fn target(c: &TargetConfig) -> Vec<Spec> {
    let mut list = List::new();
    let table = [c.vocab_size, c.hidden_size];
    list.push(
        "model.embed_tokens.weight",
        &table,
        Part::Embedding,
        Split::Sharded,
    );
    list.push(
        "model.norm.weight",
        &[c.hidden_size],
        Part::Norm,
        Split::Replicated,
    );
    list.push("lm_head.weight", &table, Part::Head, Split::Sharded);
    if let Some(head) = list.specs.last_mut() {
        head.optional = c.tie_word_embeddings;
    }
    for (i, kind) in c.layers.iter().enumerate() {
        list.prefix = format!("model.layers.{i}.");
        target_layer(&mut list, c, *kind);
    }
    list.specs
}

fn target_layer(list: &mut List, c: &TargetConfig, kind: LayerKind) {
    list.norms(c.hidden_size);
    match kind {
        LayerKind::LinearAttention => list.gdn(c),
        LayerKind::FullAttention => {
            list.attention(c.hidden_size, c.head_dim, [c.heads, c.kv_heads], true);
        }
    }
    list.mlp(c.hidden_size, c.intermediate_size);
}

/// Tensors of the MTP head.
pub(crate) fn mtp(c: &TargetConfig) -> Vec<Spec> {
    let (hidden, part, split) = (c.hidden_size, Part::Mtp, Split::Replicated);
    let mut list = List::new();
    list.prefix = "mtp.".to_string();
    list.push("fc.weight", &[hidden, 2 * hidden], part, split);
    for name in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"] {
        list.push(&format!("{name}.weight"), &[hidden], part, split);
    }
    list.prefix = "mtp.layers.0.".to_string();
    target_layer(&mut list, c, LayerKind::FullAttention);
    for spec in &mut list.specs {
        spec.part = part;
    }
    list.specs
}

/// Tensors of a DFlash drafter.
pub(crate) fn drafter(s: &DrafterShapes) -> Vec<Spec> {
    let (hidden, replicated) = (s.hidden_size, Split::Replicated);
    let mut list = List::new();
    list.push(
        "fc.weight",
        &[hidden, s.taps * hidden],
        Part::Features,
        replicated,
    );
    list.push("hidden_norm.weight", &[hidden], Part::Features, replicated);
    list.push("norm.weight", &[hidden], Part::Norm, replicated);
    for i in 0..s.layers {
        list.prefix = format!("layers.{i}.");
        list.norms(hidden);
        list.attention(hidden, s.head_dim, [s.heads, s.kv_heads], false);
        list.mlp(hidden, s.intermediate_size);
    }
    list.specs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(
        [hidden, intermediate, layers, heads, kv, values]: [usize; 6],
        tied: bool,
    ) -> TargetConfig {
        let text = serde_json::json!({
            "model_type": "qwen3_5_text", "vocab_size": 248_320, "hidden_size": hidden,
            "intermediate_size": intermediate, "num_hidden_layers": layers,
            "full_attention_interval": 4, "num_attention_heads": heads, "num_key_value_heads": kv,
            "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": values,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
            "rms_norm_eps": 1e-6, "rope_theta": 1e7, "partial_rotary_factor": 0.25,
            "max_position_embeddings": 262_144, "tie_word_embeddings": tied,
        });
        TargetConfig::parse(&text.to_string(), None).unwrap()
    }

    fn sizes(specs: &[Spec]) -> (usize, usize) {
        let needed = || specs.iter().filter(|spec| !spec.optional);
        let parameters = needed()
            .map(|spec| spec.shape.iter().product::<usize>())
            .sum();
        (needed().count(), parameters)
    }

    /// Counts of the published files.
    #[test]
    fn tensors_and_parameters_of_the_family() {
        let large = config([5120, 17408, 64, 24, 4, 48], false);
        assert_eq!(sizes(&target(&large)), (851, 26_895_998_464));
        assert_eq!(sizes(&mtp(&large)), (15, 424_699_392));
        let middle = config([4096, 12288, 32, 16, 4, 32], false);
        assert_eq!(sizes(&target(&middle)).0, 775 - 333 - 15);
        let small = config([1024, 3584, 24, 8, 2, 16], true);
        assert_eq!(sizes(&target(&small)).0, 320);
    }

    #[test]
    fn tensors_and_parameters_of_the_27b_drafter() {
        let shapes = DrafterShapes {
            hidden_size: 5120,
            intermediate_size: 17408,
            layers: 5,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            taps: 5,
        };
        assert_eq!(sizes(&drafter(&shapes)), (58, 1_730_213_120));
    }
}
