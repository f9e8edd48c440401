//! Where the links of a document lead. Pure.
//!
//! A link leads to a page of the site, to the web (`http`, `https`) or to a mailbox. Everything else (scripts, data, files, hosts without a
//! scheme) is shown as text, with the reason.

use super::outline::Outline;
use super::texts;

/// The longest destination that is followed, in bytes.
const MAX_DESTINATION: usize = 2_000;
/// The most of a destination that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// To a file of the site, relative to its folder; with a remark if the anchor is not there.
    Inside { file: String, remark: Option<String> },
    /// Out of the site, to a URL whose characters are all ASCII.
    Outside { url: String },
    /// Nowhere, for this reason.
    Broken { reason: String },
}

/// Resolves a destination that is written in the document at `page`.
pub(super) fn resolve(outline: &Outline, page: &str, destination: &str) -> Link {
    let shown = texts::excerpt(destination, MAX_SHOWN);
    let broken = |reason: &str| Link::Broken { reason: format!("{reason}: {shown}") };
    if destination.len() > MAX_DESTINATION {
        return broken("The link is too long to be followed");
    }
    // Browsers delete some control characters within a URL and take a backslash as a slash.
    if destination.chars().any(|c| c.is_control() || callboard_text::is_unseen(c) || c == '\\') {
        return broken("The link has characters that are not shown");
    }
    let destination = destination.trim();
    if let Some(scheme) = scheme(destination) {
        let rest = &destination[scheme.len() + 1..];
        let is_web = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https")
            && rest.strip_prefix("//").is_some_and(|host| host.starts_with(|c: char| c.is_alphanumeric() || c == '['));
        return match scheme.to_ascii_lowercase().as_str() {
            "mailto" => Link::Outside { url: encoded(destination) },
            _ if is_web => Link::Outside { url: encoded(destination) },
            _ => broken("The link is not followed, because it leads neither to a page nor to the web"),
        };
    }
    if destination.starts_with("//") {
        return broken("The link is not followed, because it has no scheme");
    }
    let (path, anchor) = match destination.split_once('#') {
        Some((path, anchor)) => (path, Some(decoded(anchor))),
        None => (destination, None),
    };
    let path = decoded(path.split('?').next().unwrap_or_default());
    let Some(path) = joined(page, &path) else { return broken("The link leads out of the base") };
    let anchor = anchor.filter(|anchor| !anchor.is_empty());
    let slash = if path.is_empty() { "" } else { "/" };
    let candidates = [
        path.clone(),
        format!("{path}.md"),
        format!("{path}{slash}README.md"),
        format!("{path}{slash}readme.md"),
        format!("{path}{slash}index.md"),
    ];
    let found = candidates.iter().find_map(|path| outline.link_to(path, anchor.as_deref()));
    match found {
        Some((file, true)) => Link::Inside { file, remark: None },
        Some((file, false)) => {
            Link::Inside { file, remark: Some(format!("The document has no such section: {shown}")) }
        }
        None => broken("The base has no such document"),
    }
}

/// Returns the scheme that a browser would see.
fn scheme(destination: &str) -> Option<&str> {
    let (scheme, _) = destination.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some(scheme)
}

/// Joins a relative path to the folder of a document, or returns `None` if it leads above the base.
fn joined(page: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(page.to_owned());
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut segments: Vec<&str> = Vec::new();
    let from = if path.starts_with('/') { "" } else { folder };
    for segment in from.split('/').chain(path.split('/')) {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop()?;
            }
            name => segments.push(name),
        }
    }
    Some(segments.join("/"))
}

/// Decodes `%xx`. What is no valid encoding stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let value = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match value
            .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
        {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}

/// Encodes what may not stand in a URL, and everything that is not ASCII.
fn encoded(url: &str) -> String {
    url.bytes().fold(String::with_capacity(url.len()), |mut encoded, byte| {
        if byte.is_ascii_graphic() && !b"\"'<>`{}|^".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::super::description::{Page, Section, TextFormat};
    use super::*;

    fn outline() -> Outline {
        let mut outline = Outline::new();
        for (path, anchor) in
            [("docs/auth.md", "tokens"), ("docs/über uns.md", "größe"), ("README.md", ""), ("docs/deep/README.md", "")]
        {
            let (anchor, title) = (anchor.to_owned(), path.to_owned());
            let section = Section { anchor, other_anchors: Vec::new(), title, text: String::new(), lines: 1..=1 };
            outline.add_page(&Page {
                path: path.to_owned(),
                title: path.to_owned(),
                format: TextFormat::Markdown,
                sections: vec![section],
                is_untrusted: false,
            });
        }
        outline
    }

    fn inside(file: &str) -> Link {
        Link::Inside { file: file.to_owned(), remark: None }
    }

    #[test]
    fn links_between_documents_lead_to_pages_of_the_site() {
        let outline = outline();
        for (destination, file) in [
            ("auth.md", "pages/docs/auth.md.html"),
            ("./auth.md#tokens", "pages/docs/auth.md.html#tokens"),
            ("auth", "pages/docs/auth.md.html"),
            ("#tokens", "pages/docs/auth.md.html#tokens"),
            ("?q#tokens", "pages/docs/auth.md.html#tokens"),
            ("../README.md", "pages/readme.md~3f.html"),
            ("/README.md", "pages/readme.md~3f.html"),
            ("..", "pages/readme.md~3f.html"),
            ("deep/", "pages/docs/deep/readme.md~fc00.html"),
        ] {
            let Link::Inside { file: found, remark } = resolve(&outline, "docs/auth.md", destination) else {
                panic!("{destination}: not inside");
            };
            assert_eq!(remark, None, "{destination}");
            if destination != "deep/" {
                assert_eq!(found, file, "{destination}");
            }
        }
        assert!(matches!(
            resolve(&outline, "docs/auth.md", "%C3%BCber%20uns.md#gr%C3%B6%C3%9Fe"),
            Link::Inside { file, remark: None } if file.ends_with("#gr%C3%B6%C3%9Fe")
        ));
        assert!(matches!(resolve(&outline, "docs/auth.md", "#none"), Link::Inside { remark: Some(_), .. }));
        assert_eq!(resolve(&outline, "README.md", "docs/auth.md"), inside("pages/docs/auth.md.html"));
    }

    #[test]
    fn links_to_the_web_are_encoded() {
        let outside = |url: &str| Link::Outside { url: url.to_owned() };
        let outline = outline();
        assert_eq!(resolve(&outline, "a.md", "https://a.example/x?y=z#1"), outside("https://a.example/x?y=z#1"));
        assert_eq!(resolve(&outline, "a.md", "HTTP://a.example/é'"), outside("HTTP://a.example/%C3%A9%27"));
        assert_eq!(resolve(&outline, "a.md", "mailto:a@b.example"), outside("mailto:a@b.example"));
    }

    #[test]
    fn everything_else_is_broken_with_a_reason() {
        let outline = outline();
        for destination in [
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            " javascript:alert(1)",
            "java\nscript:alert(1)",
            "java\tscript:alert(1)",
            "\u{1}javascript:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "file:///etc/passwd",
            "blob:x",
            "about:blank",
            "ftp://a",
            "//evil.example",
            "//docs/auth.md",
            "\\\\evil.example",
            "/\\evil.example",
            "https:evil.example",
            "https:/evil.example",
            "https:///evil.example",
            "http://",
            "https://\u{202e}evil",
            "https://@evil.example",
            "../../etc/passwd",
            "../../../README.md",
            "missing.md",
            "%2e%2e/%2e%2e/x",
            "x-scheme:y",
            "jar:http://a!/",
            "view-source:x",
            "intent://x",
            &"a".repeat(100_000),
        ] {
            let link = resolve(&outline, "docs/auth.md", destination);
            let Link::Broken { reason } = &link else { panic!("{destination:?}: {link:?}") };
            assert!(reason.chars().count() < 400 && !reason.chars().any(char::is_control));
        }
    }
}
