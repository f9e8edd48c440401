//! What a browser would make of a site, by the tokenizer of the HTML standard.

use std::collections::{BTreeMap, BTreeSet};

use html5gum::{Token, Tokenizer};

/// An element's start: its name, and its attributes.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, String>,
}

/// A page: its elements, its text, and whether all elements are closed in order.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) starts: Vec<Start>,
    pub(super) text: String,
}

const VOID: [&str; 5] = ["br", "hr", "input", "link", "meta"];

/// Reads a page. Panics if an element is not closed where its parent is.
pub(super) fn read(name: &str, page: &[u8]) -> Read {
    let page = std::str::from_utf8(page).unwrap();
    let (mut read, mut open) = (Read::default(), Vec::new());
    for token in Tokenizer::new(page) {
        match token.unwrap() {
            Token::StartTag(tag) => {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let tag_name = text(&tag.name);
                if !VOID.contains(&tag_name.as_str()) {
                    assert!(!tag.self_closing, "{name}: {tag_name} closes itself");
                    assert!(tag_name != "a" || !open.contains(&tag_name), "{name}: a link within a link");
                    open.push(tag_name.clone());
                    assert!(open.len() < 48, "{name}: {} elements within each other", open.len());
                }
                let attributes = tag.attributes.iter().map(|(key, value)| (text(key), text(value))).collect();
                read.starts.push(Start { name: tag_name, attributes });
            }
            Token::EndTag(tag) => {
                let tag_name = String::from_utf8(tag.name.to_vec()).unwrap();
                assert_eq!(open.pop().as_deref(), Some(tag_name.as_str()), "{name}: closed out of order");
            }
            Token::String(text) => read.text.push_str(std::str::from_utf8(&text).unwrap()),
            Token::Comment(comment) => panic!("{name}: a comment: {comment:?}"),
            Token::Doctype(_) => {}
            Token::Error(error) => panic!("{name}: {error:?}"),
        }
    }
    assert!(open.is_empty(), "{name}: open at the end: {open:?}");
    read
}

const ELEMENTS: &[&str] = &[
    "a",
    "article",
    "aside",
    "bdi",
    "blockquote",
    "body",
    "br",
    "code",
    "del",
    "div",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "input",
    "kbd",
    "label",
    "li",
    "link",
    "main",
    "meta",
    "nav",
    "ol",
    "p",
    "pre",
    "script",
    "search",
    "section",
    "span",
    "strong",
    "sup",
    "table",
    "td",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "ul",
];

const ATTRIBUTES: &[&str] = &[
    "autocomplete",
    "charset",
    "class",
    "content",
    "datetime",
    "defer",
    "for",
    "hidden",
    "href",
    "http-equiv",
    "id",
    "lang",
    "maxlength",
    "name",
    "placeholder",
    "rel",
    "role",
    "scope",
    "spellcheck",
    "src",
    "start",
    "title",
    "type",
];

/// Checks that no page of a site can run or load anything but the site's own files, that every link leads somewhere, and that the files of
/// the index have only values. Returns the pages.
pub(super) fn check(files: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Read> {
    for (name, bytes) in files {
        let text = std::str::from_utf8(bytes).unwrap();
        let hidden = text.chars().find(|&c| (c.is_control() && c != '\n' && c != '\t') || callboard_text::is_unseen(c));
        assert_eq!(hidden, None, "{name}: a character that is not shown");
        if name.starts_with("search/") {
            check_index(name, text);
        }
    }
    let pages: BTreeMap<String, Read> = files
        .iter()
        .filter(|(name, _)| name.ends_with(".html"))
        .map(|(name, page)| (name.clone(), read(name, page)))
        .collect();
    let ids: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(name, page)| (name.as_str(), ids(name, page))).collect();
    for (name, page) in &pages {
        check_page(name, page);
        for start in &page.starts {
            for link in start
                .attributes
                .iter()
                .filter(|(key, _)| matches!(key.as_str(), "href" | "src"))
                .map(|(_, value)| value)
            {
                if is_outside(link) {
                    assert_eq!(
                        (start.name.as_str(), start.attributes["rel"].as_str()),
                        ("a", "noopener noreferrer"),
                        "{name}: {link}"
                    );
                } else {
                    check_inside(name, link, files, &ids);
                }
            }
        }
    }
    pages
}

fn ids<'a>(name: &str, page: &'a Read) -> BTreeSet<&'a str> {
    let mut ids = BTreeSet::new();
    for id in page.starts.iter().filter_map(|start| start.attributes.get("id")) {
        assert!(ids.insert(id.as_str()), "{name}: two elements have the id {id}");
        assert!(!id.chars().any(char::is_whitespace), "{name}: {id:?}");
    }
    ids
}

fn check_page(name: &str, page: &Read) {
    for start in &page.starts {
        assert!(ELEMENTS.contains(&start.name.as_str()), "{name}: {start:?}");
        for key in start.attributes.keys() {
            assert!(ATTRIBUTES.contains(&key.as_str()) || key.starts_with("aria-"), "{name}: {start:?}");
        }
    }
    let of = |element: &str| page.starts.iter().filter(|start| start.name == element).collect::<Vec<_>>();
    for (element, attribute, own) in
        [("script", "src", &["search.js"][..]), ("link", "href", &["icon.svg", "style.css"])]
    {
        let found: Vec<&str> =
            of(element).iter().map(|start| start.attributes[attribute].trim_start_matches("../")).collect();
        assert_eq!(found, own, "{name}");
    }
    for element in ["main", "h1", "header", "title", "html", "body"] {
        assert_eq!(of(element).len(), 1, "{name}: {element}");
    }
    let policies: Vec<&str> = of("meta")
        .iter()
        .filter(|meta| meta.attributes.get("http-equiv").is_some_and(|kind| kind == "Content-Security-Policy"))
        .map(|meta| meta.attributes["content"].as_str())
        .collect();
    assert!(
        matches!(policies[..], [policy] if policy.starts_with("default-src 'none'; script-src 'self';")),
        "{name}: {policies:?}"
    );
    let kinds: Vec<&String> = of("meta").into_iter().filter_map(|meta| meta.attributes.get("http-equiv")).collect();
    assert_eq!(kinds.len(), 1, "{name}: {kinds:?}");
}

fn is_outside(link: &str) -> bool {
    let lower = link.to_ascii_lowercase();
    let is_outside = lower.starts_with("https://") || lower.starts_with("http://") || lower.starts_with("mailto:");
    let first = link.split(['/', '?', '#']).next().unwrap();
    assert!(is_outside || !first.contains(':'), "a scheme: {link}");
    assert!(link.bytes().all(|byte| byte.is_ascii_graphic()), "{link:?}");
    is_outside
}

fn check_inside(from: &str, link: &str, files: &BTreeMap<String, Vec<u8>>, ids: &BTreeMap<&str, BTreeSet<&str>>) {
    assert!(!link.starts_with('/') && !link.contains('\\'), "{from}: {link}");
    let (path, fragment) = link.split_once('#').map_or((link, None), |(path, fragment)| (path, Some(fragment)));
    let mut segments: Vec<&str> = from.split('/').collect();
    if !path.is_empty() {
        segments.pop();
        for segment in path.split('/') {
            if segment == ".." {
                segments.pop().unwrap_or_else(|| panic!("{from}: {link} leads out of the site"));
            } else {
                segments.push(segment);
            }
        }
    }
    let target = segments.join("/");
    assert!(files.contains_key(&target), "{from}: {link} leads to no file");
    if let Some(fragment) = fragment {
        let id = decoded(fragment);
        assert!(ids[target.as_str()].contains(id.as_str()), "{from}: {link} leads to no element");
    }
}

fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| char::from(byte.unwrap()).to_digit(16).unwrap() as u8;
        bytes.push(if byte == b'%' { hex(rest.next()) * 16 + hex(rest.next()) } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}

/// A file of the index is one call whose arguments are values.
fn check_index(name: &str, text: &str) {
    let arguments = ["directory", "words", "entries"]
        .iter()
        .find_map(|call| text.strip_prefix(&format!("callboardSearch.{call}(")));
    let arguments = arguments.and_then(|rest| rest.strip_suffix(");\n")).unwrap_or_else(|| panic!("{name}: {text}"));
    let values: Vec<serde_json::Value> =
        serde_json::from_str(&format!("[{arguments}]")).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!values.is_empty() && !text.contains('<'), "{name}");
}

/// The entries of a site's index whose words contain one that begins so.
pub(super) fn found(files: &BTreeMap<String, Vec<u8>>, prefix: &str) -> Vec<String> {
    let values = |kind: &str| {
        let names = files.keys().filter(|name| name.starts_with(&format!("search/{kind}-")));
        let mut all: Vec<(u64, Vec<serde_json::Value>)> = names
            .map(|name| {
                let text = std::str::from_utf8(&files[name]).unwrap();
                let (_, arguments) = text.split_once('(').unwrap();
                serde_json::from_str(&format!("[{}]", arguments.trim_end_matches(");\n"))).unwrap()
            })
            .collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().flat_map(|(_, values)| values).collect::<Vec<_>>()
    };
    let entries = values("entries");
    let mut found = BTreeSet::new();
    for word in values("words").iter().filter(|word| word[0].as_str().unwrap().starts_with(prefix)) {
        let mut entry = 0;
        for pair in word[2].as_array().unwrap().chunks(2) {
            entry += usize::try_from(pair[0].as_u64().unwrap()).unwrap();
            found.insert(entry);
        }
    }
    found.into_iter().map(|entry| entries[entry][0].as_str().unwrap().to_owned()).collect()
}
