//! `callboard context`: the entries of the shared context, which agents read and write too.

use serde_json::{Value, json};

use callboard::messages::visible;

use crate::page::{Failure, Page, lines_of, table, time_of};

use super::arguments::Context;
use super::boards::{ask_any, encoded};
use super::sending::own_agents;

/// How many namespaces an error names.
const SHOWN: usize = 10;

/// Reads or changes entries.
pub(super) async fn main(command: &Context) -> Result<Page, Failure> {
    let stores = command.common().choice.stores()?;
    let ask =
        async |method, path: &str, body: Option<Value>| ask_any(&stores, (method, path), &[], body.as_ref()).await;
    match command {
        Context::List { namespace: None, .. } => {
            let agents = own_agents(&stores).await?;
            let memories: Vec<String> = agents.iter().take(SHOWN).map(|agent| format!("memory:{agent}")).collect();
            let more = if agents.len() > SHOWN { ", …" } else { "" };
            Err(Failure::usage(format!(
                "name a namespace: {}{more}; run:ID of a run, with its whole id; or one of `namespaces` in the files of agents",
                visible(&memories.join(", "))
            )))
        }
        Context::List { namespace: Some(namespace), prefix, .. } => {
            let prefix = prefix.as_deref().unwrap_or_default();
            let path = format!("/v1/context/{}?prefix={}", encoded(namespace), encoded(prefix));
            Ok(list(namespace, ask("GET", &path, None).await?))
        }
        Context::Get { namespace, key, .. } => {
            let entry = ask("GET", &path_of(namespace, key), None).await?;
            Ok(Page::new(format!("{}\n", entry["value"].as_str().unwrap_or_default()), entry))
        }
        Context::Set { namespace, key, value, ttl, .. } => {
            let body = json!({ "value": value, "ttl_secs": ttl.map(|ttl| ttl.as_secs()) });
            let entry = ask("PUT", &path_of(namespace, key), Some(body)).await?;
            Ok(Page::new(format!("{} is set\n", shown(namespace, key)), entry))
        }
        Context::Delete { namespace, key, .. } => {
            ask("DELETE", &path_of(namespace, key), None).await?;
            Ok(Page::new(
                format!("{} is deleted\n", shown(namespace, key)),
                json!({ "namespace": namespace, "key": key }),
            ))
        }
    }
}

fn path_of(namespace: &str, key: &str) -> String {
    format!("/v1/context/{}/{}", encoded(namespace), encoded(key))
}

fn shown(namespace: &str, key: &str) -> String {
    format!("{} in {}", visible(key), visible(namespace))
}

fn list(namespace: &str, found: Value) -> Page {
    let mut drawn = table(["key", "written by", "updated", "expires"], &[]);
    let entries = found["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    for entry in entries {
        let text = |field: &str| visible(entry[field].as_str().unwrap_or_default());
        let [updated, expires] = ["updated_at", "expires_at"].map(|field| time_of(&entry[field]));
        let expires = if expires.is_empty() { "never".to_owned() } else { expires };
        drawn.add_row([text("key"), text("agent"), updated, expires]);
    }
    let mut text = match entries {
        [] => format!("there are no entries in {}\n", visible(namespace)),
        _ => lines_of(&drawn),
    };
    if found["has_more"] == true {
        text.push_str("there are more: name the beginning of their keys with --prefix\n");
    }
    Page::new(text, found)
}
