use std::ops::Range;
use std::sync::Arc;

use volley_ops::{Dtype, Error, KvDims, Result};

use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::params::BLOCK_TOKENS;

/// Device memory that is freed when dropped.
pub(crate) struct Memory {
    driver: Arc<dyn Driver>,
    address: Address,
}

impl Memory {
    pub fn new(driver: &Arc<dyn Driver>, op: &'static str, bytes: usize) -> Result<Self> {
        Ok(Self {
            address: driver.alloc(op, bytes.max(1)).map_err(in_op(op))?,
            driver: Arc::clone(driver),
        })
    }

    pub fn address(&self) -> Address {
        self.address
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

/// A matrix of rows in device memory: bf16 activations, or f32.
pub struct Buf {
    memory: Memory,
    rows: usize,
    width: usize,
    dtype: Dtype,
}

impl Buf {
    pub(crate) fn new(
        driver: &Arc<dyn Driver>,
        rows: usize,
        width: usize,
        dtype: Dtype,
    ) -> Result<Self> {
        Ok(Self {
            memory: Memory::new(driver, "alloc", rows * width * size_of_value(dtype))?,
            rows,
            width,
            dtype,
        })
    }

    /// Rows it has room for.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Format of a value.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn f32(&self) -> bool {
        self.dtype == Dtype::F32
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.width * size_of_value(self.dtype)
    }

    pub(crate) fn address(&self) -> Address {
        self.memory.address()
    }

    /// Address and bytes of a range of rows.
    pub(crate) fn range(&self, op: &'static str, rows: Range<usize>) -> Result<(Address, usize)> {
        if rows.start > rows.end || rows.end > self.rows {
            return Err(Error::Index {
                op,
                what: "end of rows",
                index: rows.end,
                len: self.rows + 1,
            });
        }
        let address = self.address() + (rows.start * self.row_bytes()) as u64;
        Ok((address, rows.len() * self.row_bytes()))
    }

    /// Its address, once it holds `rows` rows of `width` values of this format.
    pub(crate) fn view(
        &self,
        op: &'static str,
        what: &'static str,
        rows: usize,
        width: usize,
        dtype: Dtype,
    ) -> Result<Address> {
        if self.width == width && rows <= self.rows && self.dtype == dtype {
            return Ok(self.address());
        }
        Err(Error::Shape {
            op,
            what,
            expected: format!("at least {rows} x {width} {dtype:?}"),
            got: format!("{} x {} {:?}", self.rows, self.width, self.dtype),
        })
    }

    /// As [`Buf::view`], bf16.
    pub(crate) fn activation(
        &self,
        op: &'static str,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<Address> {
        self.view(op, what, rows, width, Dtype::Activation)
    }

    /// As [`Buf::view`], f32.
    pub(crate) fn float(
        &self,
        op: &'static str,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<Address> {
        self.view(op, what, rows, width, Dtype::F32)
    }

    /// As [`Buf::view`], either format.
    pub(crate) fn any(
        &self,
        op: &'static str,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<Address> {
        self.view(op, what, rows, width, self.dtype)
    }
}

fn size_of_value(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Activation => 2,
        Dtype::F32 => 4,
    }
}

/// The weight of a linear map, `[out, in]`, bf16, row-major.
pub struct Weight {
    pub(crate) memory: Memory,
    pub(crate) out: usize,
    pub(crate) input: usize,
}

impl Weight {
    /// Output features.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Input features.
    pub fn input(&self) -> usize {
        self.input
    }
}

/// One layer's paged cache, bf16: keys and values, each `[blocks, 16, kv_heads, head_dim]`.
pub struct Kv {
    pub(crate) keys: Memory,
    pub(crate) values: Memory,
    pub(crate) dims: KvDims,
    pub(crate) blocks: usize,
}

impl Kv {
    pub(crate) fn new(driver: &Arc<dyn Driver>, dims: KvDims, blocks: usize) -> Result<Self> {
        let bytes = blocks * BLOCK_TOKENS * dims.kv_heads * dims.head_dim * 2;
        let memory = || -> Result<Memory> {
            let memory = Memory::new(driver, "kv", bytes)?;
            driver.zero(memory.address(), bytes).map_err(in_op("kv"))?;
            Ok(memory)
        };
        Ok(Self {
            keys: memory()?,
            values: memory()?,
            dims,
            blocks,
        })
    }

    /// Where two blocks begin within the keys, or the values, and the bytes of one.
    pub(crate) fn block_copy(
        &self,
        op: &'static str,
        from: u32,
        to: u32,
    ) -> Result<(u64, u64, usize)> {
        if let Some(block) = [from, to].into_iter().find(|&b| b as usize >= self.blocks) {
            return Err(Error::Index {
                op,
                what: "block",
                index: block as usize,
                len: self.blocks,
            });
        }
        let bytes = BLOCK_TOKENS * self.dims.kv_heads * self.dims.head_dim * 2;
        let at = |block: u32| u64::from(block) * bytes as u64;
        Ok((at(from), at(to), bytes))
    }

    /// Shape of the cache.
    pub fn dims(&self) -> KvDims {
        self.dims
    }

    /// Blocks of the cache.
    pub fn blocks(&self) -> usize {
        self.blocks
    }
}
