//! The source of a template or an expression: its limit of length, its parsing, and the texts of its errors.

use callboard_text::cut;
use minijinja::{Error, ErrorKind};

use super::environment::FUEL;
use super::fault::Fault;

/// The longest template or expression, in bytes.
const MAX_SOURCE: usize = 64 << 10;

/// The longest source that is parsed on the caller's stack, in bytes.
const SHORT: usize = 256;

/// The stack for longer ones: enough for the deepest nesting within [`MAX_SOURCE`]. Unused stack takes no memory.
const STACK: usize = 512 << 20;

pub(super) fn check_length(source: &str) -> Result<(), Fault> {
    if source.len() > MAX_SOURCE {
        return Err(Fault::new(format!("the template has {} bytes; at most {MAX_SOURCE} are allowed", source.len())));
    }
    Ok(())
}

/// Parses a source with enough stack: minijinja recurses for each operator of a long chain.
pub(super) fn with_room<T: Send>(source: &str, read: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Fault> {
    let wrong = |error: &Error| fault(source, error);
    if source.len() <= SHORT {
        return read().map_err(|error| wrong(&error));
    }
    let broken = || Fault::new("the template cannot be read: there is no room for it");
    let read = std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read).ok()?;
        reader.join().ok()
    });
    read.ok_or_else(broken)?.map_err(|error| wrong(&error))
}

fn fault(source: &str, error: &Error) -> Fault {
    let at = error.range().and_then(|range| source.get(range)).filter(|part| !part.trim().is_empty());
    let near = at.map(|part| format!(" at `{}`", cut(part.trim()))).unwrap_or_default();
    let text = text_of(error);
    let problem = text.strip_prefix("syntax error: ").unwrap_or(&text);
    let fault = Fault::new(format!("the template cannot be read{near}: {problem}"));
    if problem.ends_with("end of variable block") {
        fault.advise("close a value with `}}`, as in `{{ task }}`")
    } else if problem.contains("end of block") {
        fault.advise("write a block as in `{% if task %}…{% endif %}`")
    } else if problem.ends_with("unexpected end of input, expected expression") {
        fault.advise("complete it, as in `a.output == \"yes\"`")
    } else {
        fault
    }
}

pub(super) fn text_of(error: &Error) -> String {
    // The length limit has its own error.
    if let (ErrorKind::WriteFailure, Some(reason)) = (error.kind(), std::error::Error::source(error)) {
        return reason.to_string();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("it takes more than {FUEL} steps: give it less to go through");
    }
    let detail = error.detail().map(|detail| format!(": {}", cut(detail))).unwrap_or_default();
    format!("{}{detail}", error.kind())
}
