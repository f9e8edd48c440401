//! The program as it is given to others: one file without symbols, and its symbols in another one.

use std::path::Path;
use std::process::{Command, ExitCode};

use super::{run, target};

/// The most that the program may have, in bytes.
const MOST: u64 = 40 << 20;

/// Builds the program with symbols, and takes them apart. Both files are of one build, so addresses fit.
pub(crate) fn release() -> ExitCode {
    match try_release() {
        Ok(report) => {
            eprintln!("{report}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no release: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_release() -> Result<String, String> {
    let settings = [
        "profile.release.lto=\"fat\"",
        "profile.release.codegen-units=1",
        "profile.release.strip=\"none\"",
        "profile.release.debug=\"line-tables-only\"",
    ];
    let mut build = crate::commands::cargo();
    build.args(["build", "--release", "--package", "callboard-cli"]);
    for setting in settings {
        build.args(["--config", setting]);
    }
    run(&mut build)?;
    let target = target();
    let (program, symbols) = (target.join("release/callboard"), target.join("release/callboard.debug"));
    run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &symbols]))?;
    run(Command::new("objcopy").arg("--strip-all").arg(&program))?;
    run(Command::new("objcopy").arg("--add-gnu-debuglink").args([&symbols, &program]))?;
    let (size, apart) = (size(&program)?, size(&symbols)?);
    let report = format!("{}: {size} bytes; {}: {apart} bytes", program.display(), symbols.display());
    if size <= MOST { Ok(report) } else { Err(format!("{report}; the program may have {MOST}")) }
}

fn size(file: &Path) -> Result<u64, String> {
    file.metadata().map(|about| about.len()).map_err(|error| format!("{}: {error}", file.display()))
}
