//! Tools that come with the library: files of one folder, a search in them, a shell, pages of the web, and the shared
//! context.
//!
//! Each has a bound for everything that it reads, holds and answers, and whatever it refuses it names. What confinement means
//! here, and what it does not, is told in docs/tools.md.
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

mod context;
mod files;
#[cfg(feature = "http")]
mod http;
mod kept;
mod root;
mod search;
#[cfg(all(unix, feature = "shell"))]
mod shell;

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::{ToolError, Tools, ToolsError};

pub use context::{context_delete, context_get, context_query, context_search, context_set, context_touch};
pub use files::{file_read, file_write};
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

/// What every build has.
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

/// Does work that waits for the disk: on a thread of its own where there are several, else here. If it is given up, it is told,
/// and stops at the next place where it looks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&GivenUp) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let given_up = GivenUp::default();
    let _guard = TellsIfDropped(given_up.clone());
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread && callboard::env::can_start_thread() => {
            match runtime.spawn_blocking(move || work(&given_up)).await {
                Ok(done) => done,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(stopped()),
                },
            }
        }
        // A simulated world has one thread, and its order must not depend on another.
        Ok(_) | Err(_) => work(&given_up),
    }
}

/// Whether nobody waits for the work any more.
#[derive(Clone, Debug, Default)]
struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    fn check(&self) -> Result<(), ToolError> {
        if self.0.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(()) }
    }
}

struct TellsIfDropped(GivenUp);

impl Drop for TellsIfDropped {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

fn stopped() -> ToolError {
    ToolError("it was given up".to_owned())
}

/// All that there is to read, if it is no more than `most` bytes; `None` if it is. No more than one byte above is read.
fn whole(from: impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut read)?;
    Ok((read.len() <= most).then_some(read))
}

/// The beginning of a text, of at most so many bytes.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The end of a text, of at most so many bytes.
#[cfg(all(unix, feature = "shell"))]
fn ending(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never ends, and counts what is taken of it.
    struct Endless(usize);

    impl Read for &mut Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            self.0 += buffer.len();
            Ok(buffer.len())
        }
    }

    #[test]
    fn no_more_is_read_than_one_byte_above_the_bound() {
        let mut endless = Endless(0);
        assert_eq!(whole(&mut endless, 100_000).unwrap(), None);
        assert_eq!(endless.0, 100_001);
        assert_eq!(whole(&b"abc"[..], 3).unwrap().unwrap(), b"abc");
        assert_eq!(whole(&b"abc"[..], 2).unwrap(), None);
    }

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

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(beginning("aäöü", 4), "aä");
        assert_eq!(beginning("aäöü", 100), "aäöü");
        #[cfg(all(unix, feature = "shell"))]
        assert_eq!((ending("aäöü", 3), ending("aäöü", 100)), ("ü", "aäöü"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_is_given_up_is_told() {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, has_ended) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let mut work = Box::pin(blocking(move |given_up| {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
            end.send(given_up.check()).unwrap();
            Ok(())
        }));
        tokio::select! {
            _ = &mut work => panic!("it waits"),
            begun = has_begun => begun.unwrap(),
        }
        drop(work);
        go_on.send(()).unwrap();
        assert_eq!(has_ended.recv().unwrap(), Err(stopped()));
    }
}
