use std::ops::Range;

use half::{bf16, f16};
use safetensors::Dtype;
use volley_ops::{Format, Origin, Part, noise};

/// A tensor within a checkpoint: nothing of it is read before it is asked for.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) file: &'a str,
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
    /// None where the values are made up.
    pub(super) bytes: Option<&'a [u8]>,
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

    /// Size on disk, bytes; 0 where there is no disk.
    pub fn byte_len(&self) -> usize {
        self.bytes.map_or(0, <[u8]>::len)
    }

    /// Whether its values are floats that [`Tensor::append`] can widen to f32.
    pub fn is_float(&self) -> bool {
        matches!(self.dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16)
    }

    /// Appends the values of `range` (flat, row-major) to `out` as f32. The range must lie within
    /// the tensor and the tensor must be a float ([`Tensor::is_float`]).
    pub fn append(&self, range: Range<usize>, out: &mut Vec<f32>) {
        if self.bytes.is_none() {
            // Norms stay near what a norm is, all else near nothing.
            let centre = if self.name.contains("norm") { 1.0 } else { 0.0 };
            let seed = self.seed();
            out.extend(range.map(|i| centre + noise(i as u32, seed, 0.1)));
            return;
        }
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
        let bytes = self.bytes.unwrap_or_default();
        let (values, _) = bytes[range.start * N..range.end * N].as_chunks::<N>();
        out.extend(values.iter().map(|&value| to(value)));
    }

    /// Rows from the value `first` on, `stride` values apart; `None` where the values are made up.
    pub(crate) fn part(&self, first: usize, rows: usize, stride: usize) -> Option<Part<'a>> {
        let format = match self.dtype {
            Dtype::F32 => Format::F32,
            Dtype::BF16 => Format::Bf16,
            Dtype::F16 => Format::F16,
            other => panic!("{}: {other:?} read as floats: this is a bug", self.name),
        };
        self.bytes.map(|bytes| Part {
            format,
            bytes: &bytes[first * format.size()..],
            rows,
            stride,
        })
    }

    /// What a matrix with rows of `width` is filled with where the values are made up: numbers
    /// that keep the size of what they multiply.
    pub(crate) fn noise(&self, width: usize) -> Option<Origin<'a>> {
        self.bytes.is_none().then(|| Origin::Noise {
            seed: self.seed(),
            scale: (3.0 / width.max(1) as f32).sqrt(),
        })
    }

    /// FNV-1a of the name.
    fn seed(&self) -> u32 {
        let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
        self.name.as_bytes().iter().fold(2_166_136_261, mix)
    }
}
