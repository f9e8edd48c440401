//! HTML as text: without tags, comments, scripts and styles, each line in its place. Pure.
//!
//! Nothing is parsed but where tags end, so a tag that a browser reads differently leaves text too much, and not too little, except for what
//! browsers do not show either.

use super::entities;

/// The text of a page and its title.
#[derive(Debug)]
pub(super) struct Page {
    /// It has as many lines as the file.
    pub(super) text: String,
    pub(super) title: Option<String>,
    /// How many bytes were searched for the ends of tags.
    #[cfg(test)]
    pub(super) searched: usize,
}

/// Elements whose content is no text.
const WITHOUT_TEXT: [&str; 2] = ["script", "style"];

/// The longest reference to a character, from `&` to `;`.
const MAX_REFERENCE: usize = 10;

/// Removes what is no text.
pub(super) fn page(html: &str) -> Page {
    let mut text = String::with_capacity(html.len());
    let mut ends = Ends::new(html);
    let mut title = None;
    let mut at = 0;
    while let Some(next) = html[at..].find(['<', '&']).map(|next| at + next) {
        text.push_str(&html[at..next]);
        if html[next..].starts_with('&') {
            let (c, length) = reference(&html[next..]);
            text.push(c);
            at = next + length;
            continue;
        }
        let Some(end) = ends.of(next) else {
            text.push('<');
            at = next + 1;
            continue;
        };
        if title.is_none() && is_tag(&html[next..], "title") {
            let words = &html[end..html[end..].find('<').map_or(html.len(), |length| end + length)];
            title = Some(entities::title(words)).filter(|title| !title.is_empty());
        }
        // White space, so that words before and after it are two, and line feeds, so that lines are counted alike.
        text.push(' ');
        text.extend(html[next..end].chars().filter(|&c| c == '\n'));
        at = end;
    }
    text.push_str(&html[at..]);
    Page {
        text,
        title,
        #[cfg(test)]
        searched: ends.searched,
    }
}

/// Where what begins with `<` ends. What is not found once is not searched for again, so that the time is linear.
struct Ends<'h> {
    html: &'h str,
    has_tags: bool,
    has_comments: bool,
    has_content: [bool; WITHOUT_TEXT.len()],
    #[cfg(test)]
    searched: usize,
}

impl<'h> Ends<'h> {
    fn new(html: &'h str) -> Self {
        Self {
            html,
            has_tags: true,
            has_comments: true,
            has_content: [true; WITHOUT_TEXT.len()],
            #[cfg(test)]
            searched: 0,
        }
    }

    /// The end of the tag, comment or element without text at a place; none if it is a sign in a text.
    fn of(&mut self, at: usize) -> Option<usize> {
        let html = self.html;
        let rest = &html[at..];
        let is_markup = rest[1..].starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'));
        if !is_markup {
            return None;
        }
        if rest.starts_with("<!--") && self.has_comments {
            let end = self.searched(at + 4, |text| text.find("-->"));
            self.has_comments = end.is_some();
            if let Some(end) = end {
                return Some(end + 3);
            }
        }
        if !self.has_tags {
            return None;
        }
        let end = self.searched(at, |text| text.find('>'));
        self.has_tags = end.is_some();
        let end = end? + 1;
        let element =
            WITHOUT_TEXT.iter().position(|element| is_tag(rest, element)).filter(|&element| self.has_content[element]);
        let Some(element) = element else {
            return Some(end);
        };
        let content = self.searched(end, |text| closing(text, WITHOUT_TEXT[element]));
        self.has_content[element] = content.is_some();
        content.or(Some(end))
    }

    /// The place that is found from a place on.
    fn searched(&mut self, from: usize, find: impl FnOnce(&str) -> Option<usize>) -> Option<usize> {
        let text = &self.html[from..];
        let found = find(text);
        #[cfg(test)]
        {
            self.searched += found.unwrap_or(text.len());
        }
        found.map(|found| from + found)
    }
}

/// Whether a text begins with the opening tag of an element.
fn is_tag(text: &str, element: &str) -> bool {
    let name = text.as_bytes().get(1..=element.len());
    let after = text.as_bytes().get(element.len() + 1);
    name.is_some_and(|name| name.eq_ignore_ascii_case(element.as_bytes()))
        && after.is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

/// Where the closing tag of an element begins.
fn closing(text: &str, element: &str) -> Option<usize> {
    text.match_indices("</").map(|(at, _)| at).find(|at| is_tag(&text[at + 1..], element))
}

/// The character that a reference stands for, and the length of the reference; `&` if it is none that is known.
fn reference(text: &str) -> (char, usize) {
    let end = text.bytes().take(MAX_REFERENCE).position(|byte| byte == b';');
    let c = end.and_then(|end| match &text[1..end] {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        number => {
            let number = number.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            // A line feed would move all lines that follow.
            char::from_u32(code).map(|c| if c.is_control() { ' ' } else { c })
        }
    });
    c.zip(end).map_or(('&', 1), |(c, end)| (c, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> String {
        page(html).text
    }

    #[test]
    fn tags_comments_scripts_and_styles_are_no_text() {
        let html = "<html><style>a{}</style>\n<p class=x>One<br>two</p><!-- hidden\n<p> -->\n<SCRIPT>if (a < b) {}</Script> three";
        assert_eq!(text(html).split_whitespace().collect::<Vec<_>>(), ["One", "two", "three"]);
        assert_eq!(text(html).lines().count(), html.lines().count());
        assert!(text(html).lines().last().unwrap().contains("three"));
    }

    #[test]
    fn signs_that_are_no_tags_are_text() {
        for html in ["a < b", "a <", "1<2", "<p", "<!-- x", "a & b", "&unknown; &#xd800; &;"] {
            assert_eq!(text(html), html);
        }
    }

    #[test]
    fn references_are_characters() {
        assert_eq!(text("&lt;p&gt; &amp;amp; &#228;&#xE4;&nbsp;&#10;"), "<p> &amp; ää  ");
    }

    #[test]
    fn an_element_that_is_not_closed_keeps_its_text() {
        assert_eq!(text("<script>one <b>two").trim(), "one  two");
        assert_eq!(text("<styles>one</styles>").trim(), "one");
    }

    #[test]
    fn the_title_is_that_of_the_page() {
        assert_eq!(page("<title>\nThe gate </title><title>x</title>").title.as_deref(), Some("The gate"));
        assert_eq!(page("<titles>x").title, None);
        assert_eq!(page("<title>").title, None);
    }
}
