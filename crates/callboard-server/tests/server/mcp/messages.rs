//! Messages of the Model Context Protocol, written out.

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};

/// A message of the revision 2026-07-28, in which each request stands alone.
pub(crate) fn message(method: &str, params: &Value, capabilities: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

pub(crate) const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");

pub(crate) async fn post(client: &Client, message: &Value, headers: &[(&str, &str)]) -> Answer {
    let name =
        ["name", "uri", "taskId"].iter().find_map(|field| message["params"][*field].as_str()).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default();
    let mut all = vec![ACCEPT, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    if !name.is_empty() {
        all.push(("Mcp-Name", name));
    }
    all.extend(headers);
    client.post_with("/mcp", &all, message).await
}

pub(crate) async fn ask(client: &Client, method: &str, params: &Value, capabilities: &Value) -> Value {
    post(client, &message(method, params, capabilities), &[]).await.json()
}
