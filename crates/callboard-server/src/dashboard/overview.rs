//! The overview: what needs a person.

use maud::{Markup, html};

use crate::context::Context;
use crate::knowledge::reserved;
use crate::tokens::Caller;

/// The first line, as `callboard serve` prints it, and what needs a person.
pub(super) async fn overview(context: &Context, _: &Caller) -> Markup {
    let files = context.agent_files();
    let is_own = |name: &str| !files.built_in.contains(name) && !reserved::is_reserved(context, name);
    let names = context.board.agents().names();
    let running = names.iter().filter(|name| is_own(name.as_str())).count();
    let waiting = context.board.people().pending().await;
    let agents = if running == 1 { "agent" } else { "agents" };
    html! {
        h1 { (running) " " (agents) " running · " (waiting.len()) " waiting for you · " (files.refused.len()) " failed" }
    }
}
