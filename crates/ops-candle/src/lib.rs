//! [`volley_ops::Ops`] on any Candle device, in f32: the embedded default on the CPU and the oracle
//! of every other implementation.
//!
//! Buffers and caches live in host memory. On the CPU the linear maps run on a packed copy of the
//! weight; on another device the weight lives there and Candle multiplies, while the small fused
//! operations stay on the host: right, not fast.
//!
//! On the CPU a row's bits do not depend on the rows beside it, in any operation: sums run in an
//! order fixed by the widths (linear maps, norms), by the tokens a row sees (attention) or by its
//! ancestors (convolution, verify). A path through a tree has the bits of the same rows as a chain.
//! What differs, by rounding, is a text taken as one block of the delta rule or as several.

mod attention;
mod buf;
mod checks;
mod conv;
mod draw;
mod gdn;
mod grow;
mod kv;
mod linear;
mod math;
mod matmul;
mod norm;
mod ops;
mod ranks;
mod recurrent;
mod rope;
mod rows;
mod simd;
mod softmax;
mod threads;
mod top;
mod walk;

pub use buf::Buf;
pub use kv::Kv;
pub use linear::Weight;
pub use ops::CandleOps;
pub use recurrent::{RecurrentInput, recurrent};
