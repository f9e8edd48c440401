//! Where tags, comments and elements of raw text end, as browsers decide it. Pure.

/// Elements whose content has no tags.
pub(super) const RAW: [&str; 9] =
    ["script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes", "noscript"];

/// How many of them, from the first, have no text that is shown.
pub(super) const HIDDEN: usize = 2;

/// Where what begins with `<` ends. What is not found once is not searched for again, so that the time is linear.
pub(super) struct Ends<'h> {
    html: &'h str,
    has_tags: bool,
    has_signs: bool,
    has_comments: bool,
    has_content: [bool; RAW.len()],
    #[cfg(test)]
    pub(super) searched: usize,
}

impl<'h> Ends<'h> {
    pub(super) fn new(html: &'h str) -> Self {
        Self {
            html,
            has_tags: true,
            has_signs: true,
            has_comments: true,
            has_content: [true; RAW.len()],
            #[cfg(test)]
            searched: 0,
        }
    }

    /// The end of the tag or comment at a place; none if it is a sign in a text.
    pub(super) fn of(&mut self, at: usize) -> Option<usize> {
        let rest = &self.html[at..];
        if rest.starts_with("<!--") && self.has_comments {
            // `<!-->` is a comment too.
            let end = self.searched(at + 2, comment);
            self.has_comments = end.is_some();
            if end.is_some() {
                return end;
            }
        }
        let name = rest[1..].trim_start_matches('/');
        let is_tag = name.starts_with(|c: char| c.is_ascii_alphabetic()) && rest.len() - name.len() <= 2;
        if is_tag && self.has_tags {
            let end = self.searched(at, tag);
            self.has_tags = end.is_some();
            if end.is_some() {
                return end;
            }
        }
        let is_markup = is_tag || rest[1..].starts_with(['/', '!', '?']);
        if !is_markup || !self.has_signs {
            return None;
        }
        let end = self.searched(at, |text| text.find('>').map(|end| end + 1));
        self.has_signs = end.is_some();
        end
    }

    /// If the tag from a place to its end opens an element without tags: which one, and where its content ends. One that is not closed and is
    /// shown continues to the end; one that is hidden does not.
    pub(super) fn raw(&mut self, at: usize, end: usize) -> Option<(usize, usize)> {
        let element = RAW.iter().position(|element| is_tag(&self.html[at..], element))?;
        let mut content = None;
        if self.has_content[element] {
            content = self.searched(end, |text| closing(text, RAW[element]));
            self.has_content[element] = content.is_some();
        }
        let content = content.or((element >= HIDDEN).then_some(self.html.len()))?;
        Some((element, content))
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

/// The end of a comment whose text begins with its hyphens.
fn comment(text: &str) -> Option<usize> {
    let ends = text.match_indices('>').map(|(at, _)| at);
    ends.into_iter().find(|&at| text[..at].ends_with("--") || text[..at].ends_with("--!")).map(|at| at + 1)
}

/// What a place within a tag is in.
enum Within {
    Name,
    BeforeAttribute,
    Attribute,
    AfterAttribute,
    BeforeValue,
    Value,
    Quoted(u8),
}

/// The end of a tag, where the `>` in a quoted value of an attribute is none.
fn tag(text: &str) -> Option<usize> {
    use Within::{AfterAttribute, Attribute, BeforeAttribute, BeforeValue, Name, Quoted, Value};
    let name = text.find(|c: char| c.is_ascii_alphabetic())?;
    let mut within = Name;
    for (at, &byte) in text.as_bytes().iter().enumerate().skip(name) {
        let is_space = byte.is_ascii_whitespace();
        within = match within {
            Quoted(quote) => {
                if byte == quote {
                    BeforeAttribute
                } else {
                    Quoted(quote)
                }
            }
            Name | BeforeAttribute | Attribute | AfterAttribute | BeforeValue | Value if byte == b'>' => {
                return Some(at + 1);
            }
            Name => {
                if is_space || byte == b'/' {
                    BeforeAttribute
                } else {
                    Name
                }
            }
            BeforeAttribute => {
                if is_space || byte == b'/' {
                    BeforeAttribute
                } else {
                    Attribute
                }
            }
            Attribute | AfterAttribute => match byte {
                b'=' => BeforeValue,
                b'/' => BeforeAttribute,
                _ if is_space => AfterAttribute,
                _ => Attribute,
            },
            BeforeValue => match byte {
                b'"' | b'\'' => Quoted(byte),
                _ if is_space => BeforeValue,
                _ => Value,
            },
            Value => {
                if is_space {
                    BeforeAttribute
                } else {
                    Value
                }
            }
        };
    }
    None
}

/// Whether a text begins with the opening tag of an element.
fn is_tag(text: &str, element: &str) -> bool {
    let name = text.as_bytes().get(1..=element.len());
    let after = text.as_bytes().get(element.len() + 1);
    name.is_some_and(|name| name.eq_ignore_ascii_case(element.as_bytes()))
        && after.is_some_and(|&byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>'))
}

/// Where the closing tag of an element begins.
fn closing(text: &str, element: &str) -> Option<usize> {
    text.match_indices("</").map(|(at, _)| at).find(|at| is_tag(&text[at + 1..], element))
}
