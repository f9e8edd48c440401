//! Programs that the test run needs and that a fresh machine may not have. They are installed once.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Commands of cargo: the runner of tests, and the check of licences.
const COMMANDS: [(&str, &str); 2] = [("cargo-nextest", "nextest"), ("cargo-deny", "deny")];

/// What builds the book of the documents.
pub(crate) const MDBOOK: &str = "mdbook";

/// What checks the OpenAPI document against a server.
pub(crate) const SCHEMATHESIS: &str = "schemathesis";

/// Installs what is missing; returns what it could not install.
pub(crate) fn provide() -> Vec<&'static str> {
    provide_strace();
    provide_chromium();
    provide_postgres();
    crate::mcp_clients::provide_axe();
    crate::mcp_clients::provide_synapse();
    crate::mcp_clients::provide_aiosmtpd();
    let mut lacks: Vec<&str> = COMMANDS
        .into_iter()
        .filter(|(package, command)| !provide_command(package, command))
        .map(|(package, _)| package)
        .collect();
    if !provide_package(MDBOOK, || quietly([MDBOOK, "--version"])) {
        lacks.push(MDBOOK);
    }
    if !crate::api::provide() {
        lacks.push(SCHEMATHESIS);
    }
    lacks
}

/// Installs a command of cargo.
pub(crate) fn provide_command(package: &str, command: &str) -> bool {
    provide_package(package, || crate::commands::succeeds(&[command, "--version"]))
}

/// Installs a program into cargo's home: a prebuilt binary where `cargo-binstall` is there to get it, or else from its source.
fn provide_package(package: &str, is_there: impl Fn() -> bool) -> bool {
    if is_there() {
        return true;
    }
    eprintln!("── {package}: missing; installing it with cargo");
    // CI installs them for one run: unoptimized, without debug information, and with one folder for what several of them need.
    let is_ci = std::env::var_os("CALLBOARD_CI").is_some();
    let install = |arguments: &[&str]| {
        let mut cargo = crate::commands::cargo();
        cargo.args(arguments).arg(package).env("CARGO_PROFILE_DEV_DEBUG", "0");
        if is_ci {
            cargo.env("CARGO_TARGET_DIR", crate::api::target().join("tools"));
        }
        cargo.status().is_ok_and(|status| status.success())
    };
    let from_source: &[&str] = if is_ci { &["install", "--locked", "--debug"] } else { &["install", "--locked"] };
    let is_installed = (crate::commands::succeeds(&["binstall", "-V"]) && install(&["binstall", "--no-confirm"]))
        || install(from_source);
    is_installed && is_there()
}

/// `powercut` records system calls with `strace`.
pub(crate) fn provide_strace() {
    provide_of_system("strace", &["strace"], "power cuts are");
}

/// The search of published sites is tried in Chromium. Any of the names that systems have for it will do.
fn provide_chromium() {
    const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    provide_of_system(NAMES[0], &NAMES, "the search of sites is");
}

/// The store in PostgreSQL is tried with servers that its tests start themselves, so none is started by the package; through a pooler, and
/// by processes with a wrong clock.
fn provide_postgres() {
    provide_of_system("faketime", &["faketime"], "tests of the store in PostgreSQL fail, not");
    provide_of_system("pgbouncer", &["pgbouncer"], "tests of the store in PostgreSQL fail, not");
    const COMMON: &str = "postgresql-common";
    let folder = std::path::Path::new("/usr/lib/postgresql");
    let is_there = || quietly(["postgres", "--version"]) || folder.is_dir();
    if is_there() || std::env::var_os("CALLBOARD_POSTGRES").is_some() {
        return;
    }
    let no_cluster = "echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf";
    provide_of_system(COMMON, &["pg_lsclusters"], "tests of the store in PostgreSQL fail, not");
    let _ = quietly(["sh", "-c", no_cluster]) || quietly(["sudo", "-n", "sh", "-c", no_cluster]);
    provide_if("postgresql", is_there, "tests of the store in PostgreSQL fail, not");
}

/// Where a program of the system is missing, and this may be done, it is installed; on a machine on which it cannot be installed, the
/// consequence is printed and the run continues.
fn provide_of_system(package: &str, names: &[&str], consequence: &str) {
    provide_if(package, || names.iter().any(|name| quietly([*name, "--version"])), consequence);
}

fn provide_if(package: &str, is_there: impl Fn() -> bool, consequence: &str) {
    if is_there() {
        return;
    }
    eprintln!("── {package}: missing; trying to install it with apt-get");
    // As root, or as a user who needs no password for sudo.
    let is_done = [&["apt-get"][..], &["sudo", "-n", "apt-get"]].iter().any(|apt_get| {
        // What the machine knows of its packages may be too old, or nothing.
        install(apt_get, package)
            || (quietly(apt_get.iter().chain(&["-o", "Acquire::http::Timeout=20", "update"]))
                && install(apt_get, package))
    });
    if is_done && is_there() {
        eprintln!("── {package}: installed");
    } else {
        eprintln!("── {package}: cannot be installed here, so {consequence} SKIPPED (on CI, that is a failure)");
    }
}

fn install(apt_get: &[&str], package: &str) -> bool {
    quietly(apt_get.iter().chain(&["install", "--yes", "--no-install-recommends", package]))
}

/// Runs a command that nobody watches; whether it succeeded.
fn quietly(command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    let mut words = command.into_iter();
    let Some(program) = words.next() else { return false };
    let mut command = Command::new(program);
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
