//! `callboard kb init`.

use std::fmt::Write as _;

use callboard::messages::visible;
use callboard_knowledge::cycles::{self, InitInputs, InitRequest, Initialised, Summaries};
use callboard_knowledge::indexing::{IndexError, Indexed, differing};
use callboard_knowledge::provider::PROVIDER_AGENT;
use callboard_knowledge::store::Trust;
use serde_json::json;

use crate::command_line::command_line;
use crate::page::{Failure, Page, count, grouped, shown_path};
use crate::person::is_anybody_here;
use crate::quote::{quoted, quoted_path};
use crate::service::boards::is_served;
use crate::stores::Stores;

use super::arguments::{Asked, Init, with_namespace};
use super::base::{Created, beside_new, create, end_after_board, open_if_there, why};
use super::cycles::{Cycles, Ended, not_finished, same_but_for};
use super::removal::name_of;

/// How many files that were left out are named.
const NAMED: usize = 10;

/// Indexes the files of a folder, or a file, and has a model write documents about them.
pub(super) async fn main(init: &Init) -> Result<Page, Failure> {
    let stores = init.place.common.choice.stores()?;
    let metadata = match std::fs::metadata(&init.path) {
        Ok(metadata) => metadata,
        Err(error) => {
            let failure = Failure::file(&error, format!("{}: {}", shown_path(&init.path), why(&error)));
            return Err(failure.with(&of_gone(&stores, init).await.unwrap_or_default()));
        }
    };
    if !metadata.is_dir() && !metadata.is_file() {
        return Err(Failure::usage(format!("{} is no folder or file", shown_path(&init.path))));
    }
    if init.topic.len() > cycles::MAX_TOPICS {
        return Err(Failure::usage(format!("--topic can be given {} times", cycles::MAX_TOPICS)));
    }
    let (name, whole) = name_of(&init.path)?;
    let (model, models) = init.asked.agent()?;
    let Created { base, new } = create(&stores)?;
    let is_new = new.is_some();
    let asks = model.is_some() && is_anybody_here(init.no_input);
    let questions = if asks { &cycles::QUESTIONS[..] } else { &[] };
    let request = InitRequest {
        namespace: init.place.namespace.clone(),
        name: name.clone(),
        place: whole,
        trust: trust_of(init),
        provider: model.is_some().then(|| PROVIDER_AGENT.to_owned()),
        topics: init.topic.clone(),
        questions: questions.iter().map(|question| (*question).to_owned()).collect(),
        follows_up: asks,
    };
    let input = json!(request);
    let inputs = InitInputs { path: init.path.clone(), name };
    let is_shown = model.is_some();
    let run = Cycles {
        stores: &stores,
        agents: std::iter::once(cycles::init_agent(&base, inputs)).chain(model).collect(),
        models,
        task: cycles::init_task(&request).map_err(|error| Failure::failed(error.to_string()))?,
        // Nobody may be there to ask when it is continued.
        is_same: &|before| same_but_for(&["questions", "follows_up"], before.value(), &input),
        line: line_of(init, &stores),
        no_input: init.no_input,
        is_shown,
    };
    let ended = run.run().await;
    let has_failed = match &ended {
        Ok(Ended::Result { result, .. }) => !result.outcome.is_finished(),
        Ok(Ended::Left(_)) => false,
        Err(_) => true,
    };
    // A run that is continued has read its files earlier.
    let differing = match &ended {
        Ok(Ended::Result { is_continued: true, .. }) if !has_failed => {
            Some(differing(&base, &request.namespace, &init.path, &request.name).await)
        }
        _ => None,
    };
    end_after_board(base, new.filter(|_| has_failed)).await;
    let result = match ended? {
        Ended::Result { result, .. } => result,
        Ended::Left(page) => return Ok(page),
    };
    if !result.outcome.is_finished() {
        return Err(not_finished(&result));
    }
    let done = cycles::init_result(&result).map_err(|error| Failure::failed(error.to_string()))?;
    let Initialised { indexed, summaries } = &done;
    let mut json = json!(indexed);
    json["summaries"] = json!(summaries);
    json["changed_meanwhile"] = 0.into();
    let text = format!("{}{}", text(indexed), summaries.as_ref().map(written).unwrap_or_default());
    let mut remarks = remarks(&done);
    if indexed.kept_untrusted > 0 {
        let line = with_namespace(format!("kb init {} --trusted", quoted_path(&init.path)), &init.place.namespace);
        let line = command_line(&line, stores.named());
        remarks.push_str(&kept_untrusted(indexed.kept_untrusted, &line));
    }
    if let Some(differing) = differing {
        json["changed_meanwhile"] = differing.as_ref().map_or(serde_json::Value::Null, |files| json!(files));
        remarks.push_str(&changed(differing, &line_of(init, &stores)));
    }
    if is_new {
        remarks.push_str(&beside_new(&stores));
    }
    if is_new && is_served(&stores).await {
        remarks.push_str("the server that runs for this project serves the base as well; its agents get the tools for facts at its next start\n");
    }
    Ok(Page { remarks, ..Page::new(text, json) })
}

/// What helps if the base has documents of the path.
async fn of_gone(stores: &Stores, init: &Init) -> Option<String> {
    let base = open_if_there(stores).ok()??;
    let documents = cycles::documents_of(&base, &init.place.namespace, &name_of(&init.path).ok()?.0).await.ok()?;
    let line = with_namespace(format!("kb remove {}", quoted_path(&init.path)), &init.place.namespace);
    let them = if documents == 1 { "it" } else { "them" };
    let documents = (documents > 0).then(|| count(documents, "document"))?;
    Some(format!("the base has {documents} of it; to end {them}: {}", command_line(&line, stores.named())))
}

/// How many documents are untrusted as before, with the command that trusts them.
fn kept_untrusted(documents: usize, line: &str) -> String {
    let documents = count(documents, "document");
    format!(
        "untrusted as before, or because their folder was indexed with --untrusted: {documents}; to trust all of these files: {line}\n"
    )
}

/// What is said of files that have changed since an initialisation read them.
fn changed(differing: Result<usize, IndexError>, line: &str) -> String {
    match differing {
        Ok(0) => String::new(),
        Ok(files) => {
            format!(
                "changed since this initialisation has read them: {}; to read them again: {line}\n",
                count(files, "file")
            )
        }
        Err(error) => {
            format!("whether files have changed since they were read is not known: {}\n", visible(&error.to_string()))
        }
    }
}

fn trust_of(init: &Init) -> Trust {
    match (init.untrusted, init.trusted) {
        (true, _) => Trust::Untrusted,
        (false, true) => Trust::Trusted,
        (false, false) => Trust::AsBefore,
    }
}

/// The command line that continues it.
fn line_of(init: &Init, stores: &Stores) -> String {
    let mut line = format!("kb init {}", quoted_path(&init.path));
    let Init { asked: Asked { model, models }, topic, untrusted, trusted, no_input, place, path: _ } = init;
    let options = model.iter().map(|model| ("--model", quoted(model)));
    let options = options.chain(models.iter().map(|models| ("--models", quoted_path(models))));
    let options = options.chain(topic.iter().map(|topic| ("--topic", quoted(topic))));
    for (option, value) in options {
        let _ = write!(line, " {option} {value}");
    }
    let mut line = with_namespace(line, &place.namespace);
    for (option, is_given) in [("--untrusted", *untrusted), ("--trusted", *trusted), ("--no-input", *no_input)] {
        line.push_str(&if is_given { format!(" {option}") } else { String::new() });
    }
    command_line(&line, stores.named())
}

fn written(summaries: &Summaries) -> String {
    let Summaries { documents, claims, .. } = summaries;
    format!("{} with {} by the model\n", count(documents.len(), "document"), count(*claims, "claim"))
}

fn text(indexed: &Indexed) -> String {
    let written = indexed.written;
    format!(
        "{}: {} new, {} as before, {} gone\n",
        count(indexed.documents, "document"),
        count(written.added, "passage"),
        grouped(written.kept as u64),
        grouped(written.ended as u64)
    )
}

fn remarks(done: &Initialised) -> String {
    let Initialised { indexed, summaries } = done;
    let mut remarks = String::new();
    for (path, why) in indexed.left_out.iter().take(NAMED) {
        let place = if path.is_empty() { String::new() } else { format!("{}: ", visible(path)) };
        let _ = writeln!(remarks, "left out: {place}{}", visible(why));
    }
    if indexed.ignored > 0 {
        let documents = count(indexed.ignored, "document");
        let _ = writeln!(
            remarks,
            "{documents} of hidden or ignored files, which the base had already; `callboard kb remove PATH` ends documents"
        );
    }
    match indexed.left_out_count {
        0 => {}
        all if all > NAMED => {
            let _ = writeln!(remarks, "left out: {} more; --json names them", grouped((all - NAMED) as u64));
        }
        _ => {}
    }
    let Some(Summaries { dropped, without, .. }) = summaries else {
        let _ = writeln!(
            remarks,
            "indexed and linked without a language model: no summaries, and no relations beyond links and names"
        );
        return remarks;
    };
    if *dropped > 0 {
        let _ = writeln!(remarks, "left out: {}, which cite nothing that was found", count(*dropped, "claim"));
    }
    for topic in without {
        let _ = writeln!(remarks, "nothing is written about {}: no claim is supported", visible(topic));
    }
    remarks
}
