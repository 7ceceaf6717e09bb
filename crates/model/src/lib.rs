//! The models of volley, written once against [`volley_ops::Ops`]: the Qwen3.5 / Qwen3.6 target,
//! its MTP head and the DFlash drafter, with their configs, checkpoints and sharding.

mod check;
mod checkpoint;
mod config;
mod drafter;
mod drafter_config;
mod error;
mod fields;
mod head;
mod inspect;
mod layers;
mod limits;
mod logit_rows;
mod manifest;
mod mtp;
mod rope;
mod shard;
mod target;
mod top_rows;
mod traffic;
mod weights;

pub use checkpoint::{Checkpoint, Tensor};
pub use config::{LayerKind, TargetConfig};
pub use drafter::Drafter;
pub use drafter_config::{DrafterConfig, DrafterShapes, target_layer_ids};
pub use error::{Error, Problem, Result};
pub use head::{Asked, Drafted, Outcome};
pub use inspect::{FileSummary, Inspection, Kind, Memory, inspect};
pub use limits::Limits;
pub use logit_rows::Drawn;
pub use manifest::Part;
pub use mtp::{HiddenRows, Mtp};
pub use rope::{Rope, Yarn};
pub use shard::Shard;
pub use target::Target;
pub use top_rows::{TopRow, TopRows};
pub use traffic::Traffic;
