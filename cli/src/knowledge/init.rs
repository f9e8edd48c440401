//! `callboard kb init`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;

use callboard::messages::visible;
use callboard_knowledge::indexing::{IndexError, Indexed, index_file, index_folder};
use serde_json::json;

use crate::output::note;
use crate::page::{Failure, Page, count, grouped, shown_path};
use crate::service::boards::is_served;
use crate::stores::project::root_of;

use super::arguments::Init;
use super::base::{Created, create, end, failure};

/// How many files that were left out are named.
const NAMED: usize = 10;

/// After how many documents a line reports the progress.
const REPORTED: usize = 1_000;

/// Indexes the files of a folder, or a file.
pub(super) async fn main(init: &Init) -> Result<Page, Failure> {
    let stores = init.place.common.choice.stores()?;
    let metadata = std::fs::metadata(&init.path);
    let metadata = metadata.map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(&init.path))))?;
    let is_file = match (metadata.is_dir(), metadata.is_file()) {
        (false, false) => return Err(Failure::usage(format!("{} is no folder or file", shown_path(&init.path)))),
        (_, is_file) => is_file,
    };
    let name = name_of(&init.path)?;
    let Created { base, is_new } = create(&stores)?;
    let mut reported = 0;
    let progress = |indexed: &Indexed| {
        if indexed.documents / REPORTED > reported {
            reported = indexed.documents / REPORTED;
            if std::io::stderr().is_terminal() {
                note(&format!("{} documents are read", grouped(indexed.documents as u64)));
            }
        }
    };
    let namespace = &init.place.namespace;
    let indexed = if is_file {
        index_file(&base, namespace, &init.path, &name, init.untrusted).await
    } else {
        index_folder(&base, namespace, &init.path, &name, init.untrusted, progress).await
    };
    end(base, is_new && indexed.is_err()).await;
    let indexed = indexed.map_err(|error| match error {
        IndexError::Folder(error) => Failure::usage(error.to_string()),
        IndexError::Base(error) => failure(&error),
    })?;
    let mut remarks = remarks(&indexed);
    if is_new && is_served(&stores).await {
        remarks.push_str("the server that runs for this project has begun without a base: stop and start it again, and it serves this one\n");
    }
    Ok(Page { remarks, ..Page::new(text(&indexed), json!(indexed)) })
}

/// The name of a folder or file in the base: its path below the project, so that documents of several folders have names of their own; the
/// whole path of what is elsewhere.
fn name_of(folder: &Path) -> Result<String, Failure> {
    let unread = |error: std::io::Error| Failure::file(&error, format!("{}: {error}", shown_path(folder)));
    let whole = folder.canonicalize().map_err(unread)?;
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).map_err(unread)?;
    let below = whole.strip_prefix(root_of(&here)).unwrap_or(&whole);
    let name = below.to_str().ok_or_else(|| {
        Failure::usage(format!("the path {} is not UTF-8, so no citation can name it: rename it", shown_path(folder)))
    })?;
    Ok(name.trim_start_matches('/').to_owned())
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

fn remarks(indexed: &Indexed) -> String {
    let mut remarks = String::new();
    for (path, why) in indexed.left_out.iter().take(NAMED) {
        let place = if path.is_empty() { String::new() } else { format!("{}: ", visible(path)) };
        let _ = writeln!(remarks, "left out: {place}{}", visible(why));
    }
    match indexed.left_out_count {
        0 => {}
        all if all > NAMED => {
            let _ = writeln!(remarks, "left out: {} more; --json names them", grouped((all - NAMED) as u64));
        }
        _ => {}
    }
    let _ = writeln!(
        remarks,
        "indexed and linked without a language model: no summaries, and no relations beyond links and names"
    );
    remarks
}
