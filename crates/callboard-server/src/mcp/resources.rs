//! Journals of runs and their flows, as resources.

use callboard::actors::{StreamMode, Watched};
use callboard::messages::RunId;
use callboard::runtime::RunHandle;
use futures::{FutureExt as _, StreamExt as _};
use rmcp::model::{ContentBlock, ErrorData, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use super::errors::error;
use crate::context::Context;
use crate::json as shapes;

/// What the addresses of runs begin with.
const RUNS: &str = "callboard://runs/";
const JSON: &str = "application/json";
const MERMAID: &str = "text/vnd.mermaid";
/// The most events, and the most bytes of events, of a page of a journal. It has one event at least.
const MAX_EVENTS: usize = 200;
const MAX_BYTES: usize = 256 * 1024;

pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{RUNS}{{run}}/journal{{?from}}"), "journal")
            .with_description(
                "A page of the events of a run, from the first or from the number `from` on; `next` is the next page",
            )
            .with_mime_type(JSON),
        ResourceTemplate::new(format!("{RUNS}{{run}}/flow"), "flow")
            .with_description("Who handed what to whom in a run, as a Mermaid flowchart")
            .with_mime_type(MERMAID),
    ]
}

/// Links to the resources of a run, for results.
pub(super) fn links(run: RunId) -> [ContentBlock; 2] {
    [("journal", JSON), ("flow", MERMAID)].map(|(what, mime_type)| {
        let resource = Resource::new(format!("{RUNS}{run}/{what}"), format!("{what} of run {run}"));
        ContentBlock::resource_link(resource.with_mime_type(mime_type))
    })
}

enum What {
    Journal { from: u64 },
    Flow,
}

fn parse(uri: &str) -> Option<(RunId, What)> {
    let (run, what) = uri.strip_prefix(RUNS)?.split_once('/')?;
    let what = match what.split_once("?from=") {
        None if what == "journal" => What::Journal { from: 1 },
        None if what == "flow" => What::Flow,
        Some(("journal", from)) => What::Journal { from: from.parse().ok().filter(|from| *from > 0)? },
        None | Some(_) => return None,
    };
    Some((run.parse().ok()?, what))
}

pub(super) async fn read(context: &Context, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = || ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })));
    let (run, what) = parse(uri).ok_or_else(unknown)?;
    let run = context.board.run(run);
    let (text, mime_type) = match what {
        What::Journal { from } => (journal(&run, from).await?, JSON),
        What::Flow => (run.flow().await.map_err(|it| error(it.into()))?.to_mermaid(), MERMAID),
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(mime_type)]))
}

/// A page of the events that a run has so far.
async fn journal(run: &RunHandle, from: u64) -> Result<String, ErrorData> {
    let mut events = run.events(from, &[StreamMode::Debug]).await.map_err(|it| error(it.into()))?;
    let (mut page, mut size, mut next) = (Vec::new(), 0, None);
    // Those of the past are there at once.
    while let Some(Some(watched)) = events.next().now_or_never() {
        let Watched::Event { sequence, event, .. } = watched else { continue };
        let mut shown = shapes::event(&event);
        shown["sequence"] = sequence.into();
        size += shown.to_string().len();
        if !page.is_empty() && (page.len() == MAX_EVENTS || size > MAX_BYTES) {
            next = Some(format!("{RUNS}{}/journal?from={sequence}", run.id()));
            break;
        }
        page.push(shown);
    }
    Ok(json!({ "run": run.id(), "events": page, "next": next }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_runs_are_read() {
        let id = "019a0000-0000-7000-8000-000000000001";
        let read = |rest: &str| match parse(&format!("{RUNS}{rest}")) {
            Some((_, What::Journal { from })) => format!("journal from {from}"),
            Some((_, What::Flow)) => "flow".to_owned(),
            None => "none".to_owned(),
        };
        assert_eq!(read(&format!("{id}/journal")), "journal from 1");
        assert_eq!(read(&format!("{id}/journal?from=7")), "journal from 7");
        assert_eq!(read(&format!("{id}/flow")), "flow");
        for rest in ["", id, "x/journal", &format!("{id}/"), &format!("{id}/other"), &format!("{id}/journal/../flow")] {
            assert_eq!(read(rest), "none", "{rest}");
        }
        for from in ["0", "-1", "x", "", "18446744073709551616", "1&from=2"] {
            assert_eq!(read(&format!("{id}/journal?from={from}")), "none", "{from}");
        }
        assert_eq!(read(&format!("{id}/flow?from=1")), "none");
        assert!(parse("file:///etc/passwd").is_none());
    }
}
