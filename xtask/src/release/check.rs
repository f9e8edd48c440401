//! `cargo xtask release-check`: whether the packages could be published as they are. Every part runs, also after one has failed.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::Value;

use super::{enter_workspace, output, run, target};

/// What a part resulted in.
enum Verdict {
    Passed,
    /// It cannot be done here, for this reason.
    Skipped(String),
    Failed(String),
}

impl From<Result<(), String>> for Verdict {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

/// Runs all parts, prints each with its time, and fails if one has failed.
pub(crate) fn check() -> ExitCode {
    let packages = match enter_workspace().and_then(|()| packages()) {
        Ok(packages) => packages,
        Err(why) => {
            eprintln!("release-check: {why}");
            return ExitCode::from(2);
        }
    };
    type Part<'a> = (&'a str, &'a dyn Fn() -> Verdict);
    let parts: [Part<'_>; 4] = [
        ("metadata", &|| metadata(&packages)),
        ("publish, dry run", &|| dry_run().into()),
        ("semver", &|| semver(&packages)),
        ("MSRV", &|| msrv(&packages)),
    ];
    let mut has_failed = false;
    let mut summary = Vec::new();
    for (name, part) in parts {
        eprintln!("── {name}");
        #[allow(clippy::disallowed_methods, reason = "a chore, not the library")]
        let started = Instant::now();
        let verdict = part();
        let elapsed = started.elapsed();
        let line = match verdict {
            Verdict::Passed => format!("── {name}: passed in {elapsed:.0?}"),
            Verdict::Skipped(why) => format!("── {name}: SKIPPED: {why}"),
            Verdict::Failed(why) => {
                has_failed = true;
                format!("── {name}: FAILED in {elapsed:.0?}: {why}")
            }
        };
        eprintln!("{line}");
        summary.push(line);
    }
    eprintln!("\nrelease-check, nothing was uploaded:\n{}", summary.join("\n"));
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The packages of the workspace that may be published.
fn packages() -> Result<Vec<Value>, String> {
    let mut metadata = crate::workspace::metadata()?;
    let Value::Array(packages) = metadata["packages"].take() else { return Err("cargo names no packages".into()) };
    // `publish = false` is an empty list of registries.
    Ok(packages.into_iter().filter(|package| !package["publish"].as_array().is_some_and(Vec::is_empty)).collect())
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

/// What a registry and the pages of documentation show of a package, and the files that belong in each.
fn metadata(packages: &[Value]) -> Verdict {
    let mut defects = Vec::new();
    for package in packages {
        let name = name(package);
        for field in ["description", "license", "readme", "rust_version"] {
            if package[field].as_str().is_none_or(str::is_empty) {
                defects.push(format!("{name} has no {field}"));
            }
        }
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().map_or(0, Vec::len);
            if !(1..=5).contains(&count) {
                defects.push(format!("{name} has {count} {field}, not 1 to 5"));
            }
        }
        if package["metadata"]["docs"]["rs"].is_null() {
            defects.push(format!("{name} has no [package.metadata.docs.rs]"));
        }
        if package["repository"].is_null() {
            eprintln!("{name} has no repository: set it in [workspace.package] before the first upload");
        }
        match output(crate::commands::cargo().args(["package", "--list", "--allow-dirty", "--package", name])) {
            Err(why) => defects.push(why),
            Ok(files) => {
                let is_there = |file: &str| files.lines().any(|line| line == file);
                let missing = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"].into_iter().filter(|file| !is_there(file));
                defects.extend(missing.map(|file| format!("{name} is packed without {file}")));
                let tests = files.lines().filter(|file| file.starts_with("tests/")).count();
                if tests > 0 {
                    defects.push(format!("{name} is packed with {tests} files of tests/: it has no `include`"));
                }
            }
        }
    }
    if defects.is_empty() { Verdict::Passed } else { Verdict::Failed(defects.join("; ")) }
}

/// Packs every package, and builds each from what was packed.
fn dry_run() -> Result<(), String> {
    run(crate::commands::cargo().args(["publish", "--workspace", "--dry-run"]))
}

/// Compares the public items of each library with those of the last release.
fn semver(packages: &[Value]) -> Verdict {
    let tags = match output(Command::new("git").args(["tag", "--list", "v[0-9]*", "--sort=-v:refname", "--merged"])) {
        Ok(tags) => tags,
        Err(why) => return Verdict::Failed(why),
    };
    let Some(tag) = tags.lines().next() else {
        return Verdict::Skipped("there is no tag v… yet, so there is no release to compare with".into());
    };
    if !crate::tools::provide_command("cargo-semver-checks", "semver-checks") {
        return Verdict::Skipped("cargo-semver-checks is not installed, and cannot be".into());
    }
    let is_library = |package: &&Value| {
        package["targets"].as_array().is_some_and(|all| all.iter().any(|one| one["kind"] == serde_json::json!(["lib"])))
    };
    let (old, new): (Vec<&Value>, Vec<&Value>) =
        packages.iter().filter(is_library).partition(|package| is_at(tag, package));
    for package in new {
        eprintln!("{} is new since {tag}", name(package));
    }
    if old.is_empty() {
        return Verdict::Skipped(format!("none of the libraries was there at {tag}"));
    }
    let mut cargo = crate::commands::cargo();
    cargo.args(["semver-checks", "--baseline-rev", tag, "--all-features"]);
    cargo.args(old.iter().flat_map(|package| ["--package", name(package)]));
    run(&mut cargo).into()
}

/// Whether the package was in the workspace at the tag, in the same folder.
fn is_at(tag: &str, package: &Value) -> bool {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let here = std::env::current_dir().unwrap_or_default();
    let Ok(manifest) = manifest.strip_prefix(here) else { return false };
    let then = output(Command::new("git").args(["show", &format!("{tag}:{}", manifest.display())]));
    then.is_ok_and(|text| text.contains(&format!("name = \"{}\"", name(package))))
}

/// Builds every package with the oldest toolchain that it promises to build with.
fn msrv(packages: &[Value]) -> Verdict {
    let mut versions: Vec<&str> = packages.iter().filter_map(|package| package["rust_version"].as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let [version] = versions[..] else { return Verdict::Failed(format!("the packages promise {versions:?}")) };
    if let Err(why) = provide(version) {
        return Verdict::Skipped(why);
    }
    let names = packages.iter().flat_map(|package| ["--package", name(package)]);
    for features in [&["--all-features"][..], &["--no-default-features"]] {
        let mut cargo = crate::commands::without_package(Command::new("rustup"));
        cargo.args(["run", version, "cargo", "check"]).args(features).args(names.clone());
        cargo.arg("--target-dir").arg(target().join("msrv")).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        if let Err(why) = run(&mut cargo) {
            return Verdict::Failed(why);
        }
    }
    Verdict::Passed
}

/// Has rustup install a toolchain unless it is there.
fn provide(version: &str) -> Result<(), String> {
    let rustc = ["run", version, "rustc", "--version"];
    if output(Command::new("rustup").args(rustc)).is_ok() {
        return Ok(());
    }
    let install = ["toolchain", "install", version, "--profile", "minimal", "--no-self-update"];
    output(Command::new("rustup").args(install))
        .map(drop)
        .map_err(|why| format!("the toolchain {version} is not here, and cannot be installed: {why}"))
}
