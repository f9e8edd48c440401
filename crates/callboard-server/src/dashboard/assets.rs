//! The script, the stylesheet and the icon: files of this crate, with a part of their hash in their names, so that browsers keep them.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;

/// How many digits of the hash a name has.
const DIGITS: usize = 12;

/// A file of the pages.
pub(super) struct Asset {
    /// Its path, with the hash.
    pub(super) path: String,
    media_type: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, content: &'static str) -> Self {
        let hash = Sha256::digest(content.as_bytes());
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).take(DIGITS / 2).collect();
        Self { path: format!("/assets/{name}.{digits}.{extension}"), media_type, content }
    }
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", include_str!("style.css")));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("script", "js", "text/javascript; charset=utf-8", include_str!("script.js")));
/// The stylesheet and the script of the pages about runs, which the overview does without.
pub(super) static RUN_STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("run", "css", "text/css; charset=utf-8", include_str!("run.css")));
pub(super) static RUN_SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("run", "js", "text/javascript; charset=utf-8", include_str!("run.js")));
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

/// Answers with the file of this name.
pub(super) async fn get(Path(name): Path<String>) -> Response {
    let all = [&*STYLE, &*SCRIPT, &*RUN_STYLE, &*RUN_SCRIPT, &*ICON];
    match all.into_iter().find(|asset| asset.path.strip_prefix("/assets/") == Some(&*name)) {
        Some(asset) => {
            let headers = [(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.content).into_response()
        }
        None => Problem::not_found("there is no such file").into_response(),
    }
}
