//! The script, the stylesheet and the icon: files of this crate, with a part of their hash in their names, so that browsers keep them.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
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
    /// The content for browsers that take it compressed.
    compressed: Vec<u8>,
}

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, content: &'static str) -> Self {
        let hash = Sha256::digest(content.as_bytes());
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).take(DIGITS / 2).collect();
        let path = format!("/assets/{name}.{digits}.{extension}");
        Self { path, media_type, content, compressed: compressed(content).unwrap_or_default() }
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

fn compressed(content: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content.as_bytes())?;
    encoder.finish()
}

/// Whether a browser takes an answer that is compressed with gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Answers with the file of this name. Pages themselves are not compressed: they have secrets beside texts of others.
pub(super) async fn get(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let all = [&*STYLE, &*SCRIPT, &*RUN_STYLE, &*RUN_SCRIPT, &*ICON];
    match all.into_iter().find(|asset| asset.path.strip_prefix("/assets/") == Some(&*name)) {
        Some(asset) => {
            let of_all = [
                (CONTENT_TYPE, asset.media_type),
                (CACHE_CONTROL, "public, max-age=31536000, immutable"),
                (VARY, "accept-encoding"),
            ];
            if takes_gzip(&headers) && !asset.compressed.is_empty() {
                return (of_all, [(CONTENT_ENCODING, "gzip")], asset.compressed.clone()).into_response();
            }
            (of_all, asset.content).into_response()
        }
        None => Problem::not_found("there is no such file").into_response(),
    }
}
