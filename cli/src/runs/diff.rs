//! `callboard runs diff A B`.

use serde_json::{Value, json};

use callboard::supervision::runs::{Diff, ReplayStep, TurnDifference};
use callboard_server::json::stable;

use crate::exit::Exit;
use crate::page::Page;
use crate::run_names::short;
use crate::runs::replay::step_json;
use crate::runs::show::turn_json;
use crate::stores::store::Loaded;

/// Compares two runs.
pub(crate) fn diff(first: &Loaded, second: &Loaded) -> Page {
    let diff = Diff::of(&first.replay, &second.replay);
    let (one, other) = (short(first.id), short(second.id));
    if diff.is_empty() {
        let text = format!("{one} and {other} do not differ\n");
        return Page::new(text, json!({ "runs": [first.id, second.id], "differ": false }));
    }
    let text = format!("- {one}\n+ {other}\n\n{diff}{}", first.rules.notes());
    let step = |step: &Option<ReplayStep>| step.as_ref().map(step_json);
    let json = json!({
        "runs": [first.id, second.id],
        "differ": true,
        "first": diff.first.as_ref().map(|(a, b)| [step(a), step(b)]),
        "outcomes": stable(&diff.outcomes),
        "outputs": diff.outputs,
        "channels": stable(&diff.channels),
        "turns": diff.turns.iter().map(turn_difference).collect::<Vec<_>>(),
    });
    Page { exit: Exit::Failed, ..Page::new(text, json) }
}

fn turn_difference(difference: &TurnDifference) -> Value {
    let TurnDifference { first, second, aspects } = difference;
    json!({
        "first": first.as_ref().map(turn_json),
        "second": second.as_ref().map(turn_json),
        "other": aspects.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
