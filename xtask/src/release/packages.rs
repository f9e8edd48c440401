//! `cargo xtask release-packages`: the program as a wheel for PyPI and as packages for npm, for the platform that it is built on.
//! Each is installed into an empty place and run there. The manifests are in packaging/; the version is that of callboard-cli.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

use super::{enter_workspace, output, run, target};

/// What builds wheels, from PyPI.
const MATURIN: &str = "maturin>=1.9,<2";

/// Builds, installs and runs all of them.
pub(crate) fn packages() -> ExitCode {
    match try_packages() {
        Ok(files) => {
            for file in files {
                let size = file.metadata().map_or(0, |about| about.len());
                eprintln!("{}: {size} bytes", file.display());
            }
            eprintln!("each was installed and run; nothing was uploaded");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("release-packages: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_packages() -> Result<Vec<PathBuf>, String> {
    enter_workspace()?;
    let metadata = crate::workspace::metadata()?;
    let version = version(&metadata).ok_or("there is no package callboard-cli")?;
    let folder = absolute(&target().join("packages"))?;
    // What an earlier version left would be taken for a part of this one.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    make(&folder)?;
    let (wheel, program) = wheel(&folder, &version)?;
    let [platform, entry] = npm(&folder, &version, &program)?;
    Ok(vec![wheel, platform, entry])
}

fn version(metadata: &Value) -> Option<String> {
    let cli = metadata["packages"].as_array()?.iter().find(|package| package["name"] == "callboard-cli")?;
    cli["version"].as_str().map(str::to_owned)
}

/// The wheel, after it was run from a fresh environment of Python, and the program that was installed there.
fn wheel(folder: &Path, version: &str) -> Result<(PathBuf, PathBuf), String> {
    let (tools, wheels) = (folder.join("python"), folder.join("wheels"));
    run(Command::new("python3").args(["-m", "venv"]).arg(&tools))?;
    run(Command::new(tools.join("bin/pip")).args(["install", "--quiet", MATURIN]))?;
    let mut maturin = crate::commands::without_package(Command::new(tools.join("bin/maturin")));
    maturin
        .envs([("CARGO_PROFILE_RELEASE_LTO", "fat"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")])
        .args(["build", "--release", "--locked", "--out"])
        .arg(&wheels)
        .arg("--target-dir")
        .arg(absolute(&target())?);
    run(maturin.current_dir("packaging/pypi"))?;
    let wheel = only_file(&wheels)?;
    let fresh = folder.join("try-wheel");
    run(Command::new("python3").args(["-m", "venv"]).arg(&fresh))?;
    run(Command::new(fresh.join("bin/pip")).args(["install", "--quiet", "--no-index"]).arg(&wheel))?;
    let program = fresh.join("bin/callboard");
    has_version(&program, version)?;
    Ok((wheel, program))
}

/// The package that people install and the one with the program, after both were run from an empty folder.
fn npm(folder: &Path, version: &str, program: &Path) -> Result<[PathBuf; 2], String> {
    let (os, cpu) = (node("process.platform")?, node("process.arch")?);
    let name = format!("callboard-{os}-{cpu}");

    let platform = folder.join("npm").join(&name);
    stage(Path::new("packaging/npm/platform"), &platform, |manifest| {
        manifest["name"] = json!(name);
        manifest["version"] = json!(version);
        manifest["os"] = json!([os]);
        manifest["cpu"] = json!([cpu]);
        if os == "linux" {
            manifest["libc"] = json!(["glibc"]);
        }
    })?;
    make(&platform.join("bin"))?;
    copy(program, &platform.join("bin/callboard"))?;

    let entry = folder.join("npm/callboard");
    stage(Path::new("packaging/npm/callboard"), &entry, |manifest| {
        manifest["version"] = json!(version);
        if let Some(platforms) = manifest["optionalDependencies"].as_object_mut() {
            platforms.values_mut().for_each(|of| *of = json!(version));
        }
    })?;
    make(&entry.join("bin"))?;
    copy(Path::new("packaging/npm/callboard/bin/callboard.js"), &entry.join("bin/callboard.js"))?;

    let tarballs = [pack(&platform)?, pack(&entry)?];
    let fresh = folder.join("try-npm");
    make(&fresh)?;
    // Offline: what is tried is what was packed.
    run(Command::new("npm")
        .args(["install", "--offline", "--no-audit", "--no-fund"])
        .args(&tarballs)
        .current_dir(&fresh))?;
    for program in
        ["callboard/bin/callboard.js".to_owned(), format!("{name}/bin/callboard"), ".bin/callboard".to_owned()]
    {
        has_version(&fresh.join("node_modules").join(program), version)?;
    }
    Ok(tarballs)
}

/// Copies a package's manifest, changed, with its README and the licences.
fn stage(from: &Path, to: &Path, change: impl FnOnce(&mut Value)) -> Result<(), String> {
    make(to)?;
    let path = from.join("package.json");
    let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut manifest =
        serde_json::from_slice(&fs::read(&path).map_err(|error| fail(&error))?).map_err(|error| fail(&error))?;
    change(&mut manifest);
    let to_manifest = to.join("package.json");
    fs::write(&to_manifest, format!("{manifest:#}\n"))
        .map_err(|error| format!("{}: {error}", to_manifest.display()))?;
    copy(&from.join("README.md"), &to.join("README.md"))?;
    ["LICENSE-APACHE", "LICENSE-MIT"].into_iter().try_for_each(|name| copy(Path::new(name), &to.join(name)))
}

/// The tarball of a package, beside its folder.
fn pack(package: &Path) -> Result<PathBuf, String> {
    let beside = package.parent().unwrap_or(package);
    let name = output(Command::new("npm").args(["pack", "--silent"]).arg(package).current_dir(beside))?;
    Ok(beside.join(name))
}

/// Runs the program, which has to print its name and this version.
fn has_version(program: &Path, version: &str) -> Result<(), String> {
    let printed = output(Command::new(program).arg("--version"))?;
    eprintln!("{} --version: {printed}", program.display());
    if printed == format!("callboard {version}") { Ok(()) } else { Err(format!("{}: {printed:?}", program.display())) }
}

fn node(expression: &str) -> Result<String, String> {
    output(Command::new("node").args(["--print", expression]))
}

fn only_file(folder: &Path) -> Result<PathBuf, String> {
    let fail = |error| format!("{}: {error}", folder.display());
    let files =
        fs::read_dir(folder).map_err(fail)?.map(|file| file.map(|file| file.path())).collect::<Result<Vec<_>, _>>();
    match files.map_err(fail)?.as_slice() {
        [file] => Ok(file.clone()),
        files => Err(format!("{} has {} files, not one", folder.display(), files.len())),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}
