//! `callboard tree`: the supervision tree of the server.

use std::time::Duration;

use serde_json::Value;

use callboard::messages::visible;

use crate::page::{Failure, Page, duration, is_coloured};
use crate::stores::Common;

use super::boards::ask_service;

/// Draws the tree, with what is not as it should be in colour on a terminal.
pub(super) async fn tree(arguments: &Common) -> Result<Page, Failure> {
    let tree = ask_service(&arguments.choice.stores()?, ("GET", "/v1/tree"), None).await?;
    let mut text = String::new();
    draw(&tree, "", "", is_coloured(&std::io::stdout()), &mut text);
    Ok(Page::new(text, tree))
}

fn draw(node: &Value, branch: &str, below: &str, is_coloured: bool, out: &mut String) {
    let text = |field: &str| node[field].as_str().filter(|text| !text.is_empty()).map(visible);
    let number = |field: &str| node[field].as_u64().unwrap_or_default();
    let (name, state) = (text("name").unwrap_or_default(), text("state").unwrap_or_default());
    let colour = match &*state {
        "running" => None,
        "failed" => Some("31"),
        _ => Some("33"),
    };
    let state = match colour.filter(|_| is_coloured) {
        Some(colour) => format!("\u{1b}[{colour}m{state}\u{1b}[0m"),
        None => state,
    };
    let mut line = format!("{branch}{name}  {state}");
    if number("restarts") > 0 {
        line.push_str(&format!("  restarts {}", number("restarts")));
    }
    if let Some(millis) = node["uptime_ms"].as_u64() {
        line.push_str(&format!("  up {}", duration(Duration::from_millis(millis))));
    }
    if number("mailbox_depth") > 0 {
        line.push_str(&format!("  mailbox {}", number("mailbox_depth")));
    }
    line.extend(text("detail").map(|detail| format!("  {detail}")));
    let last_error = node["last_error"].as_str().and_then(|error| error.lines().next());
    line.extend(last_error.map(|error| format!("  last error: {}", visible(error))));
    out.push_str(&line);
    out.push('\n');
    let children = node["children"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (place, child) in children.iter().enumerate() {
        let (fork, rest) = if place + 1 < children.len() { ("├── ", "│   ") } else { ("└── ", "    ") };
        draw(child, &format!("{below}{fork}"), &format!("{below}{rest}"), is_coloured, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_is_drawn_with_states_and_restarts() {
        let node = |name: &str, state: &str, more: Value, children: Vec<Value>| {
            let mut node = json!({ "name": name, "state": state, "restarts": 0, "children": children });
            node.as_object_mut()
                .into_iter()
                .for_each(|node| node.extend(more.as_object().cloned().unwrap_or_default()));
            node
        };
        let failed = json!({ "restarts": 3, "last_error": "panicked: \u{1b}[2J\nat line 1", "uptime_ms": null });
        let agents = node(
            "agents",
            "running",
            json!({ "uptime_ms": 61_000 }),
            vec![
                node("coder", "running", json!({ "mailbox_depth": 2, "detail": "1 at work, 0 waiting" }), Vec::new()),
                node("writer", "failed", failed, Vec::new()),
            ],
        );
        let tree =
            node("callboard", "running", json!({}), vec![agents, node("gauges", "stopped", json!({}), Vec::new())]);
        let mut drawn = String::new();
        draw(&tree, "", "", false, &mut drawn);
        insta::assert_snapshot!(drawn, @r"
        callboard  running
        ├── agents  running  up 61 s
        │   ├── coder  running  mailbox 2  1 at work, 0 waiting
        │   └── writer  failed  restarts 3  last error: panicked: \u{1b}[2J
        └── gauges  stopped
        ");
    }
}
