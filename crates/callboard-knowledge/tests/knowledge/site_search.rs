//! The search of a published site, in a browser that has opened it as a file.

use std::path::Path;

use callboard_knowledge::facts::FactState;
use callboard_knowledge::site::{FactCard, Outline, Page, Section, SiteSettings, SiteWriter, TextFormat};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::skipping::skip;

/// Titles and texts that would run a script if they were anything but text.
const HOSTILE: [&str; 4] = [
    "<img src=x onerror=\"globalThis.attacked=1\"> heron",
    "</script><script>globalThis.attacked=1</script> heron",
    "\"); globalThis.attacked=1; (\" heron",
    "<svg onload=globalThis.attacked=1> \u{202e}heron\u{2028}",
];

fn page(path: &str, title: &str, sections: &[(&str, &str)]) -> Page {
    let sections = (1..).zip(sections).map(|(number, (title, text))| Section {
        anchor: format!("section-{number}"),
        other_anchors: Vec::new(),
        title: (*title).to_owned(),
        text: (*text).to_owned(),
        lines: number..=number,
    });
    Page {
        path: path.to_owned(),
        title: title.to_owned(),
        format: TextFormat::Markdown,
        sections: sections.collect(),
        is_untrusted: false,
    }
}

fn publish(out: &Path) {
    let mut pages = vec![
        page(
            "docs/gate.md",
            "The gate",
            &[("Opening hours", "The gate opens at nine."), ("Keys", "Ann has the keys.")],
        ),
        page("docs/token.md", "Tokens", &[("Checks", "A token is checked at the gate by `readFacts`.")]),
        page(
            "docs/names.md",
            "Names",
            &[("To open a gate, 2 of them", "Whoever opens a gate."), ("Opening", "Called as `open_gate_2`.")],
        ),
        page("docs/Größe.md", "Größe", &[("知識の木", "Die Größe des Baums.")]),
    ];
    for (number, text) in HOSTILE.into_iter().enumerate() {
        pages.push(page(&format!("hostile/{number}.md"), text, &[(text, text)]));
    }
    let fact = FactCard {
        id: "fact-1".to_owned(),
        statement: format!("The lock is new. {}", HOSTILE[0]),
        state: FactState::Disputed,
        sources: Vec::new(),
        since: "2026-03-04T05:06:07Z".to_owned(),
        subject: None,
        predicate: None,
        value: None,
        contradicts: Vec::new(),
    };
    let mut outline = Outline::new();
    pages.iter().for_each(|page| outline.add_page(page));
    outline.add_fact(&fact);
    let settings = SiteSettings { title: "Gates".to_owned(), about: None, as_of: None };
    let mut writer = SiteWriter::create(out, settings, outline).unwrap();
    pages.iter().for_each(|page| writer.add_page(page).unwrap());
    writer.add_fact(&fact).unwrap();
    writer.finish().unwrap().publish().unwrap().unwrap();
}

/// Waits until the results are shown: what the status reports, and of each result its texts, its link, and the elements within it.
const RESULTS: &str = r#"new Promise((resolve) => {
  const [results, status] = ["kb:results", "kb:status"].map((id) => document.getElementById(id));
  const panel = results.parentElement;
  const look = () => {
    if (panel.hidden || !status.textContent) return;
    const text = (item, part) => item.querySelector("." + part)?.textContent ?? "";
    resolve({
      status: status.textContent,
      found: [...results.children].map((item) => [text(item, "title"), item.dataset.target, text(item, "state"), text(item, "excerpt")]),
      elements: [...new Set([...results.querySelectorAll("*")].map((element) => element.localName))].sort(),
      attacked: globalThis.attacked ?? null,
    });
  };
  new MutationObserver(look).observe(panel, { attributes: true, childList: true, characterData: true, subtree: true });
  look();
})"#;

/// What a page of the site finds.
fn found(browser: &mut Browser, url: &str, query: &str) -> Value {
    browser.opens(url);
    browser.presses("/", "/");
    browser.types(query);
    browser.value(RESULTS)
}

#[test]
fn a_site_is_searched_in_a_browser_and_hostile_titles_are_text_there() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let place = tempfile::tempdir().unwrap();
    let out = place.path().canonicalize().unwrap().join("site");
    publish(&out);
    let url = |file: &str| format!("file://{}", out.join(file).display());
    let index = url("index.html");
    for (query, title, target) in [
        ("opening", "Opening hours", "pages/docs/gate.md.html#section-1"),
        ("KEYS ann", "Keys", "pages/docs/gate.md.html#section-2"),
        ("facts token", "Checks", "pages/docs/token.md.html#section-1"),
        ("chec", "Checks", "pages/docs/token.md.html#section-1"),
        // An identifier in each way of writing it, and its beginning.
        ("readFacts", "Checks", "pages/docs/token.md.html#section-1"),
        ("read_facts", "Checks", "pages/docs/token.md.html#section-1"),
        ("ReadFac", "Checks", "pages/docs/token.md.html#section-1"),
        ("open_gate_2", "Opening", "pages/docs/names.md.html#section-2"),
        ("größe baums", "知識の木", "#section-1"),
        ("知識", "知識の木", "#section-1"),
        ("lock", "The lock is new. <img src=x onerror=\"globalThis.attacked=1\"> heron", "facts/index.html#fact-1"),
    ] {
        // From the front page and from one in a folder of folders.
        for from in [&index, &url("pages/docs/token.md.html")] {
            let results = found(&mut browser, from, query);
            let first = &results["found"][0];
            let is_there =
                first[1].as_str().unwrap().starts_with(&url("")) && first[1].as_str().unwrap().ends_with(target);
            assert!(first[0] == title && is_there, "{query}: {results}");
        }
    }
    let results = found(&mut browser, &index, "openGate2");
    assert_eq!((&results["status"], &results["found"][1][0]), (&json!("2 results."), &json!("Opening")), "{results}");

    let results = found(&mut browser, &index, "nothing that anybody wrote zzz");
    assert_eq!((&results["status"], &results["found"]), (&json!("Nothing found."), &json!([])));

    let results = found(&mut browser, &index, "heron");
    assert_eq!(
        (&results["attacked"], &results["elements"]),
        (&Value::Null, &json!(["li", "mark", "span"])),
        "{results}"
    );
    let titles: Vec<&str> =
        results["found"].as_array().unwrap().iter().map(|found| found[0].as_str().unwrap()).collect();
    for text in &HOSTILE[..3] {
        assert!(titles.contains(text), "{text}: {titles:?}");
    }
    assert!(titles.contains(&"<svg onload=globalThis.attacked=1> \\u{202e}heron"), "{titles:?}");
    // The first result is opened by a key, and its page runs nothing either.
    browser.presses("Enter", "\r");
    browser.until("Page.loadEventFired");
    let shown = browser.value("[location.href, document.querySelector('h1').textContent, globalThis.attacked ?? null]");
    assert_eq!(shown[0], results["found"][0][1]);
    assert!(HOSTILE[..3].contains(&shown[1].as_str().unwrap()) && shown[2].is_null(), "{shown}");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}
