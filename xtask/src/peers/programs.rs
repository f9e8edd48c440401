//! The programs of the sides: what builds and starts them, and what they answer.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::cases::{Program, SIDES, Side};
use super::results::{Conditions, Round};
use crate::commands::cargo;
use crate::mcp_clients::{python_in, succeeds, target};

/// The folder below `target` with Python and its packages.
const FOLDER: &str = "peers";
/// The folder below `target` in which the package of the sides in Rust is built.
const RUST_FOLDER: &str = "peers-rust";
/// What is compared, of all that is installed.
const PYTHON_PACKAGES: [&str; 6] =
    ["langgraph", "langgraph-checkpoint-sqlite", "autogen-core", "agent-framework-core", "openai-agents", "openai"];
const RUST_PACKAGES: [&str; 4] = ["duroxide", "salvor", "kameo", "ractor"];
/// Prints versions, a line each: of Python, of the SQLite that it has, and of the packages in the arguments.
const VERSIONS: &str = "import importlib.metadata as it, platform, sqlite3, sys\n\
    print(platform.python_version(), sqlite3.sqlite_version, *map(it.version, sys.argv[1:]), sep='\\n')";

/// Where the programs are.
pub(super) struct Programs {
    callboard: PathBuf,
    python: PathBuf,
    rust: PathBuf,
    /// Where data on disk is, below `target`: temporary folders may be in memory.
    data: PathBuf,
}

impl Programs {
    /// Builds and installs all.
    pub(super) fn build() -> Result<Self, String> {
        let peers = peers();
        let requirements = peers.join("python/requirements.txt");
        let (folder, python) = python_in(FOLDER, &["-r", &requirements.to_string_lossy()])?;
        let built = target()?.join(RUST_FOLDER);
        let manifest = peers.join("rust/Cargo.toml");
        let mut build = cargo();
        build.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
        succeeds(build.arg("--target-dir").arg(&built))?;
        let data = folder.join("data");
        fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        Ok(Self { callboard: benchmark()?, python, rust: built.join("release/peers"), data })
    }

    /// Starts what does a case.
    pub(super) fn start(&self, side: &Side, case: &str) -> Result<Running, String> {
        let mut command = match side.program {
            Program::Callboard(_) => Command::new(&self.callboard),
            Program::Python(..) => Command::new(&self.python),
            Program::Rust(_) => Command::new(&self.rust),
        };
        match side.program {
            Program::Callboard(end) => command.args(["--side", &format!("{case}{end}")]),
            Program::Python(file, more) => command.arg(peers().join("python").join(file)).arg(case).args(more),
            Program::Rust(name) => command.args([name, case]),
        };
        // What these frameworks send or show of themselves, where they are asked by a variable.
        let quiet = [("LANGSMITH_TRACING", "false"), ("AUTOGEN_DISABLE_RUNTIME_TRACING", "true"), ("RUST_LOG", "off")];
        command.envs(quiet).env("TMPDIR", &self.data).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{command:?} was not started: {error}"))?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{command:?} has no pipes"));
        };
        Ok(Running { name: side.name, child, asks: Some(asks), answers: BufReader::new(answers) })
    }

    pub(super) fn conditions(&self) -> Result<Conditions, String> {
        let of_python = output(Command::new(&self.python).args(["-c", VERSIONS]).args(PYTHON_PACKAGES))?;
        let names = ["Python", "SQLite"].into_iter().chain(PYTHON_PACKAGES);
        let mut versions = vec![("callboard".to_owned(), callboard()?)];
        versions.extend(names.zip(of_python.lines()).map(|(name, version)| (name.to_owned(), version.to_owned())));
        let lock = peers().join("rust/Cargo.lock");
        versions.extend(locked(&fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?)?);
        let rustc = output(Command::new("rustc").arg("--version"))?;
        versions.push(("rustc".into(), rustc.split(' ').nth(1).unwrap_or_default().to_owned()));
        let date = output(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?;
        Ok(Conditions { date, machine: machine()?, versions })
    }
}

/// A side that does a case.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    /// `None` once it is to end.
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Running {
    /// Has it measure once.
    pub(super) fn measure(&mut self) -> Result<Round, String> {
        let mut line = String::new();
        let asked = self.asks.as_mut().map(|asks| asks.write_all(b"\n"));
        let answered = asked.unwrap_or(Ok(())).and_then(|()| self.answers.read_line(&mut line));
        answered
            .map_err(|error| error.to_string())
            .and_then(|_| round(&line))
            .map_err(|why| format!("{}: {why}", self.name))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends when there is no line left to read.
        drop(self.asks.take());
        let _ = self.child.wait();
    }
}

/// Reads an answer.
fn round(line: &str) -> Result<Round, String> {
    let numbers: Vec<f64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    match numbers[..] {
        [value, processor] => Ok(Round { value, processor: Some(processor) }),
        [value] => Ok(Round { value, processor: None }),
        _ => Err(format!("it answered {line:?} in place of one or two numbers")),
    }
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Builds the benchmark of callboard, and finds it in what cargo prints.
fn benchmark() -> Result<PathBuf, String> {
    let build = ["bench", "-p", "callboard", "--bench", "compare", "--no-run", "--message-format", "json"];
    let printed = output(cargo().args(build))?;
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = messages.filter(|message| message["target"]["name"] == "compare");
    let program = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    program.ok_or_else(|| "cargo did not say where the benchmark is".into())
}

/// The version of callboard, and the commit.
fn callboard() -> Result<String, String> {
    let metadata = crate::workspace::metadata()?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let version =
        packages.find(|package| package["name"] == SIDES[0].name).and_then(|package| package["version"].as_str());
    let commit = output(Command::new("git").args(["rev-parse", "--short", "HEAD"]))?;
    Ok(format!("{} ({commit})", version.unwrap_or_default()))
}

/// The versions of the packages that are compared, in a lock file: each has a line after that of its name.
fn locked(lock: &str) -> Result<Vec<(String, String)>, String> {
    let of = |name: &str| {
        let after = lock.split_once(&format!("\nname = \"{name}\"\nversion = \"")).map(|(_, after)| after);
        let version = after.and_then(|after| after.split_once('"')).map(|(version, _)| version.to_owned());
        version.map(|version| (name.to_owned(), version)).ok_or_else(|| format!("{name} is not locked"))
    };
    RUST_PACKAGES.into_iter().map(of).collect()
}

fn machine() -> Result<String, String> {
    let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let processors = read("/proc/cpuinfo")?;
    let names: Vec<&str> = processors
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, name)| name)
        .collect();
    let kernel = read("/proc/sys/kernel/osrelease")?;
    Ok(format!("{} cores \"{}\" with Linux {}", names.len(), names.first().unwrap_or(&""), kernel.trim()))
}

/// What a program prints, without the last end of line.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_one_number_or_two() {
        assert_eq!(round("1e-3 2.5e-4\n"), Ok(Round { value: 1e-3, processor: Some(2.5e-4) }));
        assert_eq!(round("4096e0\n"), Ok(Round { value: 4096.0, processor: None }));
        for line in ["", "\n", "Traceback\n", "1 2 3\n"] {
            assert!(round(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn versions_of_what_is_compared_are_in_the_lock_file_and_the_requirements() {
        let read = |file: &str| fs::read_to_string(peers().join(file)).unwrap();
        let versions = locked(&read("rust/Cargo.lock")).unwrap();
        assert!(versions.iter().all(|(_, version)| !version.is_empty()), "{versions:?}");
        let requirements = read("python/requirements.txt");
        for package in PYTHON_PACKAGES {
            assert!(requirements.lines().any(|line| line.starts_with(&format!("{package}=="))), "{package}");
        }
        let lines = requirements.lines().filter(|line| !line.starts_with('#'));
        assert!(lines.clone().all(|line| line.contains("==")) && lines.count() > PYTHON_PACKAGES.len());
    }
}
