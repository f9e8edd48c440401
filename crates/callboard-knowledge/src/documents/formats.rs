//! Which format a file has, by the ending of its name. Pure.

/// A format that is read in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Markdown,
    Plain,
}

impl Format {
    /// The format of a file. What has no known ending is plain text.
    pub(super) fn of(path: &str) -> Self {
        Self::by_ending(path).unwrap_or(Self::Plain)
    }

    /// The format that the ending of a name stands for, if it is known.
    pub(super) fn by_ending(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let (_, ending) = name.rsplit_once('.')?;
        Some(match ending.to_ascii_lowercase().as_str() {
            "md" | "markdown" | "mdown" | "mkd" | "mdx" => Self::Markdown,
            "txt" | "text" => Self::Plain,
            _ => return None,
        })
    }
}
