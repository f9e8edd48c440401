//! `callboard kb init`.

use serde_json::json;

use crate::page::{Failure, Page};

use super::arguments::Init;
use super::base::create;

/// Indexes the files of a folder.
pub(super) async fn main(init: &Init) -> Result<Page, Failure> {
    let stores = init.place.common.choice.stores()?;
    let base = create(&stores)?;
    let _ = (&base, &init.path, init.untrusted);
    Ok(Page::new(String::new(), json!({})))
}
