//! Files that the pages show, read by the commands that read such files.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::pages::{Block, Page, root};
use super::rules::{self, File, Rule};
use crate::support::{Printed, command, content, folder_with, output_of, write};

/// What is wrong with the files of a page.
pub(super) fn problems(page: &Page) -> Vec<String> {
    let problem = |block: &Block| match rules::of(page, block) {
        Ok(Rule::File(File::Agent)) => agent(&block.text),
        Ok(Rule::File(File::Models)) => models(&block.text),
        Ok(Rule::File(File::Config)) => config(&block.text),
        Ok(Rule::File(File::Workflow)) => workflow("shown.toml", &block.text),
        Ok(Rule::File(File::Lines)) => block.text.lines().try_for_each(|line| workflow("shown.flow", line)),
        Ok(Rule::File(File::Manifest)) => manifest(&block.text),
        Ok(Rule::File(File::Python)) => python(&block.text),
        _ => Ok(()),
    };
    page.blocks.iter().filter_map(|block| Some(page.at(block.line, problem(block).err()?))).collect()
}

/// An agent, or tables of one, beside the models of docs/models.md and the programs of the example.
fn agent(text: &str) -> Result<(), String> {
    let head = if text.lines().any(|line| line == "[agent]") { "" } else { "[agent]\nname = \"shown\"\n" };
    let page = Page::parsed("", &content(root(), "docs/models.md").unwrap());
    let catalogs = page.blocks.iter().filter(|block| block.text.contains("[[models]]"));
    let catalog = catalogs.max_by_key(|block| block.text.len()).unwrap();
    let folder = folder_with(&[("agents/shown.toml", &format!("{head}{text}")), ("models.toml", &catalog.text)]);
    symlink(
        root().join("examples/process/word_counter.py").canonicalize().unwrap(),
        folder.path().join("word_counter.py"),
    )
    .unwrap();
    read(
        command(&folder, &["check"])
            .env("HOME", folder.path())
            .env("TEAM_ANTHROPIC_KEY", "k")
            .env("OPENAI_API_KEY", "k"),
    )
}

fn models(text: &str) -> Result<(), String> {
    let agent = "[agent]\nname = \"a\"\n";
    let folder = folder_with(&[("agents/a.toml", agent), ("models.toml", text)]);
    read(command(&folder, &["check"]).env("TEAM_ANTHROPIC_KEY", "k").env("OPENAI_API_KEY", "k"))
}

/// Settings, whose secrets and certificate are there.
fn config(text: &str) -> Result<(), String> {
    let secrets = [
        ("bot.token", "123456:ABC-DEF"),
        ("matrix.token", "syt_abcdefgh"),
        ("relay.secret", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("mail.password", "password"),
    ];
    let kept = folder_with(&secrets);
    for (shown, name) in [("cert.pem", "first.pem"), ("key.pem", "first.key")] {
        let file = kept.path().join(shown);
        fs::copy(root().join("crates/callboard-server/tests/server/certificates").join(name), &file).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }
    let text = &text.replace("/etc/callboard", kept.path().to_str().unwrap());
    let folder = folder_with(&[("agents/coder.toml", "[agent]\nname = \"coder\"\n"), ("callboard.toml", text)]);
    read(&mut command(&folder, &["check"]))
}

fn workflow(name: &str, text: &str) -> Result<(), String> {
    let folder = folder_with(&[(name, text)]);
    read(&mut command(&folder, &["workflow", "check", name]))
}

/// Dependencies of a package in a folder beside a clone of the repository: cargo reads them, and the packages have their features.
fn manifest(text: &str) -> Result<(), String> {
    let folder = folder_with(&[("mine/src/lib.rs", "")]);
    let head = "[package]\nname = \"mine\"\nversion = \"1.0.0\"\nedition = \"2024\"\n";
    write(&folder, "mine/Cargo.toml", &format!("{head}{text}"));
    symlink(root().canonicalize().unwrap(), folder.path().join("callboard")).unwrap();
    let mine = metadata(folder.path().join("mine"))?;
    let workspace = metadata(root().to_owned())?;
    for dependency in list(&mine["packages"][0]["dependencies"]).filter(|dependency| dependency["path"].is_string()) {
        let path =
            fs::canonicalize(dependency["path"].as_str().unwrap()).map_err(|error| format!("{dependency}: {error}"))?;
        let manifest = path.join("Cargo.toml");
        let package = list(&workspace["packages"]).find(|package| {
            package["name"] == dependency["name"] && package["manifest_path"].as_str().is_some_and(|at| manifest == *at)
        });
        let package = package.ok_or_else(|| format!("{} is not in {}", dependency["name"], path.display()))?;
        let features = list(&dependency["features"]).filter_map(Value::as_str);
        if let Some(feature) = features.into_iter().find(|feature| package["features"].get(feature).is_none()) {
            return Err(format!("{} has no feature {feature}", dependency["name"]));
        }
    }
    Ok(())
}

fn metadata(folder: std::path::PathBuf) -> Result<Value, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(folder.canonicalize().unwrap());
    let printed = output_of(&mut cargo);
    if printed.code == Some(0) { Ok(printed.json()) } else { Err(printed.error) }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn python(text: &str) -> Result<(), String> {
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; compile(sys.stdin.read(), 'shown.py', 'exec')"]);
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let printed = Printed::from(python.wait_with_output().unwrap());
    if printed.code == Some(0) { Ok(()) } else { Err(printed.error) }
}

fn read(command: &mut Command) -> Result<(), String> {
    let printed = output_of(command);
    if printed.code == Some(0) { Ok(()) } else { Err(printed.error) }
}

#[test]
fn a_file_with_a_defect_is_a_problem_of_its_block() {
    for (block, problem) in [
        ("```toml\n[agent]\nname = \"a\"\nmod = \"plan\"\n```", "an agent has no key \"mod\""),
        ("```toml\n[agent.capabilities]\non_unknown = \"never\"\n```", "never"),
        ("```toml\n[[models]]\nname = \"a\"\nprovider = \"opnai\"\n```", "opnai"),
        ("```toml\n[workflow]\nname = \"w\"\n[[workflow.tasks]]\nname = \"a\"\n```", "a"),
        ("```toml\n[serve]\nlisten = 3\n```", "`listen` must be an address"),
        ("```flow\na -> b\na -> -> b\n```", "shown.flow:1:6"),
        ("```toml\n[dependencies]\ncallboard = { path = \"../callbord\" }\n```", "callbord"),
        (
            "```toml\n[dependencies]\ncallboard = { path = \"../callboard\", features = [\"sledd\"] }\n```",
            "no feature sledd",
        ),
        ("```toml\n[dependencies]\ncallboard = { path = \"../callboard/cli\" }\n```", "is not in"),
        ("```toml\n[dependencies]\ncallboard = 3\n```", "invalid type"),
        ("```python\ndef f(:\n```", "SyntaxError"),
    ] {
        let problems = problems(&Page::parsed("docs/index.md", block));
        assert!(problems.len() == 1 && problems[0].contains(problem), "{block}: {problems:?}");
    }
}
