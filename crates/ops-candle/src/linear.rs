use candle_core::{Device, Tensor};
use volley_ops::{Error, Result};

use crate::buf::{Buf, check};
use crate::matmul::{Left, PANEL, Right, multiply};
use crate::threads::Threads;

/// The weight of a linear map, `[out, in]`.
pub struct Weight {
    out: usize,
    input: usize,
    values: Values,
}

enum Values {
    /// `[out / PANEL, in, PANEL]`: the outputs of a panel lie side by side; the last is padded.
    Packed(Vec<f32>),
    /// `[out, in]` on a device that is not the CPU.
    Device(Tensor),
}

fn device_error(op: &'static str) -> impl Fn(candle_core::Error) -> Error {
    move |error| Error::Device {
        op,
        message: error.to_string(),
    }
}

impl Weight {
    pub(crate) fn new(device: &Device, data: Vec<f32>, out: usize, input: usize) -> Result<Self> {
        if !device.is_cpu() {
            return Self::on_device(device, data, out, input);
        }
        check("weight", "number of values", data.len(), out * input)?;
        let values = Values::Packed(pack(&data, out, input));
        Ok(Self { out, input, values })
    }

    fn on_device(device: &Device, data: Vec<f32>, out: usize, input: usize) -> Result<Self> {
        check("weight", "number of values", data.len(), out * input)?;
        let tensor =
            Tensor::from_vec(data, (out, input), device).map_err(device_error("weight"))?;
        let values = Values::Device(tensor);
        Ok(Self { out, input, values })
    }

    /// Output features.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Input features.
    pub fn input(&self) -> usize {
        self.input
    }

    /// `out = x W^T` for the first `rows` rows.
    pub(crate) fn apply(
        &self,
        threads: Threads,
        x: &Buf,
        rows: usize,
        out: &mut Buf,
    ) -> Result<()> {
        let op = "linear";
        let x = x.view(op, "x", rows, self.input)?;
        let out = out.view_mut(op, "out", rows, self.out)?;
        match &self.values {
            Values::Packed(packed) => self.apply_packed(packed, threads, x, rows, out),
            Values::Device(tensor) => {
                let product = || {
                    let x = Tensor::from_slice(x, (rows, self.input), tensor.device())?;
                    x.matmul(&tensor.t()?)?.flatten_all()?.to_vec1::<f32>()
                };
                out.copy_from_slice(&product().map_err(device_error(op))?);
            }
        }
        Ok(())
    }

    fn apply_packed(
        &self,
        packed: &[f32],
        threads: Threads,
        x: &[f32],
        rows: usize,
        out: &mut [f32],
    ) {
        if rows == 0 || self.out == 0 {
            return;
        }
        let left = Left {
            data: x,
            stride: self.input,
            depth: self.input,
        };
        let work = rows * self.out * self.input;
        let panels = self.out.div_ceil(PANEL);
        // Split by outputs: each thread reads its own part of the weight once.
        let columns = panels.div_ceil(threads.pieces(work)) * PANEL;
        let mut jobs: Vec<(usize, Vec<&mut [f32]>)> = (0..self.out)
            .step_by(columns)
            .map(|first| (first, Vec::with_capacity(rows)))
            .collect();
        for row in out.chunks_exact_mut(self.out) {
            for (part, job) in row.chunks_mut(columns).zip(&mut jobs) {
                job.1.push(part);
            }
        }
        threads.run(work, jobs, |(first, mut out)| {
            let width = out[0].len();
            for column in (0..width).step_by(PANEL) {
                let panel = (first + column) / PANEL * self.input * PANEL;
                let right = Right {
                    data: &packed[panel..][..self.input * PANEL],
                    stride: PANEL,
                    columns: PANEL.min(width - column),
                };
                multiply(left, right, false, column, &mut out);
            }
        });
    }

    /// Row `row` of the matrix: an embedding.
    fn row_into(&self, packed: &[f32], row: usize, out: &mut [f32]) {
        let panel = &packed[row / PANEL * self.input * PANEL..][..self.input * PANEL];
        for (out, values) in out.iter_mut().zip(panel.chunks_exact(PANEL)) {
            *out = values[row % PANEL];
        }
    }

    /// Rows `ids - first`; ids outside the shard give zeros.
    pub(crate) fn embed(&self, ids: &[u32], first: u32, out: &mut Buf) -> Result<()> {
        let op = "embed";
        let out = out.view_mut(op, "out", ids.len(), self.input)?;
        let local = |id: u32| {
            let row = id.checked_sub(first)? as usize;
            (row < self.out).then_some(row)
        };
        for (&id, out) in ids.iter().zip(out.chunks_exact_mut(self.input)) {
            match (local(id), &self.values) {
                (None, _) => out.fill(0.0),
                (Some(row), Values::Packed(packed)) => self.row_into(packed, row, out),
                (Some(row), Values::Device(tensor)) => {
                    let row = tensor.get(row).and_then(|row| row.to_vec1::<f32>());
                    out.copy_from_slice(&row.map_err(device_error(op))?);
                }
            }
        }
        Ok(())
    }
}

fn pack(data: &[f32], out: usize, input: usize) -> Vec<f32> {
    let mut packed = vec![0.0; out.div_ceil(PANEL) * PANEL * input];
    if input == 0 {
        return packed;
    }
    let panels = packed.chunks_exact_mut(PANEL * input);
    for (panel, rows) in panels.zip(data.chunks(PANEL * input)) {
        for (lane, row) in rows.chunks_exact(input).enumerate() {
            for (values, &value) in panel.chunks_exact_mut(PANEL).zip(row) {
                values[lane] = value;
            }
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of the other devices, on the one that every machine has: Candle's own product.
    #[test]
    fn candle_and_the_packed_product_agree() {
        let (rows, out, input) = (5, 70, 300);
        let noise = |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * i) as f32).sin()).collect() };
        let x = Buf::from_vec("x", noise(rows * input), rows, input).unwrap();
        let data = noise(out * input);
        let packed = Weight::new(&Device::Cpu, data.clone(), out, input).unwrap();
        let tensor = Weight::on_device(&Device::Cpu, data, out, input).unwrap();
        assert!(matches!(tensor.values, Values::Device(_)));
        let results = [packed, tensor].map(|weight| {
            let mut y = Buf::zeros(rows, out);
            weight
                .apply(Threads::share_of(1), &x, rows, &mut y)
                .unwrap();
            let mut rows = Buf::zeros(4, input);
            weight.embed(&[9, 10, 79, 80], 10, &mut rows).unwrap();
            let y = y.range("y", 0..5).unwrap().to_vec();
            (y, rows.range("rows", 0..4).unwrap().to_vec())
        });
        let [(packed, packed_rows), (tensor, tensor_rows)] = results;
        assert_eq!(packed_rows, tensor_rows);
        for (a, b) in packed.iter().zip(&tensor) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
        assert!(packed.iter().any(|y| y.abs() > 1.0));
    }
}
