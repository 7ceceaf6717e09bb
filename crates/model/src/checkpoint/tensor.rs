use std::ops::Range;

use half::{bf16, f16};
use safetensors::Dtype;

/// A tensor within a checkpoint: nothing of it is read before it is asked for.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) file: &'a str,
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
    pub(super) bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// Name in the file.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// File that holds it.
    pub fn file(&self) -> &'a str {
        self.file
    }

    /// Number format on disk.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size on disk, bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether its values are floats that [`Tensor::append`] can widen to f32.
    pub fn is_float(&self) -> bool {
        matches!(self.dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16)
    }

    /// Appends the values of `range` (flat, row-major) to `out` as f32. The range must lie within
    /// the tensor and the tensor must be a float ([`Tensor::is_float`]).
    pub fn append(&self, range: Range<usize>, out: &mut Vec<f32>) {
        match self.dtype {
            Dtype::F32 => self.widen(range, out, f32::from_le_bytes),
            Dtype::BF16 => self.widen(range, out, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::F16 => self.widen(range, out, |b| f16::from_le_bytes(b).to_f32()),
            other => panic!("{}: {other:?} read as floats: this is a bug", self.name),
        }
    }

    fn widen<const N: usize>(
        &self,
        range: Range<usize>,
        out: &mut Vec<f32>,
        to: fn([u8; N]) -> f32,
    ) {
        let (values, _) = self.bytes[range.start * N..range.end * N].as_chunks::<N>();
        out.extend(values.iter().map(|&value| to(value)));
    }
}
