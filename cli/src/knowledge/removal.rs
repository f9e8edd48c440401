//! `callboard kb remove`, and the names of files and folders in a base.

use std::io;
use std::path::{Component, Path, PathBuf};

use callboard::messages::visible;
use callboard_knowledge::cycles;
use callboard_knowledge::store::Removed;
use serde_json::json;

use crate::page::{Failure, Page, count, shown_path};
use crate::stores::project::root_of;

use super::arguments::Remove;
use super::base::{end, failure, open};

/// Ends the documents of a file or folder.
pub(super) async fn main(remove: &Remove) -> Result<Page, Failure> {
    let base = open(&remove.place.common.choice.stores()?).await?;
    let (name, _) = name_of(&remove.path)?;
    let ended = cycles::end_documents(&base, &remove.place.namespace, &name).await;
    end(base, None).await;
    let ended = ended.map_err(|error| failure(&error))?;
    let Removed { documents, passages } = ended;
    if documents == 0 {
        let name = if name.is_empty() { "the project".to_owned() } else { visible(&name) };
        return Err(Failure::not_found(format!("the base has no document of {name}")));
    }
    let text = format!("{} with {} ended\n", count(documents, "document"), count(passages, "passage"));
    Ok(Page::new(text, json!(ended)))
}

/// The name of a folder or file in the base: its path below the project, so that documents of several folders have names of their own; the
/// whole path, from `/`, of what is elsewhere. Also the whole path, which no other project has.
pub(super) fn name_of(path: &Path) -> Result<(String, String), Failure> {
    let unread = |error: io::Error| Failure::file(&error, format!("{}: {error}", shown_path(path)));
    let whole = whole(path).map_err(unread)?;
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).map_err(unread)?;
    let below = whole.strip_prefix(root_of(&here)).unwrap_or(&whole);
    let text = |name: &Path| match name.to_str() {
        Some(name) => Ok(name.to_owned()),
        None => {
            let path = shown_path(path);
            Err(Failure::usage(format!("the path {path} is not UTF-8, so no citation can name it: rename it")))
        }
    };
    Ok((text(below)?, text(&whole)?))
}

/// The whole path without links, also of what is gone: as far as it is there.
fn whole(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let (Some(parent), Some(last)) = (path.parent(), path.components().next_back()) else { return Err(error) };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match (last, whole(parent)?) {
                (Component::ParentDir, parent) => Ok(parent.parent().map_or(parent.clone(), Path::to_owned)),
                (last, parent) => Ok(parent.join(last)),
            }
        }
        found => found,
    }
}
