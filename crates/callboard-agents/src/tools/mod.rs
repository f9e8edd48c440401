//! Tools that come with the library: files of one folder, a search in them, a shell, pages of the web, and the shared
//! context.
//!
//! Each has a bound for everything that it reads, holds and answers, and whatever it refuses it names. What confinement means
//! here, and what it does not, is listed in docs/tools.md.
//!
//! ```
//! use callboard_agents::tools::{self, Root};
//!
//! # let folder = std::env::temp_dir();
//! let root = Root::open(&folder)?;
//! let tools = tools::standard(&root)?;
//! assert!(tools.names().any(|name| name == "FileRead"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocking;
mod bounded;
mod context;
mod files;
#[cfg(feature = "http")]
mod http;
mod kept;
mod root;
mod search;
#[cfg(all(unix, feature = "shell"))]
mod shell;

use super::{Tools, ToolsError};

pub use context::{context_delete, context_get, context_query, context_search, context_set, context_touch};
pub use files::{changed_text, file_read, file_write};
#[cfg(feature = "http")]
pub use http::HttpGet;
pub use root::{Root, RootError};
pub use search::file_search;
#[cfg(all(unix, feature = "shell"))]
pub use shell::{Protection, ShellExec};

/// All tools of this module that the crate was built with, for this folder, with their usual bounds.
///
/// # Errors
/// None of the usual tools makes one; see [`Tools::with`].
pub fn standard(root: &Root) -> Result<Tools, ToolsError> {
    with_http(with_shell(within(root)?, root)?)
}

/// As [`standard`], with this shell in place of the usual one.
///
/// ```
/// use callboard_agents::tools::{self, Root, ShellExec};
///
/// # let folder = std::env::temp_dir();
/// let root = Root::open(&folder)?;
/// let shell = ShellExec::new(&root).reads("/opt/toolchain");
/// assert!(tools::standard_with_shell(&root, shell)?.names().any(|name| name == "ShellExec"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`standard`].
#[cfg(all(unix, feature = "shell"))]
pub fn standard_with_shell(root: &Root, shell: ShellExec) -> Result<Tools, ToolsError> {
    with_http(within(root)?.with(shell)?)
}

/// The tools of every build.
fn within(root: &Root) -> Result<Tools, ToolsError> {
    Tools::new()
        .with(file_read(root))?
        .with(file_write(root))?
        .with(file_search(root))?
        .with(context_get())?
        .with(context_set())?
        .with(context_query())?
        .with(context_search())?
        .with(context_touch())?
        .with(context_delete())
}

#[cfg(all(unix, feature = "shell"))]
fn with_shell(tools: Tools, root: &Root) -> Result<Tools, ToolsError> {
    tools.with(ShellExec::new(root))
}

#[cfg(not(all(unix, feature = "shell")))]
fn with_shell(tools: Tools, _root: &Root) -> Result<Tools, ToolsError> {
    Ok(tools)
}

#[cfg(feature = "http")]
fn with_http(tools: Tools) -> Result<Tools, ToolsError> {
    tools.with(HttpGet::new())
}

#[cfg(not(feature = "http"))]
fn with_http(tools: Tools) -> Result<Tools, ToolsError> {
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_tools_are_there_and_an_agent_that_explores_has_those_that_change_nothing() {
        use callboard::actors::Mode;
        let folder = tempfile::tempdir().unwrap();
        let tools = standard(&Root::open(folder.path()).unwrap()).unwrap();
        let usual = ["ContextDelete", "ContextGet", "ContextQuery", "ContextSearch", "ContextSet", "ContextTouch"];
        assert!(usual.iter().all(|name| tools.names().any(|known| known == *name)), "{tools:?}");
        let usual = ["FileRead", "FileSearch", "FileWrite"];
        assert!(usual.iter().all(|name| tools.names().any(|known| known == *name)), "{tools:?}");
        let exploring = tools.for_agent(Mode::Explore, None);
        let left: Vec<_> = exploring.names().filter(|name| *name != "HttpGet").collect();
        assert_eq!(left, ["ContextGet", "ContextQuery", "ContextSearch", "FileRead", "FileSearch"]);
        for spec in tools.specs() {
            assert!(spec.parameters.get("additionalProperties").is_some(), "{} takes anything", spec.name);
        }
    }
}
