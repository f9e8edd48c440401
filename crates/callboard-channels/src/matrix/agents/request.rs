//! What an event of a person or of another program asks an agent for. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::matrix::synced::{Event, MESSAGE};

/// The longest body of a request, in bytes.
const MAX_BODY: usize = 32 << 10;
/// The longest id, trace and reference, in bytes.
const MAX_NAME: usize = 200;

/// How a request is written, and so how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Form {
    /// An event of the type of requests.
    Request,
    /// A message, as people write it.
    Message,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) body: String,
    pub(super) input: Option<Value>,
    pub(super) reference: Option<String>,
}

/// What an event asks for. It names neither who asks nor who is asked: those follow from the sender and the room.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) form: Form,
    /// How the sender names the request.
    pub(super) id: Option<String>,
    pub(super) trace_id: Option<String>,
    /// The work, or what is wrong with the request.
    pub(super) work: Result<Work, String>,
}

/// What an event asks for; nothing if it is no request. Changes of events, replies, redacted events and states of the room are none.
pub(super) fn asked(event: &Event, prefix: &str) -> Option<Asked> {
    if event.state_key.is_some() || event.is_redacted {
        return None;
    }
    if event.kind == MESSAGE {
        return message(&event.content());
    }
    let is_request = event.kind.strip_prefix(prefix) == Some(".request");
    if is_request { request(&event.content()) } else { None }
}

fn message(content: &Value) -> Option<Asked> {
    if content["msgtype"] != "m.text" || content.get("m.relates_to").is_some() || content.get("m.new_content").is_some()
    {
        return None;
    }
    let work = body(content).map(|body| Work { body, input: None, reference: None });
    Some(Asked { form: Form::Message, id: None, trace_id: None, work })
}

fn request(content: &Value) -> Option<Asked> {
    if content["m.relates_to"]["rel_type"] == "m.replace" {
        return None;
    }
    let (id, trace_id) = (name(content, "request_id"), name(content, "trace_id"));
    let reference = match name(content, "reference") {
        Ok(None) => name(content, "gitlab_ref"),
        reference => reference,
    };
    let known = |name: &Result<Option<String>, String>| name.clone().ok().flatten();
    Some(Asked {
        form: Form::Request,
        id: known(&id),
        trace_id: known(&trace_id),
        work: id.and(trace_id).and(reference).and_then(|reference| {
            let input = content.get("input").filter(|input| !input.is_null()).cloned();
            Ok(Work { body: body(content)?, input, reference })
        }),
    })
}

fn body(content: &Value) -> Result<String, String> {
    if content.is_null() {
        return Err("its content cannot be read".to_owned());
    }
    let body = content["body"].as_str().ok_or("it has no text `body`")?;
    if body.trim().is_empty() {
        return Err("its `body` is empty".to_owned());
    }
    if body.len() > MAX_BODY {
        return Err(format!("its `body` has {} bytes, and {MAX_BODY} are the most", body.len()));
    }
    Ok(body.to_owned())
}

/// A short text; `None` where there is none, as with null.
fn name(content: &Value, key: &str) -> Result<Option<String>, String> {
    match content.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if (1..=MAX_NAME).contains(&text.len()) && !text.contains(char::is_control) => {
            Ok(Some(text.clone()))
        }
        Some(_) => Err(format!("its `{key}` is not a line of 1 to {MAX_NAME} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, content: &Value) -> Option<Asked> {
        asked(&Event { kind: kind.to_owned(), content: content.to_string(), ..Event::default() }, "com.example")
    }

    fn wrong(content: &Value) -> String {
        of("com.example.request", content).unwrap().work.unwrap_err()
    }

    #[test]
    fn a_request_has_a_body_and_whoever_it_names_is_not_read() {
        let content = json!({
            "request_id": "req-1", "from_agent": "root", "to_agent": "other", "trace_id": "t", "body": "look", "gitlab_ref": "a/b#1",
            "input": { "x": 1 },
        });
        let work =
            Work { body: "look".to_owned(), input: Some(json!({ "x": 1 })), reference: Some("a/b#1".to_owned()) };
        let (id, trace_id) = (Some("req-1".to_owned()), Some("t".to_owned()));
        let expected = Asked { form: Form::Request, id, trace_id, work: Ok(work) };
        assert_eq!(of("com.example.request", &content), Some(expected));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        for (content, expected) in [
            (json!({}), "it has no text `body`"),
            (json!(7), "it has no text `body`"),
            (json!(null), "its content cannot be read"),
            (json!({ "body": " \n" }), "its `body` is empty"),
            (json!({ "body": "a".repeat(MAX_BODY + 1) }), "its `body` has 32769 bytes, and 32768 are the most"),
            (json!({ "body": "a", "request_id": 7 }), "its `request_id` is not a line of 1 to 200 bytes"),
            (json!({ "body": "a", "request_id": "a\nb" }), "its `request_id` is not a line of 1 to 200 bytes"),
            (json!({ "body": "a", "reference": "" }), "its `reference` is not a line of 1 to 200 bytes"),
        ] {
            assert_eq!(wrong(&content), expected, "{content}");
        }
    }

    #[test]
    fn replies_notices_edits_and_states_are_no_requests() {
        let message = json!({ "msgtype": "m.text", "body": "look" });
        assert!(of(MESSAGE, &message).is_some_and(|asked| asked.form == Form::Message && asked.work.is_ok()));
        let reply = json!({ "m.in_reply_to": { "event_id": "$1" } });
        let thread = json!({ "rel_type": "m.thread", "event_id": "$1" });
        let edit = json!({ "rel_type": "m.replace", "event_id": "$1" });
        for content in [
            json!({ "msgtype": "m.notice", "body": "look" }),
            json!({ "msgtype": "m.text", "body": "look", "m.relates_to": reply }),
            json!({ "msgtype": "m.text", "body": "look", "m.relates_to": thread }),
            json!({ "msgtype": "m.text", "body": "look", "m.relates_to": edit }),
            json!({ "msgtype": "m.text", "body": "look", "m.new_content": {} }),
            json!({}),
        ] {
            assert_eq!(of(MESSAGE, &content), None, "{content}");
        }
        assert_eq!(of("com.example.request", &json!({ "body": "look", "m.relates_to": edit })), None);
        for kind in ["com.example.status", "com.example.requests", "com.other.request", "m.reaction"] {
            assert_eq!(of(kind, &json!({ "body": "look" })), None, "{kind}");
        }
        let event = Event { kind: MESSAGE.to_owned(), content: message.to_string(), ..Event::default() };
        for event in
            [Event { state_key: Some(String::new()), ..event.clone() }, Event { is_redacted: true, ..event.clone() }]
        {
            assert_eq!(asked(&event, "com.example"), None);
        }
    }
}
