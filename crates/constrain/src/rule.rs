use llguidance::api::TopLevelGrammar;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::vocabulary::Vocabulary;
use crate::{Error, ebnf, nesting, numbers};

/// What an output is held to.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Any JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// An object, or true for any JSON.
        schema: Value,
        /// Words that cannot be enforced are an error; without, they are left out.
        strict: bool,
    },
    /// Text that the regular expression matches as a whole.
    Regex(String),
    /// Text of a grammar in Lark's form, or in EBNF with `::=`.
    Grammar(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Calls of tools.
    Calls(Calls),
}

impl Rule {
    /// The library's grammar of this rule. `relaxed` leaves out what only narrows the arguments of
    /// functions that are not strict.
    pub(crate) fn grammar(
        &self,
        vocabulary: &Vocabulary,
        relaxed: bool,
    ) -> Result<TopLevelGrammar, Error> {
        let lark = match self {
            Self::Grammar(text) => {
                nesting::check(text)?;
                ebnf::to_lark(text)?
            }
            Self::Calls(calls) => calls.to_lark(vocabulary, relaxed)?,
            other => format!("start: answer\nanswer: {}\n", other.expression()?),
        };
        Ok(TopLevelGrammar::from_lark(lark))
    }

    /// The rule as the right side of a rule in Lark.
    pub(crate) fn expression(&self) -> Result<String, Error> {
        match self {
            Self::JsonObject => json_expression(&json!({"type": "object"}), false),
            Self::JsonSchema { schema, strict } => json_expression(schema, *strict),
            Self::Regex(pattern) => {
                nesting::check(pattern)?;
                Ok(regex_terminal(pattern))
            }
            Self::Grammar(text) => {
                nesting::check(text)?;
                Ok(format!("%lark {{\n{}\n}}", ebnf::to_lark(text)?))
            }
            Self::Choice(texts) => {
                let quoted: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                Ok(quoted.join(" | "))
            }
            Self::Calls(_) => Err(Error::Rule("calls cannot be part of a rule".to_owned())),
        }
    }
}

/// JSON of a schema, with bounded runs of white space.
pub(crate) fn json_expression(schema: &Value, strict: bool) -> Result<String, Error> {
    let mut words = match numbers::tamed(schema, strict)? {
        Value::Object(words) => words,
        _ => serde_json::Map::new(),
    };
    let options = json!({
        "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,40}",
        "coerce_one_of": !strict,
        "lenient": !strict,
    });
    words.insert("x-guidance".to_owned(), options);
    Ok(format!("%json {}", Value::Object(words)))
}

/// A text as a string of Lark.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A regular expression as a terminal of Lark.
pub(crate) fn regex_terminal(pattern: &str) -> String {
    format!("/{}/", regex_to_lark(pattern, ""))
}
