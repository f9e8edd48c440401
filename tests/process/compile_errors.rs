//! The compiler's errors about an agent that is written wrongly: they name what was expected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The newest library that was built beside this test: the one that it was linked with, or one with fewer features.
fn library(folder: &Path) -> PathBuf {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix("libcallboard-").is_some_and(|rest| rest.ends_with(".rlib"))
    };
    let built = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_library).max_by_key(built).unwrap()
}

/// The compiler's output for a program with these lines in `main`; `None` if it compiles.
fn errors(lines: &str) -> Option<String> {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("main.rs");
    fs::write(&source, format!("use callboard::prelude::*;\nfn main() {{\n{lines}\n}}\n")).unwrap();
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(compiler);
    command.args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--color", "never"]);
    command.arg("-o").arg(place.path().join("out")).arg("-L").arg(format!("dependency={}", folder.display()));
    command.arg("--extern").arg(format!("callboard={}", library(folder).display())).arg(&source);
    let output = command.output().unwrap();
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

const EXPECTED: &str = "expected `|turn: Turn| async move { … }` that returns `Result<Command, TurnError>`";

#[test]
fn the_error_of_a_closure_that_returns_something_else_names_what_an_agent_returns() {
    assert_eq!(
        errors(r#"let _ = Callboard::builder().agent("a", |_: Turn| async { Ok(Command::output("text")) });"#),
        None
    );
    let wrong = [
        r#"|_: Turn| async { Ok::<_, TurnError>("text") }"#,
        r#"|_: Turn| async { Err::<Command, _>("no") }"#,
        r#"|_: Turn| async { Command::output("text") }"#,
        r#"|_: Turn| Ok(Command::output("text"))"#,
        r#"Command::output("text")"#,
    ];
    for closure in wrong {
        let said = errors(&format!(r#"let _ = Callboard::builder().agent("a", {closure});"#)).unwrap();
        assert!(said.contains("cannot become an agent") && said.contains(EXPECTED), "{closure}: {said}");
        assert!(said.contains("end it with `Ok(Command::output(value))`, and `?` converts any error"), "{said}");
    }
}

#[test]
fn the_prelude_hides_no_name_of_the_standard_library() {
    let program = r#"
        fn sent<T: Send + Sync>(value: T) -> Result<T, Box<dyn std::error::Error>> { Ok(value) }
        let command = Command::new().goto_many([("editor", "one"), ("reader", "two")]);
        let _ = sent(command);
    "#;
    assert_eq!(errors(program), None);
}

#[test]
fn the_error_of_a_step_without_an_error_type_shows_where_to_write_one() {
    let said = errors(
        r#"let _ = Callboard::builder().agent("a", |turn: Turn| async move {
            let number = turn.step("count", async { Ok(1) }).await?;
            Ok(Command::output(number))
        });"#,
    );
    let said = said.unwrap();
    assert!(said.contains("type annotations needed") && said.contains("Ok::<i32, E>(1)"), "{said}");
}
