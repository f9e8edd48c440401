//! The spans of `callboard serve`, as the package `opentelemetry-proto` of PyPI reads them.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::mcp_clients::{python, succeeds, with_every_feature};

const PYTHON_PACKAGES: [&str; 1] = ["opentelemetry-proto==1.45.2"];

pub(crate) fn check() -> ExitCode {
    let run = || {
        let (_, python) = python(&PYTHON_PACKAGES)?;
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("telemetry/check.py");
        succeeds(Command::new(python).arg(check).arg(with_every_feature()?))
    };
    let done: Result<(), String> = run();
    done.map_or_else(
        |why| {
            eprintln!("── telemetry: {why}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
