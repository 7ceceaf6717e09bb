//! Checkpoints that differ from a fixture in one thing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};
use volley_model::Checkpoint;

use crate::golden::path;

/// The files of a fixture folder by name.
pub type Files = BTreeMap<String, Vec<u8>>;

pub fn files(folder: &str) -> Files {
    let entries = std::fs::read_dir(path(folder)).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

pub fn checkpoint(files: Files) -> volley_model::Result<Checkpoint> {
    let files = files
        .into_iter()
        .map(|(name, bytes)| (name, Cow::Owned(bytes)));
    Checkpoint::from_memory(files.collect())
}

/// A fixture held in memory.
pub fn memory(folder: &str) -> Checkpoint {
    checkpoint(files(folder)).unwrap()
}

/// A JSON file with fields set (dots lead into objects) or, for `null`, removed.
pub fn set_fields(text: &[u8], changes: &[(&str, &str)]) -> Vec<u8> {
    let mut root: Map<String, Value> = serde_json::from_slice(text).unwrap();
    for (path, value) in changes {
        let mut keys: Vec<&str> = path.split('.').collect();
        let last = keys.pop().unwrap();
        let mut object = &mut root;
        for key in keys {
            let entry = object
                .entry(key)
                .or_insert_with(|| Value::Object(Map::new()));
            object = entry.as_object_mut().unwrap();
        }
        match serde_json::from_str(value).unwrap() {
            Value::Null => object.remove(last),
            value => object.insert(last.to_string(), value),
        };
    }
    serde_json::to_vec(&root).unwrap()
}

/// A fixture with changed fields of config.json.
pub fn edited(folder: &str, changes: &[(&str, &str)]) -> Checkpoint {
    let mut files = files(folder);
    let config = set_fields(&files["config.json"], changes);
    files.insert("config.json".to_string(), config);
    checkpoint(files).unwrap()
}

/// A tensor taken out of a safetensors file: number format, shape, bytes.
#[derive(Clone)]
pub struct Raw {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

pub type Tensors = BTreeMap<String, Raw>;

pub fn unpack(file: &[u8]) -> Tensors {
    let all = safetensors::SafeTensors::deserialize(file).unwrap();
    let raw = |(name, view): (String, safetensors::tensor::TensorView)| {
        let raw = Raw {
            dtype: format!("{:?}", view.dtype()),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        (name, raw)
    };
    all.tensors().into_iter().map(raw).collect()
}

/// A safetensors file, written without any check.
pub fn pack(tensors: &Tensors) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, raw) in tensors {
        let start = data.len();
        data.extend(&raw.bytes);
        let entry = serde_json::json!({
            "dtype": raw.dtype, "shape": raw.shape, "data_offsets": [start, data.len()],
        });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

/// A fixture with changed tensors in one of its files.
pub fn repacked(folder: &str, file: &str, change: impl FnOnce(&mut Tensors)) -> Files {
    let mut files = files(folder);
    let mut tensors = unpack(&files[file]);
    change(&mut tensors);
    files.insert(file.to_string(), pack(&tensors));
    files
}
