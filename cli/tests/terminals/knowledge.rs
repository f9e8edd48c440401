//! `callboard kb` at a terminal: commands are typed, and a change is applied once the person agrees.

use crate::screen::Screen;
use crate::support::command;

#[test]
fn commands_are_typed_at_the_terminal_and_a_change_needs_consent() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut program = command(&folder, &["kb"]);
    program.env("XDG_STATE_HOME", state.path());
    let mut screen = Screen::of_columns(program, 160);
    assert!(screen.until("kb> ").contains("/submit STATEMENT"));
    screen.types("/submit The gate opens at nine.\n");
    assert!(screen.until("kb> ").contains("  current  is new"));
    screen.types("when does the gate open?\n");
    assert!(screen.until("kb> ").contains("The gate opens at nine."));
    for (answer, state) in [("n", "nothing was changed"), ("y", "  invalid  The gate opens at nine.")] {
        screen.types("/invalidate the gate opens at nine\n");
        assert!(screen.until("apply it? [y/N] ").contains("current → invalid"));
        screen.types(format!("{answer}\n"));
        let shown = screen.until("kb> ");
        assert!(shown.contains(state), "{shown}");
    }
    for (typed, expected) in [
        ("/query", "usage: /query QUESTION"),
        ("/submit ", "usage: /submit STATEMENT"),
        ("/invalidate", "usage: /invalidate FACT"),
    ] {
        screen.types(format!("{typed}\n"));
        let shown = screen.until("kb> ");
        assert!(shown.contains(expected), "{shown}");
    }
    screen.types("/facts --invalid\n");
    let shown = screen.until("kb> ");
    assert!(shown.contains("  invalid  ") && shown.contains("The gate opens at nine."), "{shown}");
    screen.types("/namespaces\n");
    let shown = screen.until("kb> ");
    assert!(shown.contains("default") && shown.contains("disputed"), "{shown}");
    for typed in ["help", "/help"] {
        screen.types(format!("{typed}\n"));
        let shown = screen.until("kb> ");
        assert!(shown.contains("/log FACT"), "{shown}");
    }
    screen.types("/nonsense\n");
    let shown = screen.until("kb> ");
    assert!(shown.contains("there is no command /nonsense:") && shown.contains("/log FACT"), "{shown}");
    screen.types("/quit\n");
    assert_eq!(screen.exited().0, Some(0));
    let mut program = command(&folder, &["kb", "submit", "The gate opens at ten."]);
    assert!(program.env("XDG_STATE_HOME", state.path()).output().unwrap().status.success());
    let mut program = command(&folder, &["kb", "invalidate", "the gate opens at ten"]);
    program.env("XDG_STATE_HOME", state.path());
    let mut screen = Screen::of_columns(program, 160);
    screen.until("apply it? [y/N] ");
    screen.types("n\n");
    assert_eq!(screen.exited().0, Some(4), "a person has denied it");
}

#[test]
fn what_is_read_is_reported_before_it_is_read() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(folder.path().join("notes")).unwrap();
    for file in ["a.md", "b.md"] {
        std::fs::write(folder.path().join("notes").join(file), "# One\n").unwrap();
    }
    let mut program = command(&folder, &["kb", "init", "notes"]);
    program.env("XDG_STATE_HOME", state.path());
    let (code, shown) = Screen::of_columns(program, 160).exited();
    let (reading, done) = (shown.find("reading notes: 2 files"), shown.find("2 documents: 2 passages new"));
    assert!(code == Some(0) && reading.is_some() && reading < done, "{shown}");
}
