use volley_ops::AttentionMask;

use super::{DrafterConfig, DrafterShapes, target_layer_ids};
use crate::checkpoint::Checkpoint;
use crate::fields::Fields;
use crate::{Result, Rope, TargetConfig};

const DEFAULT_BLOCK: usize = 16;
const DEFAULT_WINDOW: usize = 2048;
const DEFAULT_EPS: f64 = 1e-6;
/// Mask tokens of published drafters, by the size of the target's vocabulary.
const MASK_TOKENS: [(usize, u32); 2] = [(248_320, 248_070), (151_936, 151_669)];

/// Reads the fields of config.json, fills gaps and notes what it assumed.
pub(super) struct Reader<'a> {
    pub(super) root: Fields<'a>,
    pub(super) nested: Fields<'a>,
    pub(super) bare: bool,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) target: Option<&'a TargetConfig>,
    pub(super) guesses: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn read(mut self) -> Result<DrafterConfig> {
        let num_target_layers = self.root.opt_size("num_target_layers")?;
        let target_layer_ids = self.target_layer_ids(num_target_layers)?;
        let shapes = self.shapes(target_layer_ids.len())?;
        let eps = match self.root.opt_f64("rms_norm_eps")? {
            Some(eps) => eps,
            None => self.guess("rms_norm_eps", DEFAULT_EPS),
        };
        Ok(DrafterConfig {
            shapes,
            masks: self.masks(shapes.layers)?,
            eps: eps as f32,
            rope: self.rope(shapes.head_dim)?,
            block_size: self.block_size()?,
            mask_token_id: self.mask_token_id()?,
            target_layer_ids,
            num_target_layers,
            vocab_size: self.root.opt_size("vocab_size")?,
            guesses: self.guesses,
        })
    }

    fn guess<T: std::fmt::Debug>(&mut self, what: &str, value: T) -> T {
        self.guesses.push(format!("{what} = {value:?}"));
        value
    }

    /// A field that may stand at the top or in `dflash_config`, but not with two values.
    fn either<T: PartialEq + std::fmt::Debug>(
        &self,
        keys: [&str; 2],
        get: impl Fn(&Fields<'a>, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut found = None;
        for fields in [&self.nested, &self.root] {
            for key in keys {
                match (get(fields, key)?, &found) {
                    (Some(value), None) => found = Some(value),
                    (Some(value), Some(first)) if value != *first => {
                        let message = format!("is {value:?}, elsewhere it is {first:?}");
                        return Err(fields.error(key, message));
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    pub(super) fn refuse_other_models(&self) -> Result<()> {
        const KNOWN: [&str; 12] = [
            "block_size",
            "mask_token_id",
            "mask_token",
            "target_layer_ids",
            "eagle_aux_hidden_state_layer_ids",
            "causal",
            "is_causal",
            "swa_window_size",
            "use_swa",
            "sliding_window",
            "num_target_layers",
            "num_anchors",
        ];
        const REFUSED: [&str; 9] = [
            "output_multiplier",
            "final_logit_softcapping",
            "attn_logit_softcapping",
            "input_embedding_scale",
            "attention_sink_bias",
            "sample_from_anchor",
            "projector_type",
            "quantization_config",
            "draft_vocab_size",
        ];
        for architecture in self.root.strings("architectures")?.unwrap_or_default() {
            if architecture != "DFlashDraftModel" {
                let why = "only DFlash drafters (DFlashDraftModel) are computed";
                return Err(self.root.unsupported("architectures", why));
            }
        }
        for key in self.nested.keys() {
            if !KNOWN.contains(&key) && !self.is_neutral(&self.nested, key) {
                let why = "its effect on the drafter is unknown";
                return Err(self.nested.unsupported(key, why));
            }
        }
        for key in REFUSED {
            if !self.is_neutral(&self.root, key) {
                let why = "this variant of DFlash is not computed";
                return Err(self.root.unsupported(key, why));
            }
        }
        let act = "hidden_act";
        if !matches!(self.root.opt_str(act)?, None | Some("silu" | "swish")) {
            return Err(self.root.unsupported(act, "only silu is computed"));
        }
        let bias = "attention_bias";
        if self.root.opt_bool(bias)? == Some(true) {
            return Err(self
                .root
                .unsupported(bias, "projections have no biases here"));
        }
        Ok(())
    }

    /// Absent, or a value that means "off": `false` for a switch, 1 for a factor.
    fn is_neutral(&self, fields: &Fields, key: &str) -> bool {
        !fields.has(key)
            || fields.opt_bool(key).ok().flatten() == Some(false)
            || (key.ends_with("_multiplier") || key.ends_with("_scale"))
                && fields.opt_f64(key).ok().flatten() == Some(1.0)
    }

    /// The config's sizes, and those of the tensors where it has none. That the two agree is
    /// checked when the tensors are read.
    fn shapes(&self, taps: usize) -> Result<DrafterShapes> {
        let given = |key: &str, infer: fn(DrafterShapes) -> usize| match self.root.opt_size(key)? {
            Some(size) => Ok(size),
            None => DrafterShapes::of(self.checkpoint).map(infer),
        };
        let shapes = DrafterShapes {
            hidden_size: given("hidden_size", |s| s.hidden_size)?,
            intermediate_size: given("intermediate_size", |s| s.intermediate_size)?,
            layers: given("num_hidden_layers", |s| s.layers)?,
            heads: given("num_attention_heads", |s| s.heads)?,
            kv_heads: given("num_key_value_heads", |s| s.kv_heads)?,
            head_dim: given("head_dim", |s| s.head_dim)?,
            taps,
        };
        if shapes.kv_heads == 0 || !shapes.heads.is_multiple_of(shapes.kv_heads) {
            let message = format!(
                "is {}, which is no multiple of {} key/value heads",
                shapes.heads, shapes.kv_heads
            );
            return Err(self.root.error("num_attention_heads", message));
        }
        Ok(shapes)
    }

    /// `layer_types` decides; `use_swa` makes all layers of one kind, `swa_window_size` sets the
    /// window of sliding layers, `is_causal` / `causal` the causality of all layers.
    fn masks(&mut self, layers: usize) -> Result<Vec<AttentionMask>> {
        let causal = self.either(["is_causal", "causal"], Fields::opt_bool)?;
        let use_swa = self.either(["use_swa"; 2], Fields::opt_bool)?;
        let sliding = match use_swa {
            Some(all) => vec![all; layers],
            None => self.sliding_layers(layers)?,
        };
        let window = match self.either(["swa_window_size"; 2], Fields::opt_size)? {
            None => self.either(["sliding_window"; 2], Fields::opt_size)?,
            given => given,
        };
        let window = match window {
            None if self.bare && sliding.contains(&true) => {
                Some(self.guess("sliding_window", DEFAULT_WINDOW))
            }
            None if sliding.contains(&true) => {
                let message = "is missing, and there are sliding layers";
                return Err(self.root.error("sliding_window", message));
            }
            window => window,
        };
        let mask = |&sliding: &bool| AttentionMask {
            causal: causal.unwrap_or(sliding),
            window: window.filter(|_| sliding),
        };
        Ok(sliding.iter().map(mask).collect())
    }

    fn sliding_layers(&mut self, layers: usize) -> Result<Vec<bool>> {
        let key = "layer_types";
        if let Some(types) = self.root.strings(key)? {
            if types.len() != layers {
                let message = format!("has {} entries for {layers} layers", types.len());
                return Err(self.root.error(key, message));
            }
            let kind = |name: &str| match name {
                "sliding_attention" => Ok(true),
                "full_attention" => Ok(false),
                other => {
                    let expected = "expected sliding_attention or full_attention";
                    Err(self.root.error(key, format!("has {other}, {expected}")))
                }
            };
            return types.into_iter().map(kind).collect();
        }
        if self.bare {
            self.guess(key, "sliding but for the last layer, which is full");
            return Ok((0..layers).map(|i| i + 1 < layers).collect());
        }
        let windowed = self.root.opt_bool("use_sliding_window")? == Some(true)
            && self.root.has("sliding_window");
        let first = self.root.opt_count("max_window_layers")?.unwrap_or(layers);
        Ok((0..layers).map(|i| windowed && i >= first).collect())
    }

    fn rope(&mut self, head_dim: usize) -> Result<Rope> {
        let parameters = self.root.object("rope_parameters")?;
        let scaling = self.root.object("rope_scaling")?;
        let nested = match &parameters {
            Some(parameters) => parameters.opt_f64("rope_theta")?,
            None => None,
        };
        let theta = match (nested, self.root.opt_f64("rope_theta")?, self.target) {
            (Some(theta), _, _) | (None, Some(theta), _) => theta,
            (None, None, Some(target)) => self.guess("rope_theta", target.rope.theta),
            (None, None, None) => return Err(self.root.needs_target("rope_theta")),
        };
        let positions = self.root.opt_size("max_position_embeddings")?;
        let scaling = scaling.or(parameters);
        Rope::read(theta, head_dim, positions, scaling.as_ref())
    }

    fn block_size(&mut self) -> Result<usize> {
        let key = "block_size";
        match self.either([key; 2], Fields::opt_size)? {
            Some(1) => Err(self.root.error(key, "is 1, a block needs a slot to draft")),
            Some(size) => Ok(size),
            None => Ok(self.guess(key, DEFAULT_BLOCK)),
        }
    }

    fn mask_token_id(&mut self) -> Result<u32> {
        if let Some(id) = self.either(["mask_token_id", "mask_token"], Fields::opt_id)? {
            return Ok(id);
        }
        let vocab = match (self.root.opt_size("vocab_size")?, self.target) {
            (Some(size), _) => Some(size),
            (None, target) => target.map(|target| target.vocab_size),
        };
        let known = MASK_TOKENS.iter().find(|(size, _)| Some(*size) == vocab);
        let told = self.target.and_then(|target| target.audio_start);
        match known.map(|(_, id)| *id).or(told) {
            Some(id) => Ok(self.guess("mask_token_id", id)),
            None if self.target.is_none() => Err(self.nested.needs_target("mask_token_id")),
            None => {
                let message = "is missing, and the target's tokenizer has no <|audio_start|>";
                Err(self.nested.error("mask_token_id", message))
            }
        }
    }

    fn target_layer_ids(&mut self, layers: Option<usize>) -> Result<Vec<usize>> {
        let key = "target_layer_ids";
        let ids = self.either([key; 2], Fields::sizes)?;
        let eagle = "eagle_aux_hidden_state_layer_ids";
        let shifted = self.either([eagle; 2], Fields::sizes)?;
        let unshifted = match shifted {
            Some(shifted) => Some(
                shifted
                    .iter()
                    .map(|id| id.checked_sub(1))
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| self.root.error(eagle, "has 0, ids there start at 1"))?,
            ),
            None => None,
        };
        match (ids, unshifted) {
            (Some(ids), Some(unshifted)) if ids != unshifted => {
                let message = format!("minus one is {unshifted:?}, {key} is {ids:?}");
                Err(self.root.error(eagle, message))
            }
            (Some(ids), _) | (None, Some(ids)) if ids.is_empty() => Err(self
                .nested
                .error(key, "is empty, a drafter needs a target layer")),
            (Some(ids), _) | (None, Some(ids)) => Ok(ids),
            (None, None) => {
                let taps = DrafterShapes::of(self.checkpoint)?.taps;
                match layers.or(self.target.map(|target| target.layers.len())) {
                    Some(layers) if layers >= 4 && taps > 0 => {
                        Ok(self.guess(key, target_layer_ids(layers, taps)))
                    }
                    None => Err(self.nested.needs_target(key)),
                    Some(layers) => {
                        let message = format!(
                            "is missing and cannot be inferred from {taps} taps of {layers} layers"
                        );
                        Err(self.nested.error(key, message))
                    }
                }
            }
        }
    }
}
