//! The OpenAPI document against a server that runs: schemathesis (PyPI) sends what the document allows and what it does not, and
//! compares the answers with it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::commands::cargo;

/// The version that is installed. Another one may find something else.
const VERSION: &str = "4.32.5";
/// Streams do not end by themselves, and `/mcp` has a protocol of its own.
const LEFT_OUT: &str = "events$|^/delegation-stream$|^/mcp$";
/// Those that follow from the document alone. What a body means is not in it, so one that it allows may be refused.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,ignored_auth,\
                      allow_header_conformance";

pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn program() -> PathBuf {
    target().join("schemathesis/bin/schemathesis")
}

/// Installs schemathesis into `target`, where it is missing; whether it is there.
pub(crate) fn provide() -> bool {
    let is_there = || {
        let output = Command::new(program()).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
    };
    if is_there() {
        return true;
    }
    eprintln!("── schemathesis: missing; installing it with pip");
    let folder = target().join("schemathesis");
    let succeeds = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
        && succeeds(Command::new(folder.join("bin/pip")).args(["install", "-q", &format!("schemathesis=={VERSION}")]))
        && is_there()
}

/// Starts a server in an empty folder, and checks its answers.
pub(crate) fn check() -> ExitCode {
    if !provide() {
        eprintln!("schemathesis cannot be installed: it needs python3 with venv, and PyPI");
        return ExitCode::FAILURE;
    }
    // The same build as that of the tests, so that nothing is built twice.
    let built = cargo().args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    match served() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("the server could not be checked: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the answers of a server are those of its document.
fn served() -> Result<bool, String> {
    let program = std::path::absolute(target().join("debug/callboard")).map_err(|error| error.to_string())?;
    let folder = std::path::absolute(target().join("api")).map_err(|error| error.to_string())?;
    // Of a run before.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let mut serve = Command::new(program);
    serve.args(["serve", "--model", "fake", "--store", "store", "--listen", "127.0.0.1:0"]).current_dir(&folder);
    let mut server =
        serve.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().map_err(|error| error.to_string())?;
    let checked = url(&mut server).and_then(|url| answers(&url, &folder));
    let _ = server.kill();
    let _ = server.wait();
    checked
}

/// The address that a server prints when it is there.
fn url(server: &mut Child) -> Result<String, String> {
    let output = server.stdout.take().ok_or("it has no output")?;
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("http://")).ok_or("it printed no address")?;
    line.split_whitespace()
        .find(|word| word.starts_with("http://"))
        .map(str::to_owned)
        .ok_or("it printed no address".into())
}

fn answers(url: &str, folder: &Path) -> Result<bool, String> {
    let token = fs::read_to_string(folder.join("store/service/owner-token")).map_err(|error| error.to_string())?;
    let program = std::path::absolute(program()).map_err(|error| error.to_string())?;
    let mut schemathesis = Command::new(program);
    // It keeps what it has found where it runs.
    schemathesis.current_dir(folder);
    schemathesis.args(["--no-color", "run", &format!("{url}/v1/openapi.json")]);
    schemathesis.args(["--header", &format!("Authorization: Bearer {}", token.trim())]);
    schemathesis.args(["--exclude-path-regex", LEFT_OUT, "--phases", "examples,coverage,fuzzing", "--checks", CHECKS]);
    // A fixed seed: the same run finds the same.
    schemathesis.args(["--max-examples", "8", "--seed", "1", "--request-timeout", "10", "--warnings", "off"]);
    let status = schemathesis.status().map_err(|error| error.to_string())?;
    Ok(status.success())
}
