//! `callboard workflow draw`.

use std::path::PathBuf;

use serde_json::json;

use callboard::supervision::runs::Run;
use callboard::workflow::{Drawing, NodeStates};

use crate::exit::Exit;
use crate::page::{Failure, Page};
use crate::run_names::short;
use crate::stores::Choice;

use super::read;

/// Draws the workflow as SVG or Mermaid, with the node states of a run if one is named.
pub(crate) async fn draw(
    files: &[PathBuf],
    line: Option<&str>,
    is_svg: bool,
    run: Option<(&str, &Choice)>,
) -> Result<Page, Failure> {
    let texts = read::texts_or_warn(files, line)?;
    let workflow = match read::workflows(files, &texts).into_iter().next() {
        Some(Ok(workflow)) => workflow,
        Some(Err(defects)) => {
            let remarks = format!("{defects}\n");
            return Ok(Page { exit: Exit::Usage, remarks, ..Page::new(String::new(), json!(null)) });
        }
        None => return Err(Failure::usage("there is no workflow to draw".to_owned())),
    };
    let mut drawing = Drawing::of(&workflow);
    if let Some((run, choice)) = run {
        let loaded = choice.stores()?.load(run).await?;
        let states = Run::node_states_of(loaded.history.clone(), &loaded.rules.state);
        let states = states.map_err(|error| Failure::failed(format!("run {}: {error}", short(loaded.id))))?;
        // The store could be opened, so no process works on the run: running nodes are shown as open.
        let left = |(node, mut states): (String, NodeStates)| {
            states.state = states.state.when_left();
            (node, states)
        };
        drawing = drawing.with(states.into_iter().map(left).collect());
    }
    let text = if is_svg { drawing.to_svg() } else { drawing.to_mermaid() };
    Ok(Page::new(text.clone(), json!({ "workflow": workflow.name(), "drawing": text })))
}
