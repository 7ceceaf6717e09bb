use serde::Serialize;
use volley_ops::{AttentionDims, AttentionMask, GdnDims, NormKind};

use crate::checkpoint::Checkpoint;
use crate::fields::{self, Fields};
use crate::{Error, Result, Rope, Shard};

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

/// What mixes the tokens in a decoder layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// Gated delta net.
    LinearAttention,
    /// Gated softmax attention.
    FullAttention,
}

/// Shapes and constants of a Qwen3.5 / Qwen3.6 text model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetConfig {
    /// Rows of the embedding table; more than there are tokens.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Kind of each decoder layer.
    pub layers: Vec<LayerKind>,
    /// Query heads of an attention layer.
    pub heads: usize,
    /// Key/value heads of an attention layer.
    pub kv_heads: usize,
    /// Width of an attention head.
    pub head_dim: usize,
    /// Key heads of a GDN layer.
    pub key_heads: usize,
    /// Value heads of a GDN layer.
    pub value_heads: usize,
    /// Width of a GDN key head.
    pub key_dim: usize,
    /// Width of a GDN value head.
    pub value_dim: usize,
    /// Taps of the GDN convolution.
    pub conv_kernel: usize,
    /// Epsilon of all norms.
    pub eps: f32,
    /// Rotary embedding of the attention layers.
    pub rope: Rope,
    /// Longest context of the training, tokens.
    pub max_position_embeddings: usize,
    /// Whether the head is the embedding table.
    pub tie_word_embeddings: bool,
    /// MTP layers that the config announces; what the files hold decides.
    pub mtp_layers: usize,
    /// Ids that end a text: of generation_config.json, else of config.json.
    pub eos: Vec<u32>,
    /// Id of `<|audio_start|>`, the mask token of the family's drafters, if tokenizer_config.json
    /// tells it.
    pub audio_start: Option<u32>,
}

impl TargetConfig {
    /// Reads config.json and, where there is one, generation_config.json.
    pub fn read(checkpoint: &Checkpoint) -> Result<Self> {
        let config = checkpoint.text(CONFIG)?.ok_or_else(|| Error::MissingFile {
            place: checkpoint.place().to_string(),
            file: CONFIG.to_string(),
        })?;
        let mut config = Self::parse(&config, checkpoint.text(GENERATION)?.as_deref())?;
        config.audio_start = match checkpoint.text(TOKENIZER)? {
            Some(text) => audio_start(&text)?,
            None => None,
        };
        Ok(config)
    }

    /// Parses the texts of config.json and generation_config.json.
    pub fn parse(config: &str, generation: Option<&str>) -> Result<Self> {
        let value = fields::parse(CONFIG, config)?;
        let root = Fields::root(CONFIG, &value)?;
        let text = root.object("text_config")?.unwrap_or_else(|| root.clone());
        refuse_other_models(&root, &text)?;

        let head_dim = text.size("head_dim")?;
        let max_position_embeddings = text.size("max_position_embeddings")?;
        let config = Self {
            vocab_size: text.size("vocab_size")?,
            hidden_size: text.size("hidden_size")?,
            intermediate_size: text.size("intermediate_size")?,
            layers: layers(&text)?,
            heads: text.size("num_attention_heads")?,
            kv_heads: text.size("num_key_value_heads")?,
            head_dim,
            key_heads: text.size("linear_num_key_heads")?,
            value_heads: text.size("linear_num_value_heads")?,
            key_dim: text.size("linear_key_head_dim")?,
            value_dim: text.size("linear_value_head_dim")?,
            conv_kernel: text.size("linear_conv_kernel_dim")?,
            eps: text.f64("rms_norm_eps")? as f32,
            rope: rope(&text, head_dim, max_position_embeddings)?,
            max_position_embeddings,
            tie_word_embeddings: match root.opt_bool("tie_word_embeddings")? {
                Some(tied) => tied,
                None => text.opt_bool("tie_word_embeddings")?.unwrap_or(false),
            },
            mtp_layers: text.opt_count("mtp_num_hidden_layers")?.unwrap_or(0),
            eos: eos(generation, &text, &root)?,
            audio_start: None,
        };
        config.check_heads(&text)?;
        Ok(config)
    }

    fn check_heads(&self, text: &Fields) -> Result<()> {
        let multiple = |key: &str, many: usize, few: usize| {
            if many.is_multiple_of(few) {
                return Ok(());
            }
            Err(text.error(
                key,
                format!("is {many}, which is no multiple of {few} key (or key/value) heads"),
            ))
        };
        multiple("num_attention_heads", self.heads, self.kv_heads)?;
        multiple("linear_num_value_heads", self.value_heads, self.key_heads)?;
        if let Some(id) = self.eos.iter().find(|&&id| id as usize >= self.vocab_size) {
            let message = format!("has {id}, the vocabulary has {} ids", self.vocab_size);
            return Err(text.error("eos_token_id", message));
        }
        Ok(())
    }

    /// Number of GDN layers.
    pub fn gdn_layers(&self) -> usize {
        let is_gdn = |kind: &&LayerKind| **kind == LayerKind::LinearAttention;
        self.layers.iter().filter(is_gdn).count()
    }

    /// Number of attention layers.
    pub fn attention_layers(&self) -> usize {
        self.layers.len() - self.gdn_layers()
    }

    /// Whether this many ranks can share the model; the error says what they
    /// cannot share.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        let shard = Shard { rank: 0, ranks };
        shard.split("vocab_size", self.vocab_size)?;
        shard.split("intermediate_size", self.intermediate_size)?;
        self.attention_dims(shard)?;
        if self.gdn_layers() > 0 {
            self.gdn_dims(shard)?;
        }
        Ok(())
    }

    /// One rank's share of a GDN layer.
    pub fn gdn_dims(&self, shard: Shard) -> Result<GdnDims> {
        Ok(GdnDims {
            key_heads: shard.split("GDN key heads", self.key_heads)?.len(),
            value_heads: shard.split("GDN value heads", self.value_heads)?.len(),
            key_dim: self.key_dim,
            value_dim: self.value_dim,
            conv_kernel: self.conv_kernel,
        })
    }

    /// One rank's share of an attention layer.
    pub fn attention_dims(&self, shard: Shard) -> Result<AttentionDims> {
        Ok(AttentionDims {
            heads: shard.split("attention heads", self.heads)?.len(),
            kv_heads: shard.kv_heads(self.kv_heads)?.len(),
            head_dim: self.head_dim,
            rotary_dim: self.rope.dim,
            gated: true,
            norm: NormKind::ZeroCentred,
            eps: self.eps,
        })
    }

    /// Mask of the attention layers.
    pub(crate) fn mask(&self) -> AttentionMask {
        AttentionMask::CAUSAL
    }
}

/// Says no to what would load and compute something else.
fn refuse_other_models(root: &Fields, text: &Fields) -> Result<()> {
    let key = "model_type";
    match text.opt_str(key)? {
        None | Some("qwen3_5" | "qwen3_5_text") => {}
        Some("qwen3_5_moe" | "qwen3_5_moe_text") => {
            return Err(text.unsupported(key, "mixtures of experts are not computed"));
        }
        Some(_) => {
            let why =
                "the target has to be of the Qwen3.5 / Qwen3.6 family (qwen3_5, qwen3_5_text)";
            return Err(text.unsupported(key, why));
        }
    }
    for key in ["num_experts", "quantization_config"] {
        for fields in [root, text] {
            if fields.has(key) {
                let why = "only dense models in BF16, F16 or F32 are computed";
                return Err(fields.unsupported(key, why));
            }
        }
    }
    let only = |key: &str, found: Option<&str>, allowed: &[&str]| match found {
        Some(value) if !allowed.contains(&value) => {
            Err(text.unsupported(key, "only silu is computed"))
        }
        _ => Ok(()),
    };
    only(
        "hidden_act",
        text.opt_str("hidden_act")?,
        &["silu", "swish"],
    )?;
    let gate = "output_gate_type";
    only(gate, text.opt_str(gate)?, &["silu", "swish"])?;
    if text.opt_bool("attn_output_gate")? == Some(false) {
        return Err(text.unsupported("attn_output_gate", "attention is always gated here"));
    }
    if text.opt_bool("attention_bias")? == Some(true) {
        return Err(text.unsupported("attention_bias", "projections have no biases here"));
    }
    Ok(())
}

fn layers(text: &Fields) -> Result<Vec<LayerKind>> {
    let count = text.size("num_hidden_layers")?;
    let key = "layer_types";
    let Some(names) = text.strings(key)? else {
        let interval = text.size("full_attention_interval")?;
        let kind = |i: usize| match (i + 1).is_multiple_of(interval) {
            true => LayerKind::FullAttention,
            false => LayerKind::LinearAttention,
        };
        return Ok((0..count).map(kind).collect());
    };
    if names.len() != count {
        let message = format!("has {} entries, num_hidden_layers is {count}", names.len());
        return Err(text.error(key, message));
    }
    let kind = |name: &str| match name {
        "linear_attention" => Ok(LayerKind::LinearAttention),
        "full_attention" => Ok(LayerKind::FullAttention),
        other => Err(text.error(
            key,
            format!("has {other}, expected linear_attention or full_attention"),
        )),
    };
    names.into_iter().map(kind).collect()
}

fn rope(text: &Fields, head_dim: usize, max_positions: usize) -> Result<Rope> {
    let nested = match text.object("rope_parameters")? {
        Some(nested) => Some(nested),
        None => text.object("rope_scaling")?,
    };
    let find = |key: &str| match &nested {
        Some(nested) if nested.has(key) => nested.f64(key),
        _ => text.f64(key),
    };
    let key = "partial_rotary_factor";
    let share = find(key)?;
    let dim = (head_dim as f64 * share) as usize;
    if dim == 0 || dim % 2 == 1 || dim > head_dim {
        let message =
            format!("is {share}: {dim} of {head_dim} channels cannot be rotated in pairs");
        return Err(text.error(key, message));
    }
    Rope::read(
        find("rope_theta")?,
        dim,
        Some(max_positions),
        nested.as_ref(),
    )
}

fn audio_start(tokenizer: &str) -> Result<Option<u32>> {
    let value = fields::parse(TOKENIZER, tokenizer)?;
    let tokens = value["added_tokens_decoder"].as_object();
    let found = tokens.into_iter().flatten().find_map(|(id, token)| {
        let is_it = token["content"] == "<|audio_start|>";
        id.parse().ok().filter(|_| is_it)
    });
    Ok(found)
}

fn eos(generation: Option<&str>, text: &Fields, root: &Fields) -> Result<Vec<u32>> {
    let key = "eos_token_id";
    if let Some(generation) = generation {
        let value = fields::parse(GENERATION, generation)?;
        if let Some(ids) = Fields::root(GENERATION, &value)?.ids(key)? {
            return Ok(ids);
        }
    }
    match text.ids(key)? {
        Some(ids) => Ok(ids),
        None => Ok(root.ids(key)?.unwrap_or_default()),
    }
}
