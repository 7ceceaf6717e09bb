//! Documents and search results in messages: those that are text become paragraphs.

use serde_json::Value;

use crate::error::{ApiError, clipped};
use crate::fields::Fields;

/// Types of `source`: a document's is an object, a search result's a string.
const SOURCE: &[&str] = &["object", "string", "null"];

/// Title, context and text of a `document` block. Its answer has no citations.
pub(super) fn read_document(block: &Fields, notices: &mut Vec<String>) -> Result<String, ApiError> {
    let title = block.string("title")?;
    let context = block.string("context")?;
    note_citations(block, notices)?;
    let path = block.path_of("source");
    let source = block.union("source", SOURCE);
    let source = block.child(source.ok_or_else(|| ApiError::missing(&path))?, path)?;
    let text = match source.string("type")?.unwrap_or("text") {
        "text" => {
            source.string("media_type")?;
            source.required_string("data")?.to_owned()
        }
        "content" => read_texts(&source)?,
        other => {
            let kind = clipped(&format!("{other:?}"));
            let path = source.path_of("type");
            let message = format!(
                "{path} is {kind}; this model reads text only. Send the document's text as a source of type \"text\"."
            );
            return Err(ApiError::bad_request("unsupported_content", &path, message));
        }
    };
    let parts = [title, context, Some(&text)];
    Ok(paragraphs(parts.into_iter().flatten()))
}

/// Title, source and text of a `search_result` block. Its answer has no citations.
pub(super) fn read_search_result(
    block: &Fields,
    notices: &mut Vec<String>,
) -> Result<String, ApiError> {
    let title = block.string("title")?;
    let source = match block.union("source", SOURCE) {
        None => None,
        Some(Value::String(source)) => Some(source.as_str()),
        Some(other) => {
            let path = block.path_of("source");
            return Err(ApiError::wrong_type(&path, "a string", other));
        }
    };
    note_citations(block, notices)?;
    let text = read_texts(block)?;
    let parts = [title, source, Some(&text)];
    Ok(paragraphs(parts.into_iter().flatten()))
}

/// Adds a paragraph behind a text.
pub(super) fn add_paragraph(text: &mut String, paragraph: &str) {
    if !text.is_empty() && !text.ends_with("\n\n") {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    text.push_str(paragraph);
}

/// `content`: a text or a list of text blocks.
fn read_texts(fields: &Fields) -> Result<String, ApiError> {
    match fields.union("content", &["string", "array"]) {
        None => Err(ApiError::missing(&fields.path_of("content"))),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(_)) => {
            let mut texts = Vec::new();
            for block in fields.objects("content")? {
                match block.string("type")?.unwrap_or("text") {
                    "text" => texts.push(block.required_string("text")?),
                    other => {
                        let kind = clipped(other);
                        return Err(ApiError::unsupported_content(block.path(), &kind));
                    }
                }
            }
            Ok(paragraphs(texts))
        }
        Some(other) => {
            let expected = "a string or a list of text blocks";
            let path = fields.path_of("content");
            Err(ApiError::wrong_type(&path, expected, other))
        }
    }
}

fn note_citations(block: &Fields, notices: &mut Vec<String>) -> Result<(), ApiError> {
    if let Some(citations) = block.object("citations")?
        && citations.boolean("enabled")?.unwrap_or(false)
    {
        let path = citations.path_of("enabled");
        notices.push(format!("{path} is true, but the answer has no citations"));
    }
    Ok(())
}

fn paragraphs<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut all = String::new();
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        add_paragraph(&mut all, text);
    }
    all
}
