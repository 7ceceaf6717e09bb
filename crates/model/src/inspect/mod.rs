mod report;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::manifest::{self, Part, Spec, Split};
use crate::weights::{Weights, drafter_name, target_name};
use crate::{DrafterConfig, DrafterShapes, Error, Result, Shard, TargetConfig};

/// Rank counts whose memory is shown.
const RANKS: [usize; 2] = [1, 2];
/// Bytes of a weight or cached value in BF16.
const BF16_BYTES: usize = 2;
const F32_BYTES: usize = 4;

/// What a checkpoint is and whether it can be loaded.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Folder or file.
    pub place: String,
    /// What kind of model.
    pub kind: Kind,
    /// Config of a target, where it could be read.
    pub target: Option<TargetConfig>,
    /// Config of a drafter, where it could be read.
    pub drafter: Option<DrafterConfig>,
    /// Weight files.
    pub files: Vec<FileSummary>,
    /// Number of tensors by number format.
    pub dtypes: BTreeMap<String, usize>,
    /// Parameters by part; the vision tower and unknown tensors are not counted.
    pub parameters: BTreeMap<Part, usize>,
    /// Sum of `parameters`.
    pub total_parameters: usize,
    /// Tensors of the vision tower, which are not loaded.
    pub vision_tensors: usize,
    /// Why it cannot be loaded: empty for a good checkpoint.
    pub problems: Vec<String>,
    /// What is odd about it, and keeps nobody from loading it.
    pub notes: Vec<String>,
    /// Memory by number of ranks.
    pub memory: Vec<Memory>,
}

/// Kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Qwen3.5 / Qwen3.6 text model.
    Target,
    /// DFlash drafter.
    Drafter,
}

/// One weight file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// File name.
    pub name: String,
    /// Number of its tensors.
    pub tensors: usize,
    /// Bytes of its tensors.
    pub bytes: usize,
}

/// Memory of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Number of ranks.
    pub ranks: usize,
    /// Bytes of its weights in their formats on disk.
    pub weight_bytes: usize,
    /// Bytes of keys and values per token in BF16.
    pub kv_bytes_per_token: usize,
    /// Bytes of recurrent (f32) and convolution (BF16) states per sequence.
    pub state_bytes_per_sequence: usize,
}

/// Looks at headers and config only. What is wrong with them is listed, not an error; errors are
/// tensors of the same name and the like.
pub fn inspect(checkpoint: &Checkpoint) -> Result<Inspection> {
    let is_drafter = |name: &str| matches!(name, "fc.weight" | "model.fc.weight");
    let kind = match checkpoint.tensors().any(|tensor| is_drafter(tensor.name())) {
        true => Kind::Drafter,
        false => Kind::Target,
    };
    let mut inspection = Inspection {
        place: checkpoint.place().to_string(),
        kind,
        target: None,
        drafter: None,
        files: files(checkpoint),
        dtypes: BTreeMap::new(),
        parameters: BTreeMap::new(),
        total_parameters: 0,
        vision_tensors: 0,
        problems: Vec::new(),
        notes: Vec::new(),
        memory: Vec::new(),
    };
    for tensor in checkpoint.tensors() {
        let dtype = format!("{:?}", tensor.dtype());
        *inspection.dtypes.entry(dtype).or_default() += 1;
        if kind == Kind::Target && target_name(tensor.name()).is_none() {
            inspection.vision_tensors += 1;
        }
    }
    match kind {
        Kind::Target => inspection.add_target(checkpoint)?,
        Kind::Drafter => inspection.add_drafter(checkpoint)?,
    }
    inspection.total_parameters = inspection.parameters.values().sum();
    Ok(inspection)
}

fn files(checkpoint: &Checkpoint) -> Vec<FileSummary> {
    let summary = |name: &str| {
        let own = || checkpoint.tensors().filter(|tensor| tensor.file() == name);
        FileSummary {
            name: name.to_string(),
            tensors: own().count(),
            bytes: own().map(|tensor| tensor.byte_len()).sum(),
        }
    };
    checkpoint.files().map(summary).collect()
}

impl Inspection {
    fn add_target(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let weights = Weights::new(checkpoint, target_name)?;
        let config = match TargetConfig::read(checkpoint) {
            Ok(config) => config,
            Err(error) => return self.give_up(error),
        };
        let mut specs = manifest::target(&config);
        let has_mtp = weights.has_prefix("mtp.");
        if has_mtp {
            specs.extend(manifest::mtp(&config));
        } else if config.mtp_layers > 0 {
            let note =
                "config.json announces an MTP head, no file holds it: it cannot draft by mtp";
            self.notes.push(note.to_string());
        }
        self.add_tensors(&weights, &specs);
        for ranks in RANKS {
            self.add_memory(ranks, config.check_ranks(ranks), |shard| {
                let attention = config.attention_dims(shard)?;
                let gdn = config.gdn_dims(shard)?;
                let kv_layers = config.attention_layers() + usize::from(has_mtp);
                Ok(Memory {
                    ranks,
                    weight_bytes: weight_bytes(&weights, &specs, shard, config.kv_heads)?,
                    kv_bytes_per_token: kv_layers * 2 * attention.kv_width() * BF16_BYTES,
                    state_bytes_per_sequence: config.gdn_layers()
                        * (gdn.state_len() * F32_BYTES + gdn.conv_state_len() * BF16_BYTES),
                })
            })?;
        }
        self.target = Some(config);
        Ok(())
    }

    fn add_drafter(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let weights = Weights::new(checkpoint, drafter_name)?;
        let (shapes, config) = match DrafterConfig::read(checkpoint, None) {
            Ok(config) => (config.shapes, Some(config)),
            Err(error) => {
                match error {
                    Error::NeedsTarget { .. } => self.notes.push(error.to_string()),
                    error => self.give_up(error)?,
                }
                match DrafterShapes::of(checkpoint) {
                    Ok(shapes) => (shapes, None),
                    Err(error) => return self.give_up(error),
                }
            }
        };
        let specs = manifest::drafter(&shapes);
        self.add_tensors(&weights, &specs);
        for ranks in RANKS {
            self.add_memory(ranks, shapes.check_ranks(ranks), |shard| {
                let kv_heads = shard.kv_heads(shapes.kv_heads)?.len();
                let kv_width = kv_heads * shapes.head_dim;
                Ok(Memory {
                    ranks,
                    weight_bytes: weight_bytes(&weights, &specs, shard, shapes.kv_heads)?,
                    kv_bytes_per_token: shapes.layers * 2 * kv_width * BF16_BYTES,
                    state_bytes_per_sequence: 0,
                })
            })?;
        }
        self.drafter = config;
        Ok(())
    }

    fn give_up(&mut self, error: Error) -> Result<()> {
        let problem = error.to_string();
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Ok(())
    }

    fn add_tensors(&mut self, weights: &Weights, specs: &[Spec]) {
        let problems = weights.problems(specs);
        self.problems
            .extend(problems.iter().map(ToString::to_string));
        for spec in specs.iter().filter(|spec| !spec.optional) {
            if let Some(tensor) = weights.get(&spec.name) {
                *self.parameters.entry(spec.part).or_default() += tensor.len();
            }
        }
    }

    fn add_memory(
        &mut self,
        ranks: usize,
        possible: Result<()>,
        memory: impl Fn(Shard) -> Result<Memory>,
    ) -> Result<()> {
        match possible {
            Ok(()) => self.memory.push(memory(Shard { rank: 0, ranks })?),
            Err(error) if ranks == 1 => return Err(error),
            // A model may well be too small to be shared.
            Err(_) => {}
        }
        Ok(())
    }
}

fn weight_bytes(weights: &Weights, specs: &[Spec], shard: Shard, kv_heads: usize) -> Result<usize> {
    let mut bytes = 0;
    for spec in specs.iter().filter(|spec| !spec.optional) {
        let whole = match weights.get(&spec.name) {
            Some(tensor) => tensor.byte_len(),
            None => spec.shape.iter().product::<usize>() * BF16_BYTES,
        };
        bytes += match spec.split {
            Split::Replicated => whole,
            Split::Sharded => whole / shard.ranks,
            Split::KvHeads => whole / kv_heads * shard.kv_heads(kv_heads)?.len(),
        };
    }
    Ok(bytes)
}
