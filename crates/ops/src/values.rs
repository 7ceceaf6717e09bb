use half::{bf16, f16};

/// Number format of values in a file, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// The upper half of single precision.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl Format {
    /// Bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    fn widen(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Self::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            Self::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        }
    }
}

/// Rows of a tensor in a file, or some columns of them.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// How the values are written.
    pub format: Format,
    /// Bytes from the first value on.
    pub bytes: &'a [u8],
    /// Rows.
    pub rows: usize,
    /// Values from the start of one row to that of the next.
    pub stride: usize,
}

/// Where the values of a matrix come from.
#[derive(Clone, Debug)]
pub enum Origin<'a> {
    /// Parts of files, one below the other.
    Parts(Vec<Part<'a>>),
    /// Nowhere: numbers between `-scale` and `scale` that depend on the seed.
    Noise {
        /// Which numbers.
        seed: u32,
        /// Bound of their size.
        scale: f32,
    },
}

/// A matrix `[out, input]`, row-major, that is not yet loaded.
#[derive(Clone, Debug)]
pub struct MatrixData<'a> {
    /// Rows.
    pub out: usize,
    /// Columns.
    pub input: usize,
    /// Its values.
    pub origin: Origin<'a>,
}

impl MatrixData<'_> {
    /// All values.
    pub fn values(&self) -> Vec<f32> {
        match &self.origin {
            Origin::Parts(parts) => {
                let mut values = Vec::with_capacity(self.out * self.input);
                for part in parts {
                    for row in 0..part.rows {
                        let bytes = part.row(row, 0..self.input);
                        let size = part.format.size();
                        values.extend(bytes.chunks_exact(size).map(|v| part.format.widen(v)));
                    }
                }
                values
            }
            Origin::Noise { seed, scale } => {
                let value = |i| noise(i as u32, *seed, *scale);
                (0..self.out * self.input).map(value).collect()
            }
        }
    }

    /// Writes the values from `first` on (counted row by row) as bf16 into `out`, two bytes each.
    pub fn write_bf16(&self, first: usize, out: &mut [u8]) {
        let Origin::Parts(parts) = &self.origin else {
            for (i, two) in out.chunks_exact_mut(2).enumerate() {
                let Origin::Noise { seed, scale } = self.origin else {
                    return;
                };
                let value = noise((first + i) as u32, seed, scale);
                two.copy_from_slice(&bf16::from_f32(value).to_le_bytes());
            }
            return;
        };
        let (mut at, mut out) = (first, out);
        let mut above = 0;
        for part in parts {
            let end = (above + part.rows) * self.input;
            while at < end && !out.is_empty() {
                let (row, column) = (at / self.input - above, at % self.input);
                // Whole rows that follow each other are one run.
                let run = match part.stride == self.input {
                    true => end - at,
                    false => self.input - column,
                };
                let n = run.min(out.len() / 2);
                let (now, rest) = out.split_at_mut(2 * n);
                part.narrow(row, column..column + n, now);
                (at, out) = (at + n, rest);
            }
            above += part.rows;
        }
    }
}

impl<'a> Part<'a> {
    /// Bytes of columns of a row; they may go on into the next rows.
    fn row(&self, row: usize, columns: std::ops::Range<usize>) -> &'a [u8] {
        let (start, size) = (row * self.stride, self.format.size());
        &self.bytes[(start + columns.start) * size..(start + columns.end) * size]
    }

    fn narrow(&self, row: usize, columns: std::ops::Range<usize>, out: &mut [u8]) {
        let bytes = self.row(row, columns);
        if self.format == Format::Bf16 {
            out.copy_from_slice(bytes);
            return;
        }
        let values = bytes.chunks_exact(self.format.size());
        for (value, two) in values.zip(out.chunks_exact_mut(2)) {
            let narrow = bf16::from_f32(self.format.widen(value));
            two.copy_from_slice(&narrow.to_le_bytes());
        }
    }
}

/// A number between `-scale` and `scale` that depends on place and seed only: the one that the
/// kernel `noise_values` makes.
pub fn noise(place: u32, seed: u32, scale: f32) -> f32 {
    let mut bits = place.wrapping_mul(0x9e37_79b9) ^ seed;
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
    scale * ((bits >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32], format: Format) -> Vec<u8> {
        let of = |&x: &f32| match format {
            Format::F32 => x.to_le_bytes().to_vec(),
            Format::Bf16 => bf16::from_f32(x).to_le_bytes().to_vec(),
            Format::F16 => f16::from_f32(x).to_le_bytes().to_vec(),
        };
        values.iter().flat_map(of).collect()
    }

    /// Pieces of any size, cut anywhere, of rows and of columns, in every format.
    #[test]
    fn pieces_give_what_the_whole_gives() {
        let numbers: Vec<f32> = (0..60).map(|i| 0.25 * i as f32 - 3.0).collect();
        for format in [Format::F32, Format::Bf16, Format::F16] {
            let all = bytes(&numbers, format);
            let (rows, columns) = (&all[5 * format.size()..], &all[2 * format.size()..]);
            let part = |bytes, rows, stride| Part {
                format,
                bytes,
                rows,
                stride,
            };
            let matrix = MatrixData {
                out: 7,
                input: 5,
                origin: Origin::Parts(vec![part(rows, 3, 5), part(columns, 4, 12)]),
            };
            let mut expected: Vec<f32> = numbers[5..20].to_vec();
            for row in 0..4 {
                expected.extend(&numbers[2 + 12 * row..][..5]);
            }
            assert_eq!(matrix.values(), expected);
            for piece in [1, 3, 8, 35, 50] {
                let mut found = Vec::new();
                for first in (0..35).step_by(piece) {
                    let mut out = vec![0; 2 * piece.min(35 - first)];
                    matrix.write_bf16(first, &mut out);
                    let pairs = out.chunks_exact(2);
                    found.extend(pairs.map(|v| bf16::from_le_bytes([v[0], v[1]]).to_f32()));
                }
                assert_eq!(found, expected, "{format:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn noise_fills_its_interval() {
        let matrix = MatrixData {
            out: 64,
            input: 128,
            origin: Origin::Noise {
                seed: 3,
                scale: 0.5,
            },
        };
        let values = matrix.values();
        assert!(values.iter().all(|x| x.abs() <= 0.5));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
        assert!(values[1] != values[2]);
        let mut two = [0; 2];
        matrix.write_bf16(130, &mut two);
        assert_eq!(bf16::from_le_bytes(two), bf16::from_f32(values[130]));
    }
}
