//! Matrix products whose every element is summed in an order fixed by the depth alone, so that a
//! row's bits do not depend on how many rows are multiplied with it.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::simd::dispatch;

/// Columns that lie side by side when the right side is packed.
pub const PANEL: usize = 32;
/// Depth summed before it is added to the result: bounds the rounding error and fits the cache.
const DEPTH: usize = 256;
/// Rows of a tile of sums held in registers, and its vectors per row.
const ROWS: usize = 6;
const VECTORS: usize = 2;
/// Vectors of a single row: enough sums to keep the adders busy.
const ROW_VECTORS: usize = 4;

/// Rows of the left side: row `i` is `data[i * stride..][..depth]`.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub depth: usize,
}

/// The right side, `[depth, columns]`: row `k` is `data[k * stride..][..columns]`.
#[derive(Clone, Copy)]
pub struct Right<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub columns: usize,
}

/// `out = left right`, or `out += left right` when `add`: one slice per row, whose columns
/// `first..` are written. Up to a depth of [`DEPTH`] products are added to `out` one by one, so that
/// adding in two calls is adding in one.
pub fn multiply(left: Left, right: Right, add: bool, first: usize, out: &mut [&mut [f32]]) {
    dispatch(Multiply {
        left,
        right,
        add,
        first,
        out,
    });
}

/// What becomes of the values that `out` held.
#[derive(Clone, Copy, PartialEq)]
enum Add {
    /// Replaced.
    No,
    /// The first summand.
    OneByOne,
    /// Added to the finished sum.
    Sum,
}

struct Multiply<'a, 'o, 's> {
    left: Left<'a>,
    right: Right<'a>,
    add: bool,
    first: usize,
    out: &'o mut [&'s mut [f32]],
}

impl WithSimd for Multiply<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let columns = self.right.columns;
        if self.left.depth == 0 && !self.add {
            for row in &mut *self.out {
                row[self.first..self.first + columns].fill(0.0);
            }
        }
        for start in (0..self.left.depth).step_by(DEPTH) {
            let depth = start..(start + DEPTH).min(self.left.depth);
            let add = match (start, self.add) {
                (0, false) => Add::No,
                (0, true) => Add::OneByOne,
                _ => Add::Sum,
            };
            let mut column = 0;
            if self.out.len() == 1 {
                while column + ROW_VECTORS * S::F32_LANES <= columns {
                    self.tile::<S, 1, ROW_VECTORS>(simd, depth.clone(), 0, column, add);
                    column += ROW_VECTORS * S::F32_LANES;
                }
            }
            while column + VECTORS * S::F32_LANES <= columns {
                self.strip::<S, VECTORS>(simd, depth.clone(), column, add);
                column += VECTORS * S::F32_LANES;
            }
            while column + S::F32_LANES <= columns {
                self.strip::<S, 1>(simd, depth.clone(), column, add);
                column += S::F32_LANES;
            }
            for column in column..columns {
                self.single_column(depth.clone(), column, add);
            }
        }
    }
}

impl Multiply<'_, '_, '_> {
    /// All rows of `V` vectors of columns.
    #[inline(always)]
    fn strip<S: Simd, const V: usize>(
        &mut self,
        simd: S,
        depth: Range<usize>,
        column: usize,
        add: Add,
    ) {
        let mut row = 0;
        while row + ROWS <= self.out.len() {
            self.tile::<S, ROWS, V>(simd, depth.clone(), row, column, add);
            row += ROWS;
        }
        match self.out.len() - row {
            5 => self.tile::<S, 5, V>(simd, depth, row, column, add),
            4 => self.tile::<S, 4, V>(simd, depth, row, column, add),
            3 => self.tile::<S, 3, V>(simd, depth, row, column, add),
            2 => self.tile::<S, 2, V>(simd, depth, row, column, add),
            1 => self.tile::<S, 1, V>(simd, depth, row, column, add),
            _ => {}
        }
    }

    #[inline(always)]
    fn left_row(&self, row: usize, depth: &Range<usize>) -> &[f32] {
        &self.left.data[row * self.left.stride + depth.start..][..depth.len()]
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        depth: Range<usize>,
        row: usize,
        column: usize,
        add: Add,
    ) {
        let (right, width) = (self.right, V * S::F32_LANES);
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        let columns = self.first + column..self.first + column + width;
        if add == Add::OneByOne {
            for (out, sums) in self.out[row..].iter().zip(&mut sums) {
                let (out, _) = S::as_simd_f32s(&out[columns.clone()]);
                sums.copy_from_slice(out);
            }
        }
        {
            let len = depth.len();
            let mut left = [&[][..]; R];
            for (r, left) in left.iter_mut().enumerate() {
                *left = &self.left_row(row + r, &depth)[..len];
            }
            let right_rows = right.data[depth.start * right.stride + column..].chunks(right.stride);
            for (k, values) in (0..len).zip(right_rows) {
                let (values, _) = S::as_simd_f32s(&values[..width]);
                for r in 0..R {
                    let x = simd.splat_f32s(left[r][k]);
                    for v in 0..V {
                        sums[r][v] = simd.mul_add_e_f32s(x, values[v], sums[r][v]);
                    }
                }
            }
        }
        for (out, sums) in self.out[row..].iter_mut().zip(&sums) {
            let (out, _) = S::as_mut_simd_f32s(&mut out[columns.clone()]);
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = match add {
                    Add::Sum => simd.add_f32s(*out, sum),
                    _ => sum,
                };
            }
        }
    }

    #[inline(always)]
    fn single_column(&mut self, depth: Range<usize>, column: usize, add: Add) {
        for row in 0..self.out.len() {
            let left = self.left_row(row, &depth).iter();
            let right = self.right.data[column..].iter().step_by(self.right.stride);
            let products = left.zip(right.skip(depth.start)).map(|(x, w)| x * w);
            let out = self.out[row][self.first + column];
            self.out[row][self.first + column] = match add {
                Add::No => products.sum(),
                Add::OneByOne => products.fold(out, |sum, product| sum + product),
                Add::Sum => out + products.sum::<f32>(),
            };
        }
    }
}
