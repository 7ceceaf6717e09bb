//! Weights and text files of a model, in a folder, a single file or memory. Weights are mapped:
//! only what is read of a tensor is loaded.

mod file;
mod index;
mod tensor;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use file::{Bytes, Entry};
pub use tensor::Tensor;

use crate::{DrafterConfig, Error, Result, TargetConfig, manifest};

const WEIGHTS: &str = ".safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A model as it lies on disk or in memory.
pub struct Checkpoint {
    place: String,
    texts: Texts,
    files: Vec<(String, Bytes)>,
    tensors: BTreeMap<String, (usize, Entry)>,
}

enum Texts {
    /// Read from the folder when asked for.
    Folder(PathBuf),
    /// Held.
    Memory(BTreeMap<String, Cow<'static, [u8]>>),
}

impl Checkpoint {
    /// Opens a folder with every `.safetensors` file in it (those of the index and extra ones such
    /// as `mtp.safetensors`), or one bare `.safetensors` file, which then has no config.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io {
            path: path.to_path_buf(),
            source,
        };
        let place = path.display().to_string();
        if std::fs::metadata(path).map_err(io)?.is_file() {
            let name = file_name(path);
            let files = vec![(name, Bytes::map(path)?)];
            return Self::new(place, Texts::Memory(BTreeMap::new()), files);
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.is_file() && file_name(&path).ends_with(WEIGHTS) {
                paths.push(path);
            }
        }
        paths.sort();
        let files = paths
            .iter()
            .map(|path| Ok((file_name(path), Bytes::map(path)?)))
            .collect::<Result<_>>()?;
        Self::new(place, Texts::Folder(path.to_path_buf()), files)
    }

    /// A checkpoint embedded in the program: the files of a folder, by name.
    pub fn from_memory(files: Vec<(String, Cow<'static, [u8]>)>) -> Result<Self> {
        let (weights, texts): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(name, _)| name.ends_with(WEIGHTS));
        let weights = weights
            .into_iter()
            .map(|(name, bytes)| (name, Bytes::Memory(bytes)))
            .collect();
        let texts = Texts::Memory(texts.into_iter().collect());
        Self::new("embedded checkpoint".to_string(), texts, weights)
    }

    /// A target without files: the texts of a folder, and every tensor of its config with values
    /// that are made up.
    pub fn dummy_target(texts: Vec<(String, Cow<'static, [u8]>)>) -> Result<Self> {
        let mut checkpoint = Self::texts_only(texts);
        let config = TargetConfig::read(&checkpoint)?;
        let mut specs = manifest::target(&config);
        if config.mtp_layers > 0 {
            specs.extend(manifest::mtp(&config));
        }
        checkpoint.make_up(specs);
        Ok(checkpoint)
    }

    /// As [`Checkpoint::dummy_target`], a drafter for this target.
    pub fn dummy_drafter(
        texts: Vec<(String, Cow<'static, [u8]>)>,
        target: &TargetConfig,
    ) -> Result<Self> {
        let mut checkpoint = Self::texts_only(texts);
        let config = DrafterConfig::read(&checkpoint, Some(target))?;
        checkpoint.make_up(manifest::drafter(&config.shapes));
        Ok(checkpoint)
    }

    fn texts_only(texts: Vec<(String, Cow<'static, [u8]>)>) -> Self {
        Self {
            place: "dummy weights".to_string(),
            texts: Texts::Memory(texts.into_iter().collect()),
            files: vec![("dummy".to_string(), Bytes::MadeUp)],
            tensors: BTreeMap::new(),
        }
    }

    fn make_up(&mut self, specs: Vec<manifest::Spec>) {
        let entry = |spec: manifest::Spec| {
            let entry = Entry {
                dtype: safetensors::Dtype::BF16,
                shape: spec.shape,
                bytes: 0..0,
            };
            (spec.name, (0, entry))
        };
        self.tensors = specs.into_iter().map(entry).collect();
    }

    /// Whether its values are made up.
    pub fn is_dummy(&self) -> bool {
        self.files
            .iter()
            .any(|(_, bytes)| matches!(bytes, Bytes::MadeUp))
    }

    fn new(place: String, texts: Texts, files: Vec<(String, Bytes)>) -> Result<Self> {
        let mut checkpoint = Self {
            place,
            texts,
            files,
            tensors: BTreeMap::new(),
        };
        if let Some(text) = checkpoint.text(INDEX)? {
            index::check_files(&text, &checkpoint.files)?;
        }
        if checkpoint.files.is_empty() {
            return Err(Error::NoWeights {
                place: checkpoint.place,
            });
        }
        for (i, (name, bytes)) in checkpoint.files.iter().enumerate() {
            for (tensor, entry) in file::entries(name, bytes.as_slice())? {
                if let Some((first, _)) = checkpoint.tensors.get(&tensor) {
                    return Err(Error::Duplicate {
                        tensor,
                        first: checkpoint.files[*first].0.clone(),
                        second: name.clone(),
                    });
                }
                checkpoint.tensors.insert(tensor, (i, entry));
            }
        }
        if let Some(text) = checkpoint.text(INDEX)? {
            index::check_tensors(&text, |tensor| checkpoint.tensor(tensor).map(|t| t.file()))?;
        }
        Ok(checkpoint)
    }

    /// Path, or words for a checkpoint in memory: for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Content of a text file such as `config.json`; `None` when there is none.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        let bytes = match &self.texts {
            Texts::Memory(texts) => match texts.get(name) {
                Some(bytes) => bytes.to_vec(),
                None => return Ok(None),
            },
            Texts::Folder(folder) => {
                let path = folder.join(name);
                match std::fs::read(&path) {
                    Ok(bytes) => bytes,
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    Err(source) => return Err(Error::Io { path, source }),
                }
            }
        };
        let text = String::from_utf8(bytes).map_err(|e| Error::Text {
            file: name.to_string(),
            message: format!("is not UTF-8: {e}"),
        })?;
        Ok(Some(text))
    }

    /// Names of the weight files, in reading order.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, _)| name.as_str())
    }

    /// All tensors by name.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.tensors
            .iter()
            .map(|(name, (file, entry))| self.view(name, *file, entry))
    }

    /// Bytes of all tensors at their number formats, those that are made up too.
    pub fn bytes(&self) -> usize {
        let bits = self.tensors().map(|t| t.len() * t.dtype().bitsize());
        bits.sum::<usize>() / 8
    }

    /// A tensor by its name in the file.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let (name, (file, entry)) = self.tensors.get_key_value(name)?;
        Some(self.view(name, *file, entry))
    }

    fn view<'a>(&'a self, name: &'a str, file: usize, entry: &'a Entry) -> Tensor<'a> {
        let (file, bytes) = &self.files[file];
        Tensor {
            name,
            file,
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: match bytes {
                Bytes::MadeUp => None,
                bytes => Some(&bytes.as_slice()[entry.bytes.clone()]),
            },
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
