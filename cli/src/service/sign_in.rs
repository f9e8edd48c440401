//! `callboard sign-in`: a link with which a person signs in to the pages of the server.

use clap::Args;
use serde_json::{Value, json};

use callboard::messages::visible;

use crate::page::{Failure, Page, count, time_of};
use crate::stores::Common;

use super::boards::ask_service;

/// The path of links, which only the private socket has.
const PATH: &str = "/v1/sign-in";

#[derive(Debug, Args)]
pub(crate) struct SignIn {
    /// Sign in as this token, with its scopes and its person, until it is revoked or expires; by default as you, with all scopes
    #[arg(long, value_name = "NAME", conflicts_with = "revoke")]
    token: Option<String>,
    /// Sign everybody out, and end all links
    #[arg(long)]
    revoke: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Asks the server for a link, or has it end all of them.
pub(super) async fn sign_in(arguments: &SignIn) -> Result<Page, Failure> {
    let stores = arguments.common.choice.stores()?;
    if arguments.revoke {
        let ended = ask_service(&stores, ("DELETE", PATH), None).await?;
        return Ok(Page::new(ended_text(&ended), ended));
    }
    let body = arguments.token.as_ref().map_or_else(|| json!({}), |token| json!({ "token": token }));
    let link = ask_service(&stores, ("POST", PATH), Some(&body)).await?;
    let text = |key: &str| link[key].as_str().map(visible).unwrap_or_default();
    let scopes: Vec<String> =
        link["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(visible).collect();
    let person = link["person"].as_str().map(|person| format!(" ({})", visible(person))).unwrap_or_default();
    let remark = format!(
        "signs in {}{person} once, until {}, with the scopes {}",
        text("name"),
        time_of(&link["expires_at"]),
        scopes.join(", ")
    );
    let url = text("url");
    Ok(Page { remarks: format!("{remark}\n"), ..Page::new(format!("{url}\n"), link) })
}

fn ended_text(ended: &Value) -> String {
    let number = |key: &str| ended[key].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    format!("{} and {} have ended\n", count(number("sessions"), "session"), count(number("links"), "link"))
}
