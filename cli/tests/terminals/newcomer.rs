//! What README.md shows of a server, word for word: three commands in an empty folder, on terminals.

use std::fs;

use crate::screen::Screen;
use crate::support::project::Project;

/// As README.md has it, which a test of the pages compares.
const SHOWN: &str = r#"
$ callboard serve --model fake
there is no folder of agents, so the team of `callboard init` works: coder, coordinator, researcher, reviewer
the store is /home/ann/.local/state/callboard/empty-9bddb78aa81a/1
4 agents running · 0 waiting for you · 0 failed          http://127.0.0.1:7420
$ callboard send coder "review this repository"
req-b5a69c35aa9c  acknowledged by coder
$ callboard wait req-b5a6
complete: The fake model does not think; it only shows how things go. It was asked: review this repository
- FileSearch answered: (0 found in 0 text files)
"#;

/// What is printed below a command, with these words in place of others.
fn shown_below(command: &str, words: &[(&str, &str)]) -> Vec<String> {
    let (_, below) = SHOWN.split_once(&format!("\n$ callboard {command}\n")).unwrap();
    let lines = below.lines().take_while(|line| !line.starts_with("$ "));
    sorted(lines.map(|line| words.iter().fold(line.to_owned(), |line, (word, other)| line.replace(word, other))))
}

/// Standard output and standard error are in any order on a terminal.
fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn a_newcomer_in_an_empty_folder_sees_what_the_readme_shows() {
    let project = Project::new();
    let empty = project.folder.path().join("empty");
    fs::create_dir_all(empty.join(".callboard")).unwrap();
    let on_terminal = |arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.current_dir(&empty);
        Screen::of_columns(command, 120)
    };
    let lines = |text: String| sorted(text.lines().map(str::to_owned));
    let mut serving = on_terminal(&["serve", "--model", "fake", "--listen", "127.0.0.1:0"]);
    let mut served = serving.until("http://127.0.0.1:");
    let port = serving.until("\n");
    served += &port;
    if !served.contains("the store is ") {
        served += &serving.until("/1\n");
    }
    let store = project.stores().join("1");
    let words =
        [("/home/ann/.local/state/callboard/empty-9bddb78aa81a/1", store.to_str().unwrap()), ("7420", port.trim_end())];
    assert_eq!(lines(served), shown_below("serve --model fake", &words));

    let sent = on_terminal(&["send", "coder", "review this repository"]).ended();
    let id = &sent[..16];
    let words = [("req-b5a69c35aa9c", id)];
    assert_eq!(lines(sent.clone()), shown_below("send coder \"review this repository\"", &words));
    let waited = on_terminal(&["wait", &id[..8]]).ended();
    assert_eq!(lines(waited), shown_below("wait req-b5a6", &[]));
}
