//! Every operation on both devices over awkward shapes.

mod attention;
mod draw;
mod edit;
mod gdn;
mod golden;
mod grow;
mod model;
mod rows;
mod walk;

use std::path::{Path, PathBuf};

use volley_ops::{Batch, Keep, Result};

use crate::pair::{Devices, path};

/// Rounding of bf16 outputs.
const BF16: f64 = 4e-3;
/// Rounding of f32 sums.
const F32: f64 = 2e-5;

/// What one comparison came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub op: &'static str,
    pub case: String,
    pub error: f64,
    pub tolerance: f64,
    pub failure: Option<String>,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.error <= self.tolerance
    }
}

/// Where the fixtures are in the repository that this was built in.
pub fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/model/tests/golden")
}

/// How many shapes to go through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Small shapes, for the emulation.
    Small,
    /// The shapes of the 27B model and its drafter too.
    Full,
}

/// Collects outcomes; a failed case does not stop the others.
pub struct Checks<'a> {
    pub devices: Devices<'a>,
    pub scale: Scale,
    /// Where the fixtures of the models lie.
    pub goldens: PathBuf,
    pub outcomes: Vec<Outcome>,
    /// Told of every outcome at once: the process may not live to the end.
    pub tell: fn(&Outcome),
}

/// An operation's checks, by name.
pub type Check = fn(&mut Checks);

/// All of them.
pub const ALL: &[(&str, Check)] = &[
    ("rows", rows::rows),
    ("norm", rows::norms),
    ("top", rows::top),
    ("draw", draw::draw),
    ("edit", edit::edit),
    ("grow", grow::grow),
    ("walk", walk::walk),
    ("swiglu", rows::swiglu),
    ("linear_swiglu", rows::linear_swiglu),
    ("linear", rows::linear),
    ("gdn_prepare", gdn::gdn_prepare),
    ("gdn_verify", gdn::gdn_verify),
    ("gdn_commit", gdn::gdn_commit),
    ("commit_layers", gdn::commit_layers),
    ("gdn_prefill", gdn::gdn_prefill),
    ("conv_commit", gdn::conv_commit),
    ("gated_norm", gdn::gated_norm),
    ("attention_prepare", attention::attention_prepare),
    ("attention", attention::attention),
    ("attention_of_prompts", attention::attention_of_prompts),
    ("kv_commit", attention::kv_commit),
    ("model", model::model),
    ("golden", golden::golden),
];

impl Checks<'_> {
    fn full(&self) -> bool {
        self.scale == Scale::Full
    }

    /// Runs one case; `run` gives the distance of each output and its tolerance, an outcome each.
    fn case(
        &mut self,
        op: &'static str,
        case: String,
        run: impl FnOnce(&mut Devices) -> Result<Vec<(f64, f64)>>,
    ) {
        let outcome = |error, tolerance, failure| Outcome {
            op,
            case: case.clone(),
            error,
            tolerance,
            failure,
        };
        let outcomes = match run(&mut self.devices) {
            Ok(outputs) => {
                let outputs = outputs.into_iter();
                outputs
                    .map(|(error, tolerance)| outcome(error, tolerance, None))
                    .collect()
            }
            Err(error) => vec![outcome(f64::INFINITY, 0.0, Some(error.to_string()))],
        };
        outcomes.iter().for_each(self.tell);
        self.outcomes.extend(outcomes);
    }
}

/// Some kept rows for each segment: all, none, or a path.
fn keep(d: &mut Devices, batch: &Batch) -> Keep {
    let segments = batch.segments.iter().enumerate();
    segments
        .map(|(i, segment)| match (i % 3, &segment.parents) {
            (0, None) => (0..segment.rows.len() as u32).collect(),
            (1, _) if i % 2 == 0 => vec![],
            _ => path(d, segment),
        })
        .collect()
}
