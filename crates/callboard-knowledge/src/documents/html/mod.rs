//! HTML as text: without tags, comments, scripts and styles, each line in its place. Pure.
//!
//! Where tags and elements of raw text end is decided as browsers do; a test compares it with a tokenizer. What a browser shows is in the text, also
//! where markup does not end: there, the text may have more.

mod ends;

use self::ends::{Ends, HIDDEN, RAW};
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
        // White space, so that words before and after it are two, and line feeds, so that lines are counted alike.
        let mut push_removed = |removed: &str| {
            text.push(' ');
            text.extend(removed.chars().filter(|&c| c == '\n'));
        };
        push_removed(&html[next..end]);
        at = end;
        let Some((element, content)) = ends.raw(next, end) else { continue };
        at = content;
        if element < HIDDEN {
            push_removed(&html[end..content]);
        } else {
            text.push_str(&html[end..content]);
        }
        if RAW[element] == "title" && title.is_none() {
            title = Some(entities::title(&html[end..content])).filter(|title| !title.is_empty());
        }
    }
    text.push_str(&html[at..]);
    Page {
        text,
        title,
        #[cfg(test)]
        searched: ends.searched,
    }
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
    fn markup_ends_where_browsers_end_it() {
        for (html, expected) in [
            ("<p title='a>b' x=\"<script>\">one</p><p></script>", "one"),
            ("<a =\"x>one", "one"),
            ("<!-->one<!--->two<!-- x --!>three-->", "one two three-->"),
            ("<script-x>one</script>", "one"),
            ("<title><script></title>one<b></script>", "<script> one"),
            ("</>one</ x>two<?x>three<!x>four", "one two three four"),
            ("<a title=\"b>one", "one"),
            ("<textarea><script>one", "<script>one"),
        ] {
            let text = text(html);
            let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(shown.ends_with(expected), "{html}: {shown}");
        }
    }

    #[test]
    fn the_title_is_that_of_the_page() {
        assert_eq!(page("<title>\nThe gate </title><title>x</title>").title.as_deref(), Some("The gate"));
        assert_eq!(page("<titles>x</titles>").title, None);
        assert_eq!(page("<title>").title, None);
    }
}
