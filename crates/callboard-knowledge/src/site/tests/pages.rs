//! What the pages have.

use super::reading::{check, found};
use super::*;
use crate::documents::{ReadLimits, read_document};
use crate::facts::FactState;

fn example() -> Base {
    let mut auth = page(
        "docs/auth.md",
        "Authentication",
        &[
            (
                "Authentication",
                "# Authentication\n\nSee [the limits](limits.md#per-day), [what is missing](missing.md) and [the web](https://a.example/?q=1).\n",
            ),
            (
                "Tokens",
                "## `Tokens`\n\nA token has **one hour**[^1].\n\n| name | hours |\n|:--|--:|\n| short | 1 |\n\n[^1]: Refreshed [there][ref].\n",
            ),
            (
                "Refresh",
                "### Refresh\n\n- [x] done\n- [ ] open\n\n```rust\nlet a = b < c;\n```\n\n> [!WARNING]\n> Not <b>twice</b>.\n\n![A diagram](auth.png)\n",
            ),
            ("Notes", "[ref]: limits.md\n\nThe end.\n"),
        ],
    );
    auth.is_untrusted = true;
    let limits = page("docs/limits.md", "Limits", &[("Per day", "At most 100 tokens per day.")]);
    let mut source =
        page("src/lib.rs", "lib.rs", &[("fn issue_token", "/// Issues a token.\npub fn issue_token() {}\n")]);
    source.format = TextFormat::Plain;
    let mut first = fact("f-1", "A token lives for one hour.", FactState::Disputed);
    first.sources = vec![
        SourceRef {
            label: "Authentication, Tokens".to_owned(),
            page: Some("docs/auth.md".to_owned()),
            anchor: Some("tokens".to_owned()),
            place: "docs/auth.md:11-20".to_owned(),
        },
        SourceRef { label: "a person".to_owned(), page: None, anchor: None, place: String::new() },
    ];
    first.subject = Some("issue_token".to_owned());
    first.predicate = Some("lifetime".to_owned());
    first.value = Some("1 h".to_owned());
    first.contradicts = vec!["f-2".to_owned()];
    let second = fact("f-2", "A token lives for two hours.", FactState::Invalid);
    let token = Entity {
        name: "issue_token".to_owned(),
        kind: "function".to_owned(),
        defined: vec![Place { page: "src/lib.rs".to_owned(), anchor: Some("fn-issue_token".to_owned()) }],
        mentioned: vec![Place { page: "docs/auth.md".to_owned(), anchor: Some("tokens".to_owned()) }],
        facts: vec!["f-1".to_owned()],
        related: vec![("is limited by".to_owned(), "limit".to_owned())],
    };
    Base { pages: vec![auth, limits, source], facts: vec![first, second], entities: vec![token, entity("limit")] }
}

/// The page with one element on a line, for reading.
fn unfolded(page: &[u8]) -> String {
    std::str::from_utf8(page).unwrap().replace("><", ">\n<")
}

#[test]
fn the_page_of_a_document() {
    let files = site(&example());
    check(&files);
    insta::assert_snapshot!("document", unfolded(&files["pages/docs/auth.md.html"]));
}

#[test]
fn the_page_of_facts() {
    insta::assert_snapshot!("facts", unfolded(&site(&example())["facts/index.html"]));
}

#[test]
fn an_entity_has_its_places_facts_and_relations() {
    let pages = check(&site(&example()));
    let page = &pages["entity/issue_token.html"];
    let links: Vec<&str> =
        page.starts.iter().filter_map(|start| start.attributes.get("href")).map(String::as_str).collect();
    for link in [
        "../pages/src/lib.rs.html#fn-issue_token",
        "../pages/docs/auth.md.html#tokens",
        "../facts/index.html#f-1",
        "../entity/limit.html",
    ] {
        assert!(links.contains(&link), "{link}: {links:?}");
    }
    assert!(page.text.contains("is limited by"));
}

#[test]
fn the_first_page_counts_and_lists_what_there_is() {
    let pages = check(&site(&example()));
    let text = &pages["index.html"].text;
    for shown in ["3 documents", "2 facts", "2 entities", "docs 2", "src 1", "Limits limits.md"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn an_empty_base_has_a_site() {
    let files = site(&Base::default());
    let pages = check(&files);
    assert!(pages["index.html"].text.contains("The base has no documents yet."));
    assert!(pages["facts/index.html"].text.contains("The base has no facts yet."));
    assert!(pages["entities/index.html"].text.contains("The base has no entities yet."));
}

#[test]
fn large_bases_have_lists_of_several_pages() {
    let text = |number: usize| format!("Number {number} follows [that](d{}.md).", number.saturating_sub(1));
    let document = |number: usize| {
        let folder = if number < 600 { "big" } else { "other" };
        page(&format!("{folder}/d{number}.md"), &format!("Document {number}"), &[("All", &text(number))])
    };
    let base = Base {
        pages: (0..620).map(document).collect(),
        facts: (0..101)
            .map(|number| fact(&format!("f{number}"), &format!("Fact {number}."), FactState::Current))
            .collect(),
        entities: (0..801).map(|number| entity(&format!("e{number}"))).collect(),
    };
    let files = site(&base);
    let pages = check(&files);
    for name in [
        "facts/2.html",
        "facts/3.html",
        "entities/3.html",
        "folders/big.html",
        "folders/big~p2.html",
        "folders/other.html",
    ] {
        assert!(pages.contains_key(name), "{name}");
    }
    assert!(pages["facts/3.html"].text.contains("Page 3 of 3") && pages["facts/3.html"].text.contains("Fact 100."));
    assert!(pages["folders/big~p2.html"].text.contains("Document 599"));
    assert_eq!(found(&files, "number").len(), 620);
}

#[test]
fn a_search_finds_sections_facts_and_entities_by_the_beginning_of_a_word() {
    let files = site(&example());
    assert_eq!(
        found(&files, "tok"),
        [
            "pages/docs/auth.md.html#tokens",
            "pages/docs/limits.md.html#per-day",
            "pages/src/lib.rs.html#fn-issue_token",
            "facts/index.html#f-1",
            "facts/index.html#f-2",
            "entity/issue_token.html",
        ]
    );
    assert_eq!(found(&files, "refr"), ["pages/docs/auth.md.html#tokens", "pages/docs/auth.md.html#refresh"]);
    assert!(found(&files, "nothing").is_empty());
}

#[test]
fn a_title_that_the_text_repeats_is_shown_once() {
    let pages = check(&site(&Base {
        pages: vec![page(
            "a.md",
            "The `run` loop",
            &[("The `run` loop", "# The `run` loop\n\nx"), ("Next", "## Next\n\ny")],
        )],
        ..Base::default()
    }));
    let headings: Vec<&str> = pages["pages/a.md.html"]
        .starts
        .iter()
        .map(|start| start.name.as_str())
        .filter(|name| matches!(*name, "h1" | "h2" | "h3"))
        .collect();
    assert_eq!(headings, ["h1", "h2"]);
    assert_eq!(pages["pages/a.md.html"].text.matches("Next").count(), 1);
}

#[test]
fn every_heading_of_a_document_that_was_cut_has_the_anchor_that_links_have() {
    let text = "# Gate\n\n## Rules\n\n### Keys\n\n".to_owned()
        + &"A key opens *one* door.\n\n".repeat(100)
        + "See [the rules](#rules), [the keys](#keys) and [the end](#the-end).\n\n## The end\n\nClosed.\n";
    let document = read_document("gate.md", text.as_bytes(), &ReadLimits::default()).unwrap();
    assert!(document.passages.len() > 2, "{} passages", document.passages.len());
    let sections = Section::joined(document.passages.iter().map(Section::from));
    let pages = check(&site(&Base {
        pages: vec![Page {
            path: document.path,
            title: document.title,
            format: TextFormat::Markdown,
            sections,
            is_untrusted: false,
        }],
        ..Base::default()
    }));
    let page = &pages["pages/gate.md.html"];
    let headings: Vec<(&str, &str)> = page
        .starts
        .iter()
        .filter(|start| matches!(start.name.as_str(), "h1" | "h2" | "h3"))
        .map(|start| (start.name.as_str(), start.attributes["id"].as_str()))
        .collect();
    assert_eq!(headings, [("h1", "gate"), ("h2", "rules"), ("h3", "keys"), ("h2", "the-end")]);
    let links: Vec<&str> =
        page.starts.iter().filter(|start| start.name == "a").map(|start| start.attributes["href"].as_str()).collect();
    for anchor in ["rules", "keys", "the-end"] {
        assert!(links.contains(&format!("../pages/gate.md.html#{anchor}").as_str()), "{links:?}");
    }
    assert_eq!(page.text.matches("opens one door").count(), 100);
}
