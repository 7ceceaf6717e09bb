//! Matrix products whose every element is summed in an order fixed by the depth alone, so that a
//! row's bits do not depend on how many rows are multiplied with it.

use crate::simd::{Kernel, MulAdd, dispatch};

/// Columns computed together when the right side is packed.
pub const PANEL: usize = 32;
/// Depth summed before it is added to the result: bounds the rounding error and fits the cache.
const DEPTH: usize = 256;
/// Rows and columns held in registers.
const ROWS: usize = 6;
const COLUMNS: usize = 16;

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

/// `out = left right`, or `out += left right`; one slice of `right.columns` values per row.
pub fn multiply(left: Left, right: Right, add: bool, out: &mut [&mut [f32]]) {
    let first = 0;
    dispatch(Multiply {
        left,
        right,
        add,
        out,
        first,
    });
}

/// Columns `first..` of a larger product; `right` has room for whole panels.
pub fn multiply_panel(left: Left, right: Right, first: usize, out: &mut [&mut [f32]]) {
    let add = false;
    dispatch(Multiply {
        left,
        right,
        add,
        out,
        first,
    });
}

struct Multiply<'a, 'o, 's> {
    left: Left<'a>,
    right: Right<'a>,
    add: bool,
    out: &'o mut [&'s mut [f32]],
    /// Column of `out` that the first column of `right` goes to.
    first: usize,
}

impl Kernel for Multiply<'_, '_, '_> {
    #[inline(always)]
    fn run<M: MulAdd>(mut self) {
        if self.left.depth == 0 && !self.add {
            let columns = self.first..self.first + self.right.columns;
            self.out
                .iter_mut()
                .for_each(|row| row[columns.clone()].fill(0.0));
        }
        for start in (0..self.left.depth).step_by(DEPTH) {
            let depth = start..(start + DEPTH).min(self.left.depth);
            let add = self.add || start > 0;
            let mut column = 0;
            // One row alone needs more columns to keep the adders busy.
            if self.out.len() == 1 {
                while column + PANEL <= self.right.columns {
                    self.tile::<M, 1, PANEL>(depth.clone(), 0, column, add);
                    column += PANEL;
                }
            }
            while column + COLUMNS <= self.right.columns {
                self.rows::<M, COLUMNS>(depth.clone(), column, add);
                column += COLUMNS;
            }
            while column < self.right.columns {
                self.rows::<M, 1>(depth.clone(), column, add);
                column += 1;
            }
        }
    }
}

impl Multiply<'_, '_, '_> {
    #[inline(always)]
    fn rows<M: MulAdd, const N: usize>(
        &mut self,
        depth: std::ops::Range<usize>,
        column: usize,
        add: bool,
    ) {
        let mut row = 0;
        while row + ROWS <= self.out.len() {
            self.tile::<M, ROWS, N>(depth.clone(), row, column, add);
            row += ROWS;
        }
        match self.out.len() - row {
            5 => self.tile::<M, 5, N>(depth, row, column, add),
            4 => self.tile::<M, 4, N>(depth, row, column, add),
            3 => self.tile::<M, 3, N>(depth, row, column, add),
            2 => self.tile::<M, 2, N>(depth, row, column, add),
            1 => self.tile::<M, 1, N>(depth, row, column, add),
            _ => {}
        }
    }

    #[inline(always)]
    fn tile<M: MulAdd, const R: usize, const N: usize>(
        &mut self,
        depth: std::ops::Range<usize>,
        row: usize,
        column: usize,
        add: bool,
    ) {
        let (left, right) = (self.left, self.right);
        let len = depth.len();
        let left: [&[f32]; R] =
            std::array::from_fn(|r| &left.data[(row + r) * left.stride + depth.start..][..len]);
        let data = &right.data[depth.start * right.stride + column..];
        let mut sums = [[0.0f32; N]; R];
        for k in 0..len {
            let values: &[f32; N] = data[k * right.stride..][..N]
                .try_into()
                .expect("a slice of N values: this is a bug");
            for r in 0..R {
                for n in 0..N {
                    sums[r][n] = M::mul_add(left[r][k], values[n], sums[r][n]);
                }
            }
        }
        let column = self.first + column;
        for (out, sums) in self.out[row..].iter_mut().zip(&sums) {
            let out = &mut out[column..column + N];
            if add {
                out.iter_mut().zip(sums).for_each(|(o, s)| *o += s);
            } else {
                out.copy_from_slice(sums);
            }
        }
    }
}
