//! The languages that the review understands.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A family of files with one grammar; TypeScript and JSX count as JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Language {
    Rust,
    Python,
    JavaScript,
}

impl Language {
    /// The language of a file, told by its extension.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "rs" => Some(Self::Rust),
            "py" => Some(Self::Python),
            "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" => Some(Self::JavaScript),
            _ => None,
        }
    }

    /// Whether a file holds tests, examples or benchmarks, told by where it lies and what it is called.
    pub(crate) fn is_test_path(self, path: &str) -> bool {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.split('.').next().unwrap_or(name);
        let in_test_folder = folders.split('/').any(|folder| {
            matches!(folder, "tests" | "test" | "__tests__" | "benches" | "bench" | "benchmarks" | "examples" | "fuzz")
                || folder.ends_with("_test")
                || folder.ends_with("_tests")
        });
        let named_as_test = match self {
            Self::Rust => stem == "build",
            Self::Python => stem == "conftest" || stem.starts_with("test_"),
            Self::JavaScript => name.contains(".test.") || name.contains(".spec."),
        };
        let any_stem = matches!(stem, "tests" | "test" | "mocks" | "mock")
            || ["_test", "_tests", "_mock", "_mocks"].iter().any(|end| stem.ends_with(end));
        in_test_folder || named_as_test || any_stem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_selects_the_language() {
        let of = |path: &str| Language::of(Path::new(path));
        assert_eq!(of("src/a.rs"), Some(Language::Rust));
        assert_eq!(of("a.PY"), Some(Language::Python));
        assert_eq!(of("a.test.tsx"), Some(Language::JavaScript));
        assert_eq!(of("rs"), None);
        assert_eq!(of("a.txt"), None);
    }

    #[test]
    fn tests_are_known_by_folder_and_name() {
        assert!(Language::Rust.is_test_path("crate/tests/it.rs"));
        assert!(Language::Rust.is_test_path("src/codec/tests.rs"));
        assert!(!Language::Rust.is_test_path("src/testing.rs"));
        assert!(Language::Python.is_test_path("pkg/test_io.py"));
        assert!(Language::JavaScript.is_test_path("src/a.spec.ts"));
        assert!(!Language::JavaScript.is_test_path("src/latest.js"));
    }
}
