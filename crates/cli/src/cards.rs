//! Models that are known without their files (models/cards).

use std::borrow::Cow;

use serde_json::Value;
use volley_model::{Checkpoint, TargetConfig};

use crate::demo;
use crate::error::{Error, Result};

/// What is known of a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name on the command line, in small letters.
    pub name: &'static str,
    json: &'static str,
}

macro_rules! cards {
    ($($name:literal),* $(,)?) => {
        /// All cards.
        pub const CARDS: &[Card] = &[$(Card {
            name: $name,
            json: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/../../models/cards/", $name, ".json"
            )),
        }),*];
    };
}

cards!(
    "qwen3.6-27b",
    "qwen3.5-27b",
    "qwen3.5-9b",
    "qwen3.5-4b",
    "qwen3.5-0.8b"
);

/// The card of this name, in letters of any size.
pub fn find(name: &str) -> Option<&'static Card> {
    let same = |card: &&Card| card.name.eq_ignore_ascii_case(name);
    CARDS.iter().find(same)
}

impl Card {
    fn field(&self, name: &str) -> Value {
        let card: Value = serde_json::from_str(self.json)
            .expect("cards are JSON, which a test sees to: this is a bug");
        card[name].clone()
    }

    /// What is assumed of the model rather than known.
    pub fn guesses(&self) -> Vec<String> {
        let guesses = self.field("guessed");
        let texts = guesses.as_array().into_iter().flatten();
        texts
            .filter_map(|g| g.as_str().map(str::to_owned))
            .collect()
    }

    /// The target with random weights, and the tokenizer and chat template of the demo model.
    pub fn target(&self) -> Result<Checkpoint> {
        let mut texts = vec![
            text("config.json", &self.field("target")),
            text("generation_config.json", &self.field("generation")),
        ];
        for name in ["tokenizer.json", "chat_template.jinja"] {
            if let Some(bytes) = demo::text(name) {
                texts.push((name.to_string(), Cow::Borrowed(bytes)));
            }
        }
        Ok(Checkpoint::dummy_target(texts)?)
    }

    /// Its DFlash drafter with random weights.
    pub fn drafter(&self, target: &TargetConfig) -> Result<Checkpoint> {
        let texts = vec![text("config.json", &self.field("drafter"))];
        Ok(Checkpoint::dummy_drafter(texts, target)?)
    }
}

fn text(name: &str, value: &Value) -> (String, Cow<'static, [u8]>) {
    (name.to_string(), Cow::Owned(value.to_string().into_bytes()))
}

/// The folder's texts with random weights.
pub fn dummy_folder(path: &std::path::Path) -> Result<Vec<(String, Cow<'static, [u8]>)>> {
    let mut texts = Vec::new();
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let path = path.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => texts.push((name.to_string(), Cow::Owned(bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Read { path, source }),
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use volley_model::DrafterConfig;

    use super::*;

    /// Parameters that are known of the models, in millions.
    const MILLIONS: [(&str, usize); 2] = [("qwen3.6-27b", 26_896), ("qwen3.5-27b", 26_896)];

    #[test]
    fn every_card_is_a_pair_that_fits() {
        for card in CARDS {
            let target = card.target().unwrap();
            let config = TargetConfig::read(&target).unwrap();
            let drafter = card.drafter(&config).unwrap();
            let drafter = DrafterConfig::read(&drafter, Some(&config)).unwrap();
            drafter.check_target(&config).unwrap();
            assert_eq!(drafter.guesses, Vec::<String>::new(), "{}", card.name);
            assert_eq!(config.eos, [248_046, 248_044], "{}", card.name);
        }
    }

    #[test]
    fn the_27b_have_the_parameters_of_the_27b() {
        for (name, millions) in MILLIONS {
            let target = find(name).unwrap().target().unwrap();
            let text = target.tensors().filter(|t| !t.name().starts_with("mtp."));
            let parameters: usize = text.map(|tensor| tensor.len()).sum();
            assert_eq!(parameters / 1_000_000 + 1, millions, "{name}: {parameters}");
        }
        let config = TargetConfig::read(&find("Qwen3.6-27B").unwrap().target().unwrap()).unwrap();
        let drafter = find("qwen3.6-27b").unwrap().drafter(&config).unwrap();
        let parameters: usize = drafter.tensors().map(|tensor| tensor.len()).sum();
        assert_eq!(parameters, 1_730_213_120);
    }

    #[test]
    fn unknown_names_have_no_card() {
        assert_eq!(find("qwen2-7b"), None);
    }
}
