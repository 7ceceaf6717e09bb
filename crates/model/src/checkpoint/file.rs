use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;

use crate::{Error, Result};

/// Bytes of a file, mapped or held in memory.
pub(super) enum Bytes {
    Mapped(Mmap),
    Memory(Cow<'static, [u8]>),
    /// There are none: the values are made up.
    MadeUp,
}

impl Bytes {
    pub(super) fn map(path: &Path) -> Result<Self> {
        let io = |source| Error::Io {
            path: path.to_path_buf(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(Self::Memory(Cow::Borrowed(&[])));
        }
        // SAFETY: the map is read-only. As with every mapped file, nobody may truncate it meanwhile.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self::Mapped(map))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Memory(bytes) => bytes,
            Self::MadeUp => &[],
        }
    }
}

/// Where a tensor lies within its file.
pub(super) struct Entry {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Range<usize>,
}

const LENGTH_BYTES: usize = 8;
const MAX_HEADER_BYTES: usize = 100_000_000;

/// Reads the header of a safetensors file and checks every tensor's range against the file.
pub(super) fn entries(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, Entry>> {
    let fail = |message: String| Error::Header {
        file: file.to_string(),
        message,
    };
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or_else(|| {
        fail(format!(
            "truncated: {} bytes are too few for a safetensors file",
            bytes.len()
        ))
    })?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > MAX_HEADER_BYTES {
        return Err(fail(format!(
            "not a safetensors file: header length {length} is over {MAX_HEADER_BYTES}"
        )));
    }
    let header = rest.get(..length).ok_or_else(|| {
        fail(format!(
            "truncated: the header has {length} bytes, the file ends after {}",
            rest.len()
        ))
    })?;
    let mut header: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header)
        .map_err(|e| fail(format!("header is not valid JSON: {e}")))?;
    header.remove("__metadata__");
    let data = LENGTH_BYTES + length;
    header
        .into_iter()
        .map(|(tensor, value)| {
            let info: TensorInfo = serde_json::from_value(value)
                .map_err(|e| fail(format!("header entry of tensor {tensor}: {e}")))?;
            let entry = entry(file, &tensor, info, data, bytes.len())?;
            Ok((tensor, entry))
        })
        .collect()
}

fn entry(file: &str, tensor: &str, info: TensorInfo, data: usize, len: usize) -> Result<Entry> {
    let (start, end) = info.data_offsets;
    let needed = info
        .shape
        .iter()
        .try_fold(info.dtype.bitsize(), |bits, &n| bits.checked_mul(n))
        .map_or(usize::MAX, |bits| bits.div_ceil(8));
    let found = end.saturating_sub(start);
    if needed != found {
        return Err(Error::Range {
            file: file.to_string(),
            tensor: tensor.to_string(),
            shape: info.shape,
            dtype: format!("{:?}", info.dtype),
            needed,
            found,
        });
    }
    let needed = data.saturating_add(end);
    if needed > len {
        return Err(Error::Truncated {
            file: file.to_string(),
            tensor: tensor.to_string(),
            needed,
            found: len,
        });
    }
    Ok(Entry {
        dtype: info.dtype,
        shape: info.shape,
        bytes: data + start..data + end,
    })
}
