//! Grammars with `name ::= …` (llama.cpp's GBNF, xgrammar's EBNF) as Lark.

use std::collections::HashMap;

use crate::Error;

/// The grammar in Lark's form; text without `::=` is taken for Lark already.
pub(crate) fn to_lark(text: &str) -> Result<String, Error> {
    if !text.contains("::=") {
        return Ok(text.to_owned());
    }
    let pieces = pieces(text)?;
    let mut names = Names::default();
    let mut rules: Vec<String> = Vec::new();
    let mut index = 0;
    while index < pieces.len() {
        let begins_rule = matches!(pieces.get(index + 1), Some(Piece::Defines));
        match &pieces[index] {
            Piece::Name(name) if begins_rule => {
                if names.defined.contains_key(name) {
                    return Err(Error::Rule(format!("rule {name:?} is defined twice")));
                }
                let lark = names.lark(name);
                names.defined.insert(name.clone(), ());
                rules.push(format!("{lark}:"));
                index += 2;
                continue;
            }
            Piece::Defines => return Err(Error::Rule("::= without a name before it".to_owned())),
            piece => {
                let word = match piece {
                    Piece::Name(name) => names.lark(name),
                    Piece::Other(text) => text.clone(),
                    Piece::Defines => String::new(),
                };
                let Some(rule) = rules.last_mut() else {
                    return Err(Error::Rule(format!("{word} stands before the first rule")));
                };
                rule.push(' ');
                rule.push_str(&word);
            }
        }
        index += 1;
    }
    names.check()?;
    Ok(rules.join("\n") + "\n")
}

enum Piece {
    Name(String),
    Defines,
    /// As Lark writes it.
    Other(String),
}

/// Names in EBNF may hold characters that Lark's may not.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, usize>,
    defined: HashMap<String, ()>,
}

impl Names {
    fn lark(&mut self, name: &str) -> String {
        let next = self.numbers.len();
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        match name {
            "root" => "start".to_owned(),
            _ => format!("r{number}"),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let missing = |name: &&String| !self.defined.contains_key(*name);
        match self.numbers.keys().filter(missing).min() {
            Some(name) => Err(Error::Rule(format!("rule {name:?} is not defined"))),
            None if self.defined.contains_key("root") => Ok(()),
            None => Err(Error::Rule("there is no rule \"root\"".to_owned())),
        }
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '[' => {
                let close = if first == '"' { '"' } else { ']' };
                let len = quoted(rest, close)?;
                let word = &rest[..len];
                pieces.push(Piece::Other(match first {
                    '"' => word.to_owned(),
                    _ => format!("/{}/", word.replace('/', "\\/")),
                }));
                len
            }
            ':' if rest.starts_with("::=") => {
                pieces.push(Piece::Defines);
                3
            }
            '.' => {
                pieces.push(Piece::Other("/(?s:.)/".to_owned()));
                1
            }
            '{' => {
                let len = quoted(rest, '}')?;
                pieces.push(Piece::Other(rest[..len].to_owned()));
                len
            }
            '(' | ')' | '|' | '*' | '+' | '?' => {
                pieces.push(Piece::Other(first.to_string()));
                1
            }
            c if c.is_whitespace() => c.len_utf8(),
            c if c.is_ascii_alphabetic() || c == '_' => {
                let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let len = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
                pieces.push(Piece::Name(rest[..len].to_owned()));
                len
            }
            c => return Err(Error::Rule(format!("{c:?} means nothing in a grammar"))),
        };
        rest = &rest[len..];
    }
    Ok(pieces)
}

/// Length of a quoted piece at the start of `text`, both ends included; backslashes escape.
fn quoted(text: &str, close: char) -> Result<usize, Error> {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == close {
            return Ok(index + close.len_utf8());
        }
    }
    let start: String = text.chars().take(20).collect();
    Err(Error::Rule(format!("{start:?} has no {close:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_comments_and_classes_are_carried_over() {
        let text =
            "# a sum\nroot ::= Num-1 (\"+\" Num-1)* |\n  \"none\"\nNum-1 ::= [0-9/]{1,3} .\n";
        let lark = "start: r1 ( \"+\" r1 ) * | \"none\"\nr1: /[0-9\\/]/ {1,3} /(?s:.)/\n";
        assert_eq!(to_lark(text).unwrap(), lark);
        assert_eq!(to_lark("start: \"a\"").unwrap(), "start: \"a\"");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, reason) in [
            (
                "root ::= \"a\"\nroot ::= \"b\"",
                "\"root\" is defined twice",
            ),
            ("root ::= a", "\"a\" is not defined"),
            ("a ::= \"a\"", "no rule \"root\""),
            ("\"a\" root ::= \"b\"", "before the first rule"),
            ("root ::= \"a", "has no '\"'"),
            ("root ::= ::= \"a\"", "::= without a name"),
            ("root ::= $", "'$' means nothing"),
        ] {
            let error = to_lark(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
