//! `callboard replay --all`: every run of the stores, in this build, and compared with another build.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use callboard::messages::{RunId, visible};
use callboard_server::json::stable;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::page::{Failure, Page, brief, count, json_line, shown_path};
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::{Loaded, Store};

use super::replay::step_json;
use super::transfer;

/// What of a step a build computes. The rest is stored, or text for people.
const COMPUTED: [&str; 4] = ["agent", "begun", "closed", "changes"];
/// The most characters of a value in a line.
const SHOWN: usize = 100;
/// The most bytes of the other build's error that are shown.
const MAX_ERROR: usize = 2_000;

/// Prints a JSON object for each run, in a line: what this build makes of it.
pub(super) async fn all(stores: &Stores) -> Result<Page, Failure> {
    let open = stores.open().await?;
    let mut out = BufWriter::new(io::stdout().lock());
    for store in &open.stores {
        write(store, &mut out).await?;
    }
    out.flush().map_err(unwritten)?;
    Ok(Page { remarks: open.notes(), exit: open.exit().unwrap_or(Exit::Done), ..Page::new(String::new(), Value::Null) })
}

async fn write(store: &Store, out: &mut impl Write) -> Result<(), Failure> {
    for run in store.ids().await? {
        let line = match store.load(run).await {
            Ok(loaded) => replayed(&loaded),
            Err(failure) => json!({ "run": run, "error": failure.text() }),
        };
        writeln!(out, "{}", json_line(&line)).map_err(unwritten)?;
    }
    Ok(())
}

fn unwritten(error: io::Error) -> Failure {
    Failure::failed(format!("the output cannot be written: {error}"))
}

fn replayed(loaded: &Loaded) -> Value {
    let steps: Vec<Value> = loaded.replay.steps().iter().map(step_json).collect();
    let result =
        loaded.replay.result().map(|result| json!({ "outcome": stable(&result.outcome), "output": result.output }));
    json!({ "run": loaded.id, "steps": steps, "result": result })
}

/// Compares what this build makes of the only store with what another one makes of it. Both read a copy.
pub(super) async fn against(stores: &Stores, build: &OsStr) -> Result<Page, Failure> {
    let failed = |error: io::Error| Failure::file(&error, format!("a file for the comparison: {error}"));
    let place = tempfile::tempdir().map_err(failed)?;
    let [copy, here, there, error] = ["store", "here", "there", "error"].map(|name| place.path().join(name));
    transfer::backup(stores, &copy).await?;
    let store = Store::open(&copy)?;
    let mut out = BufWriter::new(File::create(&here).map_err(failed)?);
    write(&store, &mut out).await?;
    out.flush().map_err(failed)?;
    store.close().await?;
    drop((out, store));
    let mut other = Command::new(build);
    other.args(["runs", "replay", "--all", "--store"]).arg(&copy).stdin(Stdio::null());
    other.stdout(File::create(&there).map_err(failed)?).stderr(File::create(&error).map_err(failed)?);
    let shown = shown_path(Path::new(build));
    let cannot = |error: io::Error| Failure::file(&error, format!("{shown} cannot be started: {error}"));
    let status = other.status().map_err(cannot)?;
    if !status.success() {
        let text = std::fs::read(&error).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_ERROR)]).trim_end().to_owned();
        return Err(Failure::failed(format!("{shown} has failed ({status}): {}", visible(&text))));
    }
    let lines = |file: &Path| File::open(file).map(|file| BufReader::new(file).lines()).map_err(failed);
    compare(lines(&here)?, lines(&there)?).map_err(|error| Failure::failed(format!("{shown}: {error}")))
}

/// Compares the lines of two builds, which have the runs in the same order.
fn compare(
    here: impl Iterator<Item = io::Result<String>>,
    there: impl Iterator<Item = io::Result<String>>,
) -> Result<Page, String> {
    let parsed = |line: io::Result<String>| -> Result<Value, String> {
        let line = line.map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|error| format!("a line is no JSON: {error}: {}", brief(&line, SHOWN)))
    };
    let mut there = there.map(parsed).peekable();
    let (mut runs, mut text, mut rows) = (0, String::new(), Vec::new());
    for one in here.map(parsed) {
        let one = one?;
        runs += 1;
        let other = match there.next_if(|other| other.as_ref().is_ok_and(|other| other["run"] == one["run"])) {
            Some(other) => Some(other?),
            None if matches!(there.peek(), Some(Err(_))) => {
                return Err(there.next().and_then(Result::err).unwrap_or_default());
            }
            None => None,
        };
        let Some((at, [here, there])) = difference(&one, other.as_ref()) else { continue };
        let name = one["run"].as_str().and_then(|run| run.parse::<RunId>().ok()).map(short);
        let shown =
            |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), |it| brief(&it.to_string(), SHOWN));
        text.push_str(&format!(
            "{}  {}: {} here, {} there\n",
            name.unwrap_or_default(),
            visible(&at),
            shown(&here),
            shown(&there)
        ));
        rows.push(json!({ "run": one["run"], "at": at, "here": here, "there": there }));
    }
    let differ = if rows.is_empty() { "none differs".to_owned() } else { format!("{} differ", rows.len()) };
    text.push_str(&format!("{}, {differ}\n", count(runs, "run")));
    let exit = if rows.is_empty() { Exit::Done } else { Exit::Failed };
    Ok(Page { exit, ..Page::new(text, json!({ "runs": runs, "differ": rows })) })
}

/// A place, and what each of two has there.
type Difference = (String, [Option<Value>; 2]);

/// The first difference of what two builds make of a run.
fn difference(here: &Value, there: Option<&Value>) -> Option<Difference> {
    let Some(there) = there else { return Some(("run".to_owned(), [Some(here["run"].clone()), None])) };
    // The texts of errors may have changed.
    if let (Some(_), Some(_)) = (here.get("error"), there.get("error")) {
        return None;
    }
    if here.get("error").is_some() || there.get("error").is_some() {
        return Some(("error".to_owned(), [here.get("error").cloned(), there.get("error").cloned()]));
    }
    let steps = |run: &Value| run["steps"].as_array().cloned().unwrap_or_default();
    let (ours, theirs) = (steps(here), steps(there));
    for (number, step) in ours.iter().enumerate() {
        let other = theirs.get(number);
        for key in COMPUTED {
            let at = format!("event {}, {key}", number + 1);
            let found = first(at, step.get(key), other.and_then(|other| other.get(key)));
            if found.is_some() {
                return found;
            }
        }
    }
    if theirs.len() > ours.len() {
        return Some(("events".to_owned(), [Some(ours.len().into()), Some(theirs.len().into())]));
    }
    first("result".to_owned(), here.get("result"), there.get("result"))
}

/// The first place in which two values differ.
fn first(at: String, here: Option<&Value>, there: Option<&Value>) -> Option<Difference> {
    if here == there {
        return None;
    }
    match (here, there) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let mut keys: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
            keys.sort_unstable();
            keys.into_iter().find_map(|key| first(format!("{at}.{key}"), ours.get(key), theirs.get(key)))
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) => (0..ours.len().max(theirs.len()))
            .find_map(|index| first(format!("{at}[{index}]"), ours.get(index), theirs.get(index))),
        _ => Some((at, [here.cloned(), there.cloned()])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_each_run_is_reported() {
        let line = |run: &str, steps: Value, result: Value| json!({ "run": run, "steps": steps, "result": result });
        let [a, b, c, d] = ["1", "2", "3", "4"].map(|end| format!("019a0000-0000-7000-8000-00000000000{end}"));
        let step = |what: &str, value: u32| json!({ "what": what, "changes": [{ "channel": "x", "value": value }] });
        let here = [
            line(&a, json!([step("one", 1)]), json!({ "output": 1 })),
            line(&b, json!([step("one", 1), step("two", 2)]), json!(null)),
            line(&c, json!([]), json!(null)),
            line(&d, json!([]), json!({ "output": 1 })),
        ];
        let there = [
            line(&a, json!([step("another text", 1)]), json!({ "output": 1 })),
            line(&b, json!([step("one", 1), step("two", 3)]), json!(null)),
            line(&d, json!([]), json!({ "output": null })),
        ];
        let lines = |runs: &[Value]| runs.iter().map(|run| Ok(run.to_string())).collect::<Vec<io::Result<String>>>();
        let page = compare(lines(&here).into_iter(), lines(&there).into_iter()).expect("it is JSON");
        let expected = [
            "req-000000000002  event 2, changes[0].value: 2 here, 3 there",
            "req-000000000003  run: \"019a0000-0000-7000-8000-000000000003\" here, nothing there",
            "req-000000000004  result.output: 1 here, null there",
            "4 runs, 3 differ",
        ];
        assert_eq!((page.text.lines().collect::<Vec<_>>(), page.exit), (expected.to_vec(), Exit::Failed));
        let same = compare(lines(&here).into_iter(), lines(&here).into_iter()).expect("it is JSON");
        assert_eq!((&*same.text, same.exit), ("4 runs, none differs\n", Exit::Done));
        assert!(compare(lines(&here).into_iter(), [Ok("usage".to_owned())].into_iter()).is_err());
    }
}
