use std::ops::Range;

use volley_ops::{Error, Result};

/// A matrix of f32 rows in host memory, whatever the device (see the crate's front page).
#[derive(Clone, Debug)]
pub struct Buf {
    data: Vec<f32>,
    rows: usize,
    width: usize,
}

impl Buf {
    pub(crate) fn zeros(rows: usize, width: usize) -> Self {
        let data = vec![0.0; rows * width];
        Self { data, rows, width }
    }

    /// `data` row-major; its length must be `rows * width`.
    pub(crate) fn from_vec(
        op: &'static str,
        data: Vec<f32>,
        rows: usize,
        width: usize,
    ) -> Result<Self> {
        check(op, "number of values", data.len(), rows * width)?;
        Ok(Self { data, rows, width })
    }

    /// Rows it has room for.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The first `rows` rows of a buffer that must be `width` wide.
    pub(crate) fn view(
        &self,
        op: &'static str,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<&[f32]> {
        self.fits(op, what, rows, width)?;
        Ok(&self.data[..rows * width])
    }

    /// As [`Buf::view`], to be written.
    pub(crate) fn view_mut(
        &mut self,
        op: &'static str,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<&mut [f32]> {
        self.fits(op, what, rows, width)?;
        Ok(&mut self.data[..rows * width])
    }

    /// All rows of a buffer that must be `width` wide.
    pub(crate) fn all(&self, op: &'static str, what: &'static str, width: usize) -> Result<&[f32]> {
        self.view(op, what, self.rows, width)
    }

    /// As [`Buf::all`], to be written.
    pub(crate) fn all_mut(
        &mut self,
        op: &'static str,
        what: &'static str,
        width: usize,
    ) -> Result<&mut [f32]> {
        self.view_mut(op, what, self.rows, width)
    }

    /// A range of rows.
    pub(crate) fn range(&self, op: &'static str, rows: Range<usize>) -> Result<&[f32]> {
        let rows = self.inside(op, rows)?;
        Ok(&self.data[rows.start * self.width..rows.end * self.width])
    }

    /// As [`Buf::range`], to be written.
    pub(crate) fn range_mut(&mut self, op: &'static str, rows: Range<usize>) -> Result<&mut [f32]> {
        let rows = self.inside(op, rows)?;
        Ok(&mut self.data[rows.start * self.width..rows.end * self.width])
    }

    /// Row `to` becomes row `from`.
    pub(crate) fn copy_row(&mut self, op: &'static str, from: usize, to: usize) -> Result<()> {
        check_index(op, "row", from, self.rows)?;
        check_index(op, "row", to, self.rows)?;
        let source = from * self.width..(from + 1) * self.width;
        self.data.copy_within(source, to * self.width);
        Ok(())
    }

    fn inside(&self, op: &'static str, rows: Range<usize>) -> Result<Range<usize>> {
        if rows.start > rows.end || rows.end > self.rows {
            return Err(Error::Index {
                op,
                what: "end of rows",
                index: rows.end,
                len: self.rows + 1,
            });
        }
        Ok(rows)
    }

    fn fits(&self, op: &'static str, what: &'static str, rows: usize, width: usize) -> Result<()> {
        if self.width == width && rows <= self.rows {
            return Ok(());
        }
        Err(Error::Shape {
            op,
            what,
            expected: format!("at least {rows} x {width}"),
            got: format!("{} x {}", self.rows, self.width),
        })
    }
}

/// An error unless two numbers agree.
pub(crate) fn check(
    op: &'static str,
    what: &'static str,
    got: usize,
    expected: usize,
) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        what,
        expected: expected.to_string(),
        got: got.to_string(),
    })
}

/// An error unless `index < len`.
pub(crate) fn check_index(
    op: &'static str,
    what: &'static str,
    index: usize,
    len: usize,
) -> Result<()> {
    if index < len {
        return Ok(());
    }
    Err(Error::Index {
        op,
        what,
        index,
        len,
    })
}
