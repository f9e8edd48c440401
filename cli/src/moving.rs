//! `callboard runs export|import`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde_json::json;

use callboard::env::Env;
use callboard::messages::visible;
use callboard::storage::transfer::{self, TransferError, Transferred};

use crate::page::{Failure, Page, count};
use crate::store::Store;
use crate::stores::Stores;

/// Writes the only store that there is.
pub(crate) async fn export(stores: &Stores, file: Option<&Path>) -> Result<Page, Failure> {
    let store = only(stores)?;
    let sled = store.sled();
    let Some(file) = file else {
        transfer::export(&*sled, &mut io::stdout()).await.map_err(trouble)?;
        return Ok(Page::new(String::new(), json!(null)));
    };
    let cannot = |error: io::Error| Failure::trouble(format!("{}: {error}", visible(&file.display().to_string())));
    let mut out = BufWriter::new(File::create_new(file).map_err(cannot)?);
    let moved = transfer::export(&*sled, &mut out).await.map_err(trouble)?;
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(cannot)?;
    Ok(page("exported", &moved))
}

/// Reads into the store that is named, or the project's first free one.
pub(crate) async fn import(stores: &Stores, file: &Path) -> Result<Page, Failure> {
    let shown = visible(&file.display().to_string());
    let opened: Box<dyn io::Read + Send> = if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(|error| Failure::trouble(format!("{shown}: {error}")))?)
    };
    let store = stores.take_new()?;
    let sled = store.sled();
    let moved = transfer::import(&mut BufReader::new(opened), &*sled, Env::system().now().wall).await;
    sled.close().await;
    let moved = moved.map_err(|error| Failure::trouble(format!("{shown}: {error}")))?;
    Ok(Page { done: Some("the import is in the store".to_owned()), ..page("imported", &moved) })
}

fn only(stores: &Stores) -> Result<Store, Failure> {
    let open = stores.open()?;
    let folders: Vec<String> = open.stores.iter().map(|store| visible(&store.folder().display().to_string())).collect();
    let mut found = open.stores.into_iter();
    match (found.next(), found.next()) {
        (Some(only), None) if open.closed.is_empty() => Ok(only),
        (None, _) if open.closed.is_empty() => Err(Failure::trouble("there is no store to export".to_owned())),
        _ => {
            let closed = open.closed.iter().map(|(folder, _)| visible(&folder.display().to_string()));
            let all: Vec<String> = folders.into_iter().chain(closed).collect();
            Err(Failure::trouble(format!("there are several stores: name one with --store: {}", all.join(", "))))
        }
    }
}

fn page(what: &str, moved: &Transferred) -> Page {
    let Transferred { records, values } = moved;
    let text = format!("{what}: {}, {}\n", count(records_of(*records), "record"), count(records_of(*values), "value"));
    Page::new(text, json!({ "records": records, "values": values }))
}

fn records_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn trouble(error: TransferError) -> Failure {
    Failure::trouble(error.to_string())
}
