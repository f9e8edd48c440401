//! What README.md shows of a server, word for word: the first commands in an empty folder, on terminals.

use std::fs;

use crate::screen::Screen;
use crate::support::project::Project;

/// As README.md has it, which a test of the pages compares.
const SHOWN: &str = r#"
$ callboard serve --model fake
there is no folder of agents, so the team of `callboard init` works: coder, coordinator, researcher, reviewer
the store is /home/ann/.local/state/callboard/empty-9bddb78aa81a/1
the pages are at http://cb-5b1f0a8c6de94273b0c1f27a4e.localhost:7420; to sign in: callboard sign-in
4 agents running · 0 waiting for you · 0 failed          http://127.0.0.1:7420
$ callboard send coder 'FileWrite {"path": "notes.txt", "content": "hi"}'
req-b5a69c35aa9c  acknowledged by coder
$ callboard wait req-b5a6
req-b5a69c35aa9c waits for a person:
    ── approval bb01d4220784d3ae3d9331bb6d0e6b340002f9721ee454960aba05ad51e1df8b ──
    agent     coder
    action    FileWrite
    target    notes.txt
    expires   2026-12-04T00:01:41.128Z
    code      bb01
    effect    writes, by a user-defined agent
    rule      people are asked before an agent of a file changes or discloses anything
      │ {
      │   "path": "notes.txt",
      │   "content": "hi"
      │ }
    callboard approve approval:bb01d4220784d3ae3d9331bb6d0e6b340002f9721ee454960aba05ad51e1df8b
    callboard deny approval:bb01d4220784d3ae3d9331bb6d0e6b340002f9721ee454960aba05ad51e1df8b
$ callboard approve req-b5a6
approved: coder wants to FileWrite notes.txt
$ callboard wait @last
complete: The fake model does not think; it only shows how things go. It was asked: FileWrite {"path": "notes.txt", "content": "hi"}
- FileWrite answered: notes.txt is new: 1 lines
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
        Screen::of_columns(command, 160)
    };
    let lines = |text: String| sorted(text.lines().map(str::to_owned));
    let mut serving = on_terminal(&["serve", "--model", "fake", "--listen", "127.0.0.1:0"]);
    let mut served = serving.until("http://127.0.0.1:");
    let port = serving.until("\n");
    served += &port;
    if !served.contains("to sign in: ") {
        served += &serving.until("callboard sign-in\n");
    }
    let store = project.stores().join("1");
    let pages = served.split_once("http://cb-").unwrap().1.split_once('.').unwrap().0;
    let words = [
        ("/home/ann/.local/state/callboard/empty-9bddb78aa81a/1", store.to_str().unwrap()),
        ("5b1f0a8c6de94273b0c1f27a4e", pages),
        ("7420", port.trim_end()),
    ];
    assert_eq!(lines(served.clone()), shown_below("serve --model fake", &words));

    let task = r#"FileWrite {"path": "notes.txt", "content": "hi"}"#;
    let sent = on_terminal(&["send", "coder", task]).ended();
    let id = &sent[..16];
    let words = [("req-b5a69c35aa9c", id)];
    assert_eq!(lines(sent.clone()), shown_below(&format!("send coder '{task}'"), &words));
    let (code, waiting) = on_terminal(&["wait", &id[..8]]).exited();
    assert_eq!(code, Some(5), "{waiting}");
    let after = |label: &str| waiting.split_once(label).unwrap().1.split_whitespace().next().unwrap();
    let words = [
        words[0],
        ("bb01d4220784d3ae3d9331bb6d0e6b340002f9721ee454960aba05ad51e1df8b", after("approval ")),
        ("2026-12-04T00:01:41.128Z", after("expires ")),
        ("bb01", after("code ")),
    ];
    assert_eq!(lines(waiting.clone()), shown_below("wait req-b5a6", &words));
    assert!(!empty.join("notes.txt").exists(), "nobody has approved it");
    let approved = on_terminal(&["approve", &id[..8]]).ended();
    assert_eq!(lines(approved), shown_below("approve req-b5a6", &[]));
    let waited = on_terminal(&["wait", "@last"]).ended();
    assert_eq!(lines(waited), shown_below("wait @last", &[]));
    assert_eq!(fs::read_to_string(empty.join("notes.txt")).unwrap(), "hi");
}
