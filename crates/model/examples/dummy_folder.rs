//! Writes a folder of the tensors that a config.json asks for, with values that are made up, to
//! measure how long a model of that size takes to load:
//!
//! `cargo run --release -p volley-model --example dummy_folder -- CONFIG_FOLDER OUT_FOLDER`

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use volley_model::Checkpoint;

/// Bytes of a file, about.
const FILE_BYTES: usize = 5 << 30;
/// Bytes that are repeated.
const NOISE_BYTES: usize = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &folders[..] else {
        return Err("give a folder with a config.json, and one to write".into());
    };
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(".json") && !name.ends_with("index.json") {
            std::fs::create_dir_all(to)?;
            std::fs::copy(&path, Path::new(to).join(&name))?;
            texts.push((name, Cow::Owned(std::fs::read(&path)?)));
        }
    }
    let model = Checkpoint::dummy_target(texts)?;
    let tensors: Vec<(String, Vec<usize>)> = model
        .tensors()
        .map(|t| (t.name().to_string(), t.shape().to_vec()))
        .collect();
    let noise = noise();
    let mut rest = &tensors[..];
    let mut index = 0;
    while !rest.is_empty() {
        let mut bytes = 0;
        let end = rest.iter().position(|(_, shape)| {
            bytes += 2 * shape.iter().product::<usize>();
            bytes > FILE_BYTES
        });
        let (now, behind) = rest.split_at(end.unwrap_or(rest.len()).max(1));
        write(
            &Path::new(to).join(format!("model-{index:05}.safetensors")),
            now,
            &noise,
        )?;
        (rest, index) = (behind, index + 1);
    }
    println!("{:.2} GB in {index} files", model.bytes() as f64 / 1e9);
    Ok(())
}

/// Small bf16 numbers.
fn noise() -> Vec<u8> {
    let mut state = 1u32;
    let number = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * 0.02;
        ((x.to_bits() >> 16) as u16).to_le_bytes()
    };
    (0..NOISE_BYTES / 2).flat_map(number).collect()
}

fn write(
    path: &Path,
    tensors: &[(String, Vec<usize>)],
    noise: &[u8],
) -> Result<(), Box<dyn Error>> {
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let begin = end;
        end += 2 * shape.iter().product::<usize>();
        let entry = json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]});
        header.insert(name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = BufWriter::with_capacity(16 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut left = end;
    while left > 0 {
        let piece = left.min(noise.len());
        file.write_all(&noise[..piece])?;
        left -= piece;
    }
    Ok(file.flush()?)
}
