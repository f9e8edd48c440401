//! Text that is broken into lines only where necessary.

/// The longest line that is not broken, in characters.
const WIDTH: usize = 100;

const INDENT: usize = 2;

/// Text with possible line breaks.
#[derive(Debug)]
pub(super) enum Layout {
    Text(String),
    /// A line break, or this text if the enclosing group is on one line.
    Break(&'static str),
    /// On one line if it fits; otherwise broken at each of its breaks.
    Group(Vec<Layout>),
    /// Further in.
    Indented(Vec<Layout>),
}

impl Layout {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The text. Lines have no white space at their ends.
    pub(super) fn write(&self) -> String {
        let mut page = Page::default();
        page.add(self, 0, false);
        page.text
    }

    /// The width that remains if it fits.
    fn fits(&self, width: usize) -> Option<usize> {
        match self {
            Self::Text(text) => width.checked_sub(text.chars().take(width + 1).count()),
            Self::Break(flat) => width.checked_sub(flat.len()),
            Self::Group(parts) | Self::Indented(parts) => parts.iter().try_fold(width, |width, part| part.fits(width)),
        }
    }
}

#[derive(Default)]
struct Page {
    text: String,
    /// The length of the last line, in characters.
    column: usize,
}

impl Page {
    fn add(&mut self, part: &Layout, indent: usize, is_broken: bool) {
        match part {
            Layout::Text(text) => self.push(text),
            Layout::Break(_) if is_broken => {
                self.text.truncate(self.text.trim_end_matches(' ').len());
                self.text.push('\n');
                self.column = 0;
                self.push(&" ".repeat(indent));
            }
            Layout::Break(flat) => self.push(flat),
            Layout::Group(parts) => {
                let is_broken = part.fits(WIDTH.saturating_sub(self.column)).is_none();
                parts.iter().for_each(|part| self.add(part, indent, is_broken));
            }
            Layout::Indented(parts) => {
                parts.iter().for_each(|part| self.add(part, indent + INDENT, is_broken));
            }
        }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.column += text.chars().count();
    }
}
