//! Wraps texts into rows that fit the terminal: the continuation of a line never begins a row in a way that could pass for the
//! head of a card.

use unicode_width::UnicodeWidthChar as _;

use super::card::{BAR, TITLE};

/// On narrower terminals what continues a line is not indented.
const NARROW: usize = 24;

/// The most columns that a tab takes. Cards have none, because they show tabs as escapes.
const TAB: usize = 8;

/// Narrower terminals wrap rows themselves; no deceptive word fits into so few columns.
const MIN_COLUMNS: usize = 6;

/// Folds a text of which one part comes after the other, as [`Rows::fold`] does: words of a model as they arrive. The last line is
/// folded too. Colours (`ESC [ … m`) take no columns.
///
/// ```
/// use callboard::actors::approvals::Rows;
/// let mut rows = Rows::default();
/// assert_eq!(rows.push("coder: one.........", 29), "coder: one.........");
/// assert_eq!(rows.push("..........agent     admin", 29), "..........\n          ┆ agent     admin");
/// assert_eq!(rows.push("\ncoder: two", 29), "\ncoder: two");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The first characters of the line, as many as [`BAR`] has.
    beginning: String,
    /// The columns of the last row that are in use.
    used: usize,
    /// Whether the next characters belong to a colour's escape sequence.
    is_colour: bool,
}

impl Rows {
    /// A card, or another text for people, with lines no wider than the terminal, so that it does not wrap them: the beginning
    /// of a row is never the middle of a line. What continues a line is marked by `┆`. The last line stays as it is if it has no
    /// line break, being a prompt.
    ///
    /// ```
    /// use callboard::actors::approvals::Rows;
    /// let shown = Rows::fold("target    a.txt..............agent     admin\n", 29);
    /// assert_eq!(shown, "target    a.txt..............\n          ┆ agent     admin\n");
    /// ```
    #[must_use]
    pub fn fold(text: &str, columns: usize) -> String {
        text.split_inclusive('\n').fold(String::with_capacity(text.len()), |mut rows, line| {
            // Only the title begins with these characters, and nothing that others wrote does.
            if line.starts_with(TITLE) || !line.ends_with('\n') {
                rows.push_str(line);
            } else {
                rows.push_str(&Self::default().push(line, columns));
            }
            rows
        })
    }

    /// The next part of the text, in rows of so many columns.
    #[must_use]
    pub fn push(&mut self, text: &str, columns: usize) -> String {
        let columns = columns.max(MIN_COLUMNS);
        text.chars().fold(String::with_capacity(text.len()), |mut rows, c| {
            self.push_char(&mut rows, c, columns);
            rows
        })
    }

    fn push_char(&mut self, rows: &mut String, c: char, columns: usize) {
        if c == '\n' {
            *self = Self::default();
        } else if c == '\u{1b}' || self.is_colour {
            self.is_colour = matches!(c, '\u{1b}' | '[' | ';' | '0'..='9');
        } else {
            let width = width(c);
            if self.used + width > columns {
                let gutter = self.gutter(columns);
                rows.push('\n');
                rows.push_str(gutter);
                self.used = gutter.chars().map(self::width).sum();
            }
            if self.beginning.len() < BAR.len() {
                self.beginning.push(c);
            }
            self.used += width;
        }
        rows.push(c);
    }

    fn gutter(&self, columns: usize) -> &'static str {
        match self.beginning.as_str() {
            _ if columns < NARROW => "┆ ",
            BAR => "  ┆ ",
            _ => "          ┆ ",
        }
    }
}

/// The width of a character. Terminals disagree about ambiguous and combining characters, so this is the widest that any of them
/// uses.
fn width(c: char) -> usize {
    if c == '\t' { TAB } else { c.width_cjk().unwrap_or(1).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_comes_in_parts_is_folded_as_one_that_is_whole() {
        let text =
            "coder: 漢字 e\u{301} one\n  │ two, and\tthree, and four that is longer than a row\nfive\n".repeat(3);
        for columns in [3, 10, 24, 40] {
            let mut rows = Rows::default();
            let parts: String = text.chars().map(|c| rows.push(c.encode_utf8(&mut [0; 4]), columns)).collect();
            assert_eq!(parts, Rows::fold(&text, columns));
        }
    }

    #[test]
    fn colours_take_no_columns_and_no_row_is_wider_than_the_terminal() {
        let shown = Rows::default().push(&format!("\u{1b}[36mcoder\u{1b}[0m: {}", "x".repeat(40)), 24);
        assert_eq!(
            shown,
            format!(
                "\u{1b}[36mcoder\u{1b}[0m: {}\n          ┆ {}\n          ┆ {}\n          ┆ x",
                "x".repeat(17),
                "x".repeat(11),
                "x".repeat(11)
            )
        );
    }
}
