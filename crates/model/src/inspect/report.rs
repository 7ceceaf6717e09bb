use std::fmt;

use super::Inspection;
use crate::{DrafterConfig, TargetConfig};

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}", self.place)?;
        match (&self.target, &self.drafter) {
            (Some(c), _) => write_target(f, c)?,
            (_, Some(c)) => write_drafter(f, c)?,
            _ => writeln!(f, "  {:?} with an unreadable config", self.kind)?,
        }
        writeln!(f, "\nparameters  {}", grouped(self.total_parameters))?;
        for (part, count) in &self.parameters {
            writeln!(f, "  {:<10}{:>16}", part.name(), grouped(*count))?;
        }
        writeln!(f, "\nfiles")?;
        for file in &self.files {
            let size = size(file.bytes);
            writeln!(f, "  {}: {} tensors, {size}", file.name, file.tensors)?;
        }
        let dtypes: Vec<_> = self
            .dtypes
            .iter()
            .map(|(d, n)| format!("{n} {d}"))
            .collect();
        writeln!(f, "  tensors by format: {}", dtypes.join(", "))?;
        if self.vision_tensors > 0 {
            writeln!(
                f,
                "  {} tensors of the vision tower are not loaded",
                self.vision_tensors
            )?;
        }
        writeln!(f, "\nmemory per rank (cache in BF16)")?;
        for m in &self.memory {
            write!(f, "  TP {}: weights {}", m.ranks, size(m.weight_bytes))?;
            write!(f, ", {} per token", size(m.kv_bytes_per_token))?;
            match m.state_bytes_per_sequence {
                0 => writeln!(f)?,
                bytes => writeln!(f, ", {} per sequence", size(bytes))?,
            }
        }
        match self.problems.len() {
            0 => writeln!(f, "\nall tensors are there and fit the config")?,
            1 => writeln!(f, "\n1 problem")?,
            many => writeln!(f, "\n{many} problems")?,
        }
        let problems = self.problems.iter();
        problems
            .clone()
            .try_for_each(|problem| writeln!(f, "  {problem}"))?;
        let mut notes = self.notes.iter();
        notes.try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

fn write_target(f: &mut fmt::Formatter, c: &TargetConfig) -> fmt::Result {
    writeln!(
        f,
        "  Qwen3.5 text model: {} layers ({} GDN, {} attention), hidden {}, MLP {}, vocabulary {} ({})",
        c.layers.len(),
        c.gdn_layers(),
        c.attention_layers(),
        c.hidden_size,
        c.intermediate_size,
        c.vocab_size,
        if c.tie_word_embeddings {
            "tied"
        } else {
            "untied"
        },
    )?;
    writeln!(
        f,
        "  attention: {} heads, {} key/value heads of {}, {} rotated; GDN: {} key heads of {}, {} value heads of {}",
        c.heads,
        c.kv_heads,
        c.head_dim,
        c.rope.dim,
        c.key_heads,
        c.key_dim,
        c.value_heads,
        c.value_dim,
    )?;
    writeln!(
        f,
        "  context {} tokens, ends at ids {:?}",
        c.max_position_embeddings, c.eos
    )
}

fn write_drafter(f: &mut fmt::Formatter, c: &DrafterConfig) -> fmt::Result {
    let s = &c.shapes;
    writeln!(
        f,
        "  DFlash drafter: {} layers, hidden {}, MLP {}, {} heads, {} key/value heads of {}",
        s.layers, s.hidden_size, s.intermediate_size, s.heads, s.kv_heads, s.head_dim,
    )?;
    writeln!(
        f,
        "  block of {}, mask token {}, taps target layers {:?}",
        c.block_size, c.mask_token_id, c.target_layer_ids,
    )?;
    for (i, mask) in c.masks.iter().enumerate() {
        let sight = if mask.causal {
            "causal"
        } else {
            "bidirectional"
        };
        match mask.window {
            Some(window) => writeln!(f, "  layer {i}: {sight}, window {window}")?,
            None => writeln!(f, "  layer {i}: {sight}, whole context")?,
        }
    }
    c.guesses
        .iter()
        .try_for_each(|guess| writeln!(f, "  guessed: {guess}"))
}

/// `1234567` as `1,234,567`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that shows them best.
fn size(bytes: usize) -> String {
    const STEP: f64 = 1024.0;
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for next in units {
        if value < STEP {
            break;
        }
        (value, unit) = (value / STEP, next);
    }
    match unit {
        "bytes" => format!("{bytes} bytes"),
        _ => format!("{value:.1} {unit}"),
    }
}
