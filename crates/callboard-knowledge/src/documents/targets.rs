//! What the target of a link in a document refers to. Pure.

use super::formats::Format;

/// The longest target in bytes; a longer one is not followed.
const MAX_TARGET: usize = 2_048;

/// What a target refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A path below the folder that is indexed, or an URL.
    To { to: String, anchor: Option<String> },
    /// A path out of the folder.
    Outside,
    /// What is no file and no page: an address of mail, a script, a target that is no path.
    Other,
}

/// Resolves the target of a link. Relative paths begin at the folder of the document, those with a `/` before them at the folder that is
/// indexed. Whatever is written, the path that results has no `..`, and does not begin with `/`.
pub(super) fn target(document: &str, written: &str) -> Target {
    let written = written.trim();
    if written.is_empty() || written.len() > MAX_TARGET || written.contains(char::is_control) {
        return Target::Other;
    }
    let (to, anchor) = written.split_once('#').map_or((written, None), |(to, anchor)| (to, Some(anchor)));
    let anchor = anchor.filter(|anchor| !anchor.is_empty());
    if let Some(scheme) = scheme(to) {
        let is_page = ["http", "https"].iter().any(|page| scheme.eq_ignore_ascii_case(page));
        return if is_page {
            Target::To { to: to.to_owned(), anchor: anchor.and_then(decoded) }
        } else {
            Target::Other
        };
    }
    let to = to.split('?').next().unwrap_or(to);
    let Some(path) = decoded(to) else {
        return Target::Other;
    };
    below(document, &path, anchor.and_then(decoded))
}

/// Resolves the target of a link of a wiki, `Page#Section`. A page without the ending of a known format is a Markdown file.
pub(super) fn wiki_target(document: &str, written: &str) -> Target {
    let written = written.trim();
    if written.is_empty() || written.len() > MAX_TARGET || written.contains(char::is_control) {
        return Target::Other;
    }
    let (page, anchor) = written.split_once('#').map_or((written, None), |(page, anchor)| (page, Some(anchor)));
    let page =
        if page.is_empty() || Format::by_ending(page).is_some() { page.to_owned() } else { format!("{page}.md") };
    below(document, &page, anchor.filter(|anchor| !anchor.is_empty()).map(str::to_owned))
}

/// The scheme of an URL, if it has one.
fn scheme(to: &str) -> Option<&str> {
    let (scheme, _) = to.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
    is_scheme.then_some(scheme)
}

fn below(document: &str, path: &str, anchor: Option<String>) -> Target {
    if path.is_empty() {
        return Target::To { to: document.to_owned(), anchor };
    }
    // Programs for Windows write backslashes, and where a path has a drive, joining it replaces the folder.
    let path = path.replace('\\', "/");
    let has_drive = path.as_bytes().get(1) == Some(&b':') && path.starts_with(|c: char| c.is_ascii_alphabetic());
    if has_drive || path.starts_with("//") {
        return Target::Other;
    }
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let from = if path.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Target::Outside;
                }
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() { Target::Other } else { Target::To { to: parts.join("/"), anchor } }
}

/// Undoes percent encoding. What results in no UTF-8 or in control characters is no name.
fn decoded(written: &str) -> Option<String> {
    let bytes = written.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |at: usize| bytes.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).ok()?);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok().filter(|decoded| !decoded.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to(path: &str, anchor: Option<&str>) -> Target {
        Target::To { to: path.to_owned(), anchor: anchor.map(str::to_owned) }
    }

    #[test]
    fn relative_paths_begin_at_the_folder_of_the_document() {
        for (written, expected) in [
            ("b.md", to("docs/b.md", None)),
            ("./b.md#the-gate", to("docs/b.md", Some("the-gate"))),
            ("../README.md?plain=1#L3", to("README.md", Some("L3"))),
            ("/src/lib.rs", to("src/lib.rs", None)),
            ("#here", to("docs/a.md", Some("here"))),
            ("My%20Page.md", to("docs/My Page.md", None)),
            ("..\\up.md", to("up.md", None)),
            ("sub/", to("docs/sub", None)),
            ("100%.md", to("docs/100%.md", None)),
        ] {
            assert_eq!(target("docs/a.md", written), expected, "{written}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        for written in ["../../x", "%2e%2e/%2e%2e/x", "..%2f..%2fx", "/../x", "..\\..\\x", "a/../../../x"] {
            assert_eq!(target("docs/a.md", written), Target::Outside, "{written}");
        }
    }

    #[test]
    fn only_pages_of_the_web_are_urls() {
        assert_eq!(target("a.md", "https://x.org/a?b#c"), to("https://x.org/a?b", Some("c")));
        for written in [
            "javascript:alert(1)",
            "data:text/html,x",
            "mailto:a@b.c",
            "file:///etc/passwd",
            "//x.org/a",
            "c:/x",
            "%43:/x",
            "",
            "..",
            "%00",
            "%ff",
        ] {
            assert_eq!(target("docs/a.md", written), Target::Other, "{written}");
        }
    }

    #[test]
    fn pages_of_a_wiki_are_markdown_files() {
        assert_eq!(wiki_target("wiki/a.md", "The Page#Its part"), to("wiki/The Page.md", Some("Its part")));
        assert_eq!(wiki_target("wiki/a.md", "notes.txt"), to("wiki/notes.txt", None));
        assert_eq!(wiki_target("wiki/a.md", "#Its part"), to("wiki/a.md", Some("Its part")));
        assert_eq!(wiki_target("wiki/a.md", "../../x"), Target::Outside);
    }

    proptest! {
        #[test]
        fn a_resolved_path_is_always_relative_and_without_dots(written in "([./\\\\%#?:a-c2eE5CF]|%2e|%2f|\\.\\.){0,24}", is_wiki: bool) {
            let target = if is_wiki { wiki_target("d/e/f.md", &written) } else { target("d/e/f.md", &written) };
            if let Target::To { to, .. } = target {
                prop_assert!(!to.is_empty() && to.split('/').all(|part| !["", ".", ".."].contains(&part)), "{}", to);
            }
        }
    }
}
