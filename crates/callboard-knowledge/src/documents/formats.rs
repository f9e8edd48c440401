//! Which format a file has, by the ending of its name. Pure.

/// A format that is read in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Markdown,
    Html,
    Source(Language),
    Plain,
}

/// Languages whose definitions are found. Those that define things alike are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    /// JavaScript and TypeScript.
    Script,
    Go,
    Java,
    /// C and C++.
    C,
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
            "html" | "htm" | "xhtml" => Self::Html,
            "rs" => Self::Source(Language::Rust),
            "py" | "pyi" => Self::Source(Language::Python),
            "js" | "jsx" | "mjs" | "cjs" | "ts" | "tsx" | "mts" | "cts" => Self::Source(Language::Script),
            "go" => Self::Source(Language::Go),
            "java" => Self::Source(Language::Java),
            "c" | "h" | "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" => Self::Source(Language::C),
            "txt" | "text" => Self::Plain,
            _ => return None,
        })
    }
}
