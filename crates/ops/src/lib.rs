//! The vocabulary of tensor operations that the models are written in: shapes, batches and the
//! trait [`Ops`]. No implementation lives here.

mod batch;
mod dims;
mod draw;
mod error;
mod grow;
mod ops;
mod values;
mod walk;

pub use batch::{Batch, Keep, Segment};
pub use dims::{AttentionDims, AttentionMask, GdnDims, KvDims, NormKind};
pub use draw::{Change, DRAWN, DRAWN_WIDTH, Draw, DrawFrom, Edit, EditedRows};
pub use error::{Error, Result};
pub use grow::Growth;
pub use ops::{CANDIDATES, Dtype, GdnRows, GdnStates, Ops, RopeTable, TOP_WIDTH};
pub use values::{Format, MatrixData, Origin, Part, noise};
pub use walk::{Chosen, MOST_WALKED, WALKED_WIDTH, Walk, WalkEnd, is_walked, walked};
