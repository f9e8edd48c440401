//! Converts the answer of a server's tool to the text that a model reads.

use std::fmt::Write as _;

use callboard_text::quoted;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::tool::{ToolError, ToolOutput};

/// The text of an answer: its parts one below the other; other content is named and not shown. At most about `most` bytes.
pub(super) fn of(result: CallToolResult, most: usize) -> Result<ToolOutput, ToolError> {
    let mut text = String::new();
    let mut left = 0;
    for block in &result.content {
        if text.len() > most {
            left += 1;
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        add(block, &mut text);
    }
    if let (true, Some(value)) = (result.content.is_empty(), &result.structured_content) {
        text = value.to_string();
    }
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\n(the rest of the answer is cut");
        let _ = if left > 0 { write!(text, ", and {left} more parts of it)") } else { write!(text, ")") };
    }
    if result.is_error == Some(true) {
        let text = if text.is_empty() { "the tool failed, and does not say why".to_owned() } else { text };
        return Err(ToolError(text));
    }
    if text.is_empty() {
        text.push_str("(the tool has answered nothing)");
    }
    Ok(ToolOutput { text, is_untrusted: true })
}

fn add(block: &ContentBlock, text: &mut String) {
    // Writing to a `String` cannot fail.
    let _ = match block {
        ContentBlock::Text(part) => {
            text.push_str(&part.text);
            Ok(())
        }
        ContentBlock::Image(image) => write!(text, "[an image, {}]", size(Some(&image.mime_type), &image.data)),
        ContentBlock::Audio(audio) => write!(text, "[a sound, {}]", size(Some(&audio.mime_type), &audio.data)),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text: content, .. } => {
                write!(text, "[the resource {}]\n{content}", quoted(uri))
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                write!(text, "[the resource {}, {}]", quoted(uri), size(mime_type.as_deref(), blob))
            }
            _ => write!(text, "[a resource of an unknown kind]"),
        },
        ContentBlock::ResourceLink(link) => write!(text, "[a link to the resource {}]", quoted(&link.uri)),
        _ => write!(text, "[something of an unknown kind]"),
    };
}

/// The kind of base64-encoded content, and its size.
fn size(kind: Option<&str>, encoded: &str) -> String {
    format!("{}, {} bytes; not shown", quoted(kind.unwrap_or("no type")), encoded.len() / 4 * 3)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answered(result: Value) -> Result<ToolOutput, ToolError> {
        of(serde_json::from_value(result).unwrap(), 1_000)
    }

    #[test]
    fn text_is_joined_and_all_else_is_named() {
        let content = json!([
            { "type": "text", "text": "one" },
            { "type": "image", "mimeType": "image/png", "data": "AAAAAAAA" },
            { "type": "audio", "mimeType": "audio/wav", "data": "AAAA" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource", "resource": { "uri": "file:///b", "mimeType": "application/zip", "blob": "AAAA" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c" },
        ]);
        let answer = answered(json!({ "content": content })).unwrap();
        assert!(answer.is_untrusted);
        assert_eq!(
            answer.text,
            "one\n[an image, \"image/png\", 6 bytes; not shown]\n[a sound, \"audio/wav\", 3 bytes; not shown]\n\
             [the resource \"file:///a\"]\ntwo\n[the resource \"file:///b\", \"application/zip\", 3 bytes; not shown]\n\
             [a link to the resource \"file:///c\"]"
        );
    }

    #[test]
    fn an_answer_without_text_is_its_structure_or_reported_as_empty() {
        assert_eq!(answered(json!({ "structuredContent": { "a": 1 } })).unwrap().text, "{\"a\":1}");
        assert_eq!(answered(json!({ "content": [] })).unwrap().text, "(the tool has answered nothing)");
    }

    #[test]
    fn a_failure_is_an_error_with_the_text_of_the_tool() {
        let failed = json!({ "content": [{ "type": "text", "text": "no such issue" }], "isError": true });
        assert_eq!(answered(failed).unwrap_err().0, "no such issue");
        assert!(answered(json!({ "content": [], "isError": true })).unwrap_err().0.contains("does not say why"));
    }

    #[test]
    fn a_long_answer_is_cut_between_characters() {
        let part = json!({ "type": "text", "text": "é".repeat(450) });
        let answer = answered(json!({ "content": [part, part, part, part] })).unwrap().text;
        assert!(answer.len() < 1_100, "{}", answer.len());
        assert!(answer.ends_with("(the rest of the answer is cut, and 2 more parts of it)"), "{answer}");
    }
}
