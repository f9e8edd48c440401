//! The frame that every page of a site has.

use maud::{DOCTYPE, Markup, html};

use super::description::SiteSettings;
use super::names;
use super::texts::label;

/// What a page may load: files of the site, and no script or style that is written in a page.
const POLICY: &str =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'";

/// The rooms of a site, as its navigation has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Contents,
    Facts,
    Entities,
}

impl Part {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Contents, "Documents", "index.html"),
        (Self::Facts, "Facts", "facts/index.html"),
        (Self::Entities, "Entities", "entities/index.html"),
    ];
}

/// Puts the contents of a page into the frame. `file` is where the page will be, relative to the site.
pub(super) fn framed(settings: &SiteSettings, file: &str, title: &str, part: Part, contents: &Markup) -> String {
    let root = names::root(file);
    let site = label(&settings.title);
    let title = label(title);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="color-scheme" content="light dark";
                title { @if title == site { (site) } @else { (title) " · " (site) } }
                link rel="icon" href={ (root) "icon.svg" } type="image/svg+xml";
                link rel="stylesheet" href={ (root) "style.css" };
                script src={ (root) "search.js" } defer {}
            }
            body {
                a.skip href="#kb:main" { "Skip to the contents" }
                header.top {
                    div.bar {
                        a.site href={ (root) "index.html" } { bdi { (site) } }
                        nav.parts aria-label="Site" {
                            @for (own, name, target) in Part::ALL {
                                @let is_current = own == part;
                                a href={ (root) (target) } aria-current=[is_current.then_some("true")] { (name) }
                            }
                        }
                        (search_field())
                    }
                }
                (contents)
            }
        }
    };
    page.into_string()
}

fn search_field() -> Markup {
    html! {
        search.search {
            label.unseen for="kb:query" { "Search" }
            input id="kb:query" type="search" placeholder="Search" autocomplete="off" spellcheck="false" maxlength="200" role="combobox"
                aria-expanded="false" aria-controls="kb:results" aria-autocomplete="list" aria-keyshortcuts="/";
            kbd.hint aria-hidden="true" { "/" }
            div.panel hidden {
                p.status id="kb:status" role="status" {}
                ul.results id="kb:results" role="listbox" aria-label="Results" {}
            }
        }
    }
}

/// Links to the pages of a list that has several.
pub(super) fn pager(current: usize, count: usize, link: impl Fn(usize) -> String) -> Markup {
    html! {
        @if count > 1 {
            nav.pager aria-label="Pages" {
                @if current > 0 { a rel="prev" href=(link(current - 1)) { "← Previous" } } @else { span {} }
                span.place { "Page " (current + 1) " of " (count) }
                @if current + 1 < count { a rel="next" href=(link(current + 1)) { "Next →" } } @else { span {} }
            }
        }
    }
}

/// A number and what it counts.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A number with its thousands apart.
pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "fact", "facts"), "1 fact");
    }
}
