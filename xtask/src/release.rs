//! The program as it is given to others: one file without symbols, and its symbols in another one.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The most that the program may have, in bytes.
const MOST: u64 = 40 << 20;

/// Builds the program with symbols, and takes them apart. Both files are of one build, so addresses fit.
pub(crate) fn release() -> ExitCode {
    match try_release() {
        Ok(told) => {
            eprintln!("{told}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no release: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_release() -> Result<String, String> {
    let with_symbols = ["profile.release.strip=\"none\"", "profile.release.debug=\"line-tables-only\""];
    let mut build = crate::cargo();
    build.args(["build", "--release", "--package", "callboard-cli"]);
    for setting in with_symbols {
        build.args(["--config", setting]);
    }
    run(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let (program, symbols) = (target.join("release/callboard"), target.join("release/callboard.debug"));
    run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &symbols]))?;
    run(Command::new("objcopy").arg("--strip-all").arg(&program))?;
    run(Command::new("objcopy").arg("--add-gnu-debuglink").args([&symbols, &program]))?;
    let (size, apart) = (size(&program)?, size(&symbols)?);
    let told = format!("{}: {size} bytes; {}: {apart} bytes", program.display(), symbols.display());
    if size <= MOST { Ok(told) } else { Err(format!("{told}; the program may have {MOST}")) }
}

fn run(command: &mut Command) -> Result<(), String> {
    let told = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{told}: {status}")),
        Err(error) => Err(format!("{told}: {error}")),
    }
}

fn size(file: &Path) -> Result<u64, String> {
    file.metadata().map(|about| about.len()).map_err(|error| format!("{}: {error}", file.display()))
}
