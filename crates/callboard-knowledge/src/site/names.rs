//! Names of the site's files and of the anchors in them. Pure.
//!
//! The name of a file follows from the path of its document alone, so that a link can be written before the other page is, and one
//! document cannot change the name of another. Two paths have two names, also where a file system ignores case: a path of plain
//! characters is kept in lower case, with the places of its capitals behind a `~`, and every other path is named by its hash.

use sha2::{Digest as _, Sha256};

use crate::digest;

/// The folder of the pages of documents.
pub(super) const PAGES: &str = "pages";
/// The folder of the pages of entities.
pub(super) const ENTITIES: &str = "entity";

/// The longest part of a path that is kept, in bytes; file systems have 255, and the end is added to it.
const MAX_SEGMENT: usize = 80;
/// The longest path that is kept, in bytes.
const MAX_PATH: usize = 160;
/// The most of an unusual path that its name keeps for readers.
const MAX_SLUG: usize = 40;
/// The longest anchor that is kept, in bytes.
const MAX_ANCHOR: usize = 100;

/// Returns the file of a document, relative to the site.
pub(super) fn of_document(path: &str) -> String {
    format!("{PAGES}/{}.html", safe(path))
}

/// Returns the file of an entity, relative to the site.
pub(super) fn of_entity(name: &str) -> String {
    format!("{ENTITIES}/{}.html", safe(name))
}

/// Returns the file of a page of the list of a folder's documents, relative to the site. Pages are counted from zero.
pub(super) fn of_folder(folder: &str, number: usize) -> String {
    // No other name has a `p` behind its `~`.
    let page = if number == 0 { String::new() } else { format!("~p{}", number + 1) };
    format!("folders/{}{page}.html", safe(folder))
}

/// Returns the id of an element for an anchor. The site's own ids begin with `kb:`, which no other has.
pub(super) fn anchor(anchor: &str) -> String {
    let is_kept = |c: char| (c.is_alphanumeric() && !callboard_text::is_unseen(c)) || c == '-' || c == '_';
    if !anchor.is_empty() && anchor.len() <= MAX_ANCHOR && anchor.chars().all(is_kept) {
        anchor.to_owned()
    } else {
        format!("x:{}", hash(anchor))
    }
}

/// Returns a fragment for an id, such that it can stand in a URL.
pub(super) fn fragment(id: &str) -> String {
    let mut fragment = String::from("#");
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b':') {
            fragment.push(char::from(byte));
        } else {
            fragment.push_str(&format!("%{byte:02X}"));
        }
    }
    fragment
}

/// Returns what leads from a file to the folder of the site.
pub(super) fn root(file: &str) -> String {
    "../".repeat(file.matches('/').count())
}

fn safe(path: &str) -> String {
    plain(path).unwrap_or_else(|| hashed(path))
}

fn plain(path: &str) -> Option<String> {
    let lower = path.to_ascii_lowercase();
    let mut segments = lower.rsplit('/');
    let is_plain = path.len() <= MAX_PATH
        && segments.next().is_some_and(is_plain_segment)
        // A folder must not have the name of a page.
        && segments.all(|folder| is_plain_segment(folder) && !folder.ends_with(".html"));
    if !is_plain {
        return None;
    }
    let capitals = capitals(path)?;
    Some(if capitals == 0 { lower } else { format!("{lower}~{capitals:x}") })
}

fn is_plain_segment(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or_default();
    !segment.is_empty()
        && segment.len() <= MAX_SEGMENT
        && segment.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte))
        && !segment.starts_with('.')
        && !segment.ends_with('.')
        && !is_device(stem)
}

/// Whether Windows has a device of this name, in every folder and with every extension.
fn is_device(stem: &str) -> bool {
    matches!(stem, "con" | "prn" | "aux" | "nul" | "clock$")
        || (stem.len() == 4
            && (stem.starts_with("com") || stem.starts_with("lpt"))
            && stem.ends_with(|c: char| c.is_ascii_digit()))
}

/// Returns which letters are capitals, one bit for each letter. `None` if the path has capitals and more letters than bits.
fn capitals(path: &str) -> Option<u64> {
    let letters = path.bytes().filter(u8::is_ascii_alphabetic);
    if !path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(0);
    }
    let mut capitals = 0;
    for (place, letter) in letters.enumerate() {
        if letter.is_ascii_uppercase() {
            capitals |= 1_u64.checked_shl(u32::try_from(place).ok()?)?;
        }
    }
    Some(capitals)
}

fn hashed(path: &str) -> String {
    let mut slug = String::new();
    for c in path.chars() {
        if slug.len() == MAX_SLUG {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    // Two of them: what is kept has one at most, and none where a path is named by its hash.
    format!("{}~~{}", slug.trim_end_matches('-'), hash(path))
}

/// The first 80 bits of SHA-256: two documents of one name are refused, never mixed.
fn hash(text: &str) -> String {
    digest::hex(&Sha256::digest(text.as_bytes())[..10])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &[&str] = &[
        "",
        ".",
        "..",
        "/",
        "//",
        "/etc/passwd",
        "../up.md",
        "a/../../b.md",
        "a//b",
        "a/./b",
        "C:\\boot.ini",
        "a\\..\\b",
        "con",
        "CON",
        "con.md",
        "docs/nul.txt",
        "aux/a.md",
        "com1.md",
        "lpt9",
        "clock$",
        "a.",
        "a ",
        " a",
        ".hidden",
        "a/.git/b",
        "a.md",
        "A.md",
        "a.MD",
        "Docs/a.md",
        "docs/a.md",
        "docs/A.md",
        "a.html/b",
        "a",
        "a.html",
        "a~1",
        "a~~1",
        "~",
        "ü.md",
        "u\u{308}.md",
        "a\0b",
        "a\nb",
        "a\u{202e}dm.b",
        "a\u{200b}b",
        "a?b",
        "a#b",
        "a%2e%2e/b",
        "a:b",
        "a*b",
        "a\"b",
        "a<b>",
        "index",
        "index.html",
        "a|b",
        "\u{1f600}.md",
        "STRASSE",
        "straße",
        "K.md",
        "\u{212a}.md",
    ];

    fn check(path: &str, file: &str) {
        let segments: Vec<&str> = file.split('/').collect();
        assert_eq!(segments[0], PAGES, "{path:?}");
        for segment in &segments {
            assert!(
                !segment.is_empty()
                    && segment.len() <= 200
                    && !segment.starts_with('.')
                    && !segment.ends_with(['.', ' '])
            );
            assert!(
                segment
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.~".contains(&byte))
            );
            assert!(!is_device(segment.split('.').next().unwrap()), "{path:?}: {file}");
        }
        assert!(file.ends_with(".html") && file.len() < 256);
        assert!(segments[..segments.len() - 1].iter().all(|folder| !folder.ends_with(".html")), "{path:?}: {file}");
    }

    #[test]
    fn every_hostile_path_has_a_file_of_its_own_within_the_pages() {
        let (long, deep) = ("x".repeat(100_000), "a/".repeat(50_000));
        let capitals = "aB".repeat(40);
        let mut files = BTreeMap::new();
        for path in HOSTILE.iter().copied().chain([long.as_str(), deep.as_str(), capitals.as_str()]) {
            let file = of_document(path);
            check(path, &file);
            assert_eq!(files.insert(file, path), None, "{path:?}");
        }
    }

    #[test]
    fn usual_paths_keep_their_names() {
        assert_eq!(of_document("docs/auth.md"), "pages/docs/auth.md.html");
        assert_eq!(of_document("README.md"), "pages/readme.md~3f.html");
        assert_eq!(of_entity("read_facts"), "entity/read_facts.html");
        assert_eq!((root("index.html").as_str(), root("pages/docs/a.html").as_str()), ("", "../../"));
    }

    #[test]
    fn anchors_are_ids_that_a_fragment_leads_to() {
        assert_eq!((anchor("the-rules"), fragment("the-rules")), ("the-rules".to_owned(), "#the-rules".to_owned()));
        assert_eq!(fragment(&anchor("größe")), "#gr%C3%B6%C3%9Fe");
        for hostile in ["", "a b", "kb:search", "a\"onload=x", "\u{202e}", "x:", &"a".repeat(101)] {
            let id = anchor(hostile);
            assert!(id.starts_with("x:") && id.len() == 22, "{hostile:?}: {id}");
        }
    }

    proptest! {
        #[test]
        fn two_paths_have_two_names(one in "[a-cA-C./~]{0,6}|\\PC{0,12}", other in "[a-cA-C./~]{0,6}|\\PC{0,12}") {
            check(&one, &of_document(&one));
            prop_assert_eq!(of_document(&one) == of_document(&other), one == other);
        }

        #[test]
        fn any_text_is_named(path in any::<String>()) {
            check(&path, &of_document(&path));
        }
    }
}
