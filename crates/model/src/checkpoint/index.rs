use std::collections::BTreeMap;

use super::INDEX;
use super::file::Bytes;
use crate::{Error, Result};

#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn parse(text: &str) -> Result<Index> {
    serde_json::from_str(text).map_err(|e| Error::Text {
        file: INDEX.to_string(),
        message: e.to_string(),
    })
}

/// Every file that the index names must be there.
pub(super) fn check_files(text: &str, files: &[(String, Bytes)]) -> Result<()> {
    for (tensor, file) in parse(text)?.weight_map {
        if !files.iter().any(|(name, _)| *name == file) {
            return Err(Error::IndexedFile {
                index: INDEX.to_string(),
                tensor,
                file,
            });
        }
    }
    Ok(())
}

/// Every tensor must be in the file that the index names.
pub(super) fn check_tensors<'a>(
    text: &str,
    file_of: impl Fn(&str) -> Option<&'a str>,
) -> Result<()> {
    for (tensor, file) in parse(text)?.weight_map {
        if file_of(&tensor) != Some(file.as_str()) {
            return Err(Error::IndexedTensor {
                index: INDEX.to_string(),
                tensor,
                file,
            });
        }
    }
    Ok(())
}
