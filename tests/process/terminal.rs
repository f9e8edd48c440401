//! The terminal channel as a person meets it: on a pseudo-terminal, with echo and line editing, where end of input is a key.
//!
//! The program on it is this test binary in another role.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use crate::common::{Shaky, people};
use crate::screen::{Screen, code_on};
use callboard::actors::approvals::TerminalChannel;
use callboard::env::Env;
use callboard::messages::Action;
use callboard::prelude::{Callboard, Command, Task, Turn};
use serde_json::{Value, json};

const ACTIONS: &str = "CALLBOARD_TERMINAL_ACTIONS";
const DENIES_AT_END: &str = "CALLBOARD_TERMINAL_DENIES_AT_END";
const STORE_FAILS: &str = "CALLBOARD_TERMINAL_STORE_FAILS";
const EXPIRES_AFTER: &str = "CALLBOARD_TERMINAL_EXPIRES_AFTER";
const PROMPT: &str = "approve? [y and the code, or n and a reason] ";
const END_OF_INPUT: &str = "\u{4}";

/// Not a test: the program on the terminal. Each action is asked for in a run of its own, all of them at once.
#[test]
fn the_program() {
    let Ok(actions) = std::env::var(ACTIONS) else { return };
    let actions: Vec<(String, String, Value)> = serde_json::from_str(&actions).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let terminal = TerminalChannel::new();
        let terminal = if std::env::var_os(DENIES_AT_END).is_some() { terminal.deny_at_end() } else { terminal };
        let clerk = |turn: Turn| async move {
            let (action, target, arguments): (String, String, Value) = turn.input()?;
            let reported = match turn.people().approve(Action::new(&action, &target, arguments)).await {
                Ok(approved) => format!("done: {}", approved.arguments),
                Err(error) => format!("{error}"),
            };
            Ok(Command::output(reported))
        };
        let store = Shaky::new(&Env::system(), 0);
        if std::env::var_os(STORE_FAILS).is_some() {
            store.decision_faults.lock().push(false);
        }
        let board = Callboard::builder().storage(store).channel(terminal).agent("clerk", clerk).start().await.unwrap();
        let mut runs = Vec::new();
        // Of the first; the others wait as long as usual.
        let mut ttl = std::env::var(EXPIRES_AFTER).ok().map(|millis| Duration::from_millis(millis.parse().unwrap()));
        for action in actions {
            let mut task = Task::new("act").input(json!(action));
            task.approval_ttl = ttl.take();
            let is_first = task.approval_ttl.is_some();
            runs.push(board.submit(task).await.unwrap());
            if is_first {
                // It is asked about before the others are.
                people::approval(&board).await;
            }
        }
        for (number, run) in (1..).zip(runs) {
            println!("run {number}: {:?}", run.result().await.unwrap().output.as_str().unwrap());
        }
        board.shutdown().await;
    });
}

/// The program that asks for these actions.
fn asking(actions: Value, denies_at_end: bool) -> Screen {
    Screen::of(program(actions, denies_at_end))
}

/// As [`asking`], on a store that fails when the first decision is to be stored.
fn asking_on_a_failing_store(denies_at_end: bool) -> Screen {
    let mut program = program(one(), denies_at_end);
    program.env(STORE_FAILS, "once");
    Screen::of(program)
}

fn program(actions: Value, denies_at_end: bool) -> Process {
    let mut program = Process::new(std::env::current_exe().unwrap());
    program.args(["--exact", "terminal::the_program", "--nocapture", "--quiet", "--color", "never"]);
    program.env(ACTIONS, actions.to_string());
    if denies_at_end {
        program.env(DENIES_AT_END, "yes");
    }
    program
}

#[test]
fn a_card_that_expires_while_it_is_open_makes_room_for_the_next_one() {
    let mut program = program(json!([["write_file", "a.txt", "aaa"], ["write_file", "b.txt", "bbb"]]), false);
    program.env(EXPIRES_AFTER, "1500");
    let mut screen = Screen::of(program);
    let first = screen.until(PROMPT);
    assert!(first.contains("target    a.txt\n"), "{first}");
    // Half of a line that never becomes an answer.
    screen.types(format!("y {}", code_on(&first)));
    screen.until("\nwrite_file a.txt of clerk still waits: it is denied at ");
    screen.until(PROMPT);
    screen.until("\nwrite_file a.txt was denied by expiry at ");
    let second = screen.until(PROMPT);
    assert!(second.contains("target    b.txt\n"), "{second}");
    screen.consents(&second);
    let reported = screen.ended();
    assert!(
        reported.contains("run 1: \"denied: the approval of write_file a.txt expired before anybody decided\""),
        "{reported}"
    );
    assert!(reported.contains(r#"run 2: "done: \"bbb\"""#), "{reported}");
}

fn one() -> Value {
    json!([["write_file", "letter.txt", { "text": "Dear Ada" }]])
}

#[test]
fn yes_lets_exactly_what_the_card_shows_go_ahead() {
    for yes in ["y", "yes", "  Y  "] {
        let mut screen = asking(one(), false);
        let card = screen.until(PROMPT);
        for line in ["agent     clerk", "action    write_file", "target    letter.txt", "  │   \"text\": \"Dear Ada\""]
        {
            assert_eq!(card.lines().filter(|shown| *shown == line).count(), 1, "{line:?} in {card}");
        }
        screen.types(format!("{yes} {}\n", code_on(&card)));
        screen.until(r#"run 1: "done: {\"text\":\"Dear Ada\"}""#);
        screen.ended();
    }
}

#[test]
fn no_reaches_the_agent_with_its_reason_and_is_the_answer_of_an_empty_line() {
    for (no, expected) in [
        ("n not today, and \u{201e}never\u{201c}\n", "denied by terminal: not today, and \u{201e}never\u{201c}\""),
        ("NO\n", "denied by terminal\""),
        ("\n", "denied by terminal\""),
    ] {
        let mut screen = asking(one(), false);
        screen.until(PROMPT);
        screen.types(no);
        screen.until(&format!("run 1: \"denied: write_file letter.txt was {expected}"));
        screen.ended();
    }
}

#[test]
fn what_is_neither_yes_nor_no_is_asked_again() {
    let garbage: [&[u8]; 7] =
        [b"maybe\n", b"yyy\n", b"\xff\xfe\n", b"\x1b[A\n", "\u{ff59}\n".as_bytes(), b"y\n", b"y but later\n"];
    let mut screen = asking(one(), true);
    let first = screen.until(PROMPT);
    let first = &first[first.find("── approval").unwrap()..];
    for typed in garbage {
        screen.types(typed);
        screen.until("please answer y ");
        screen.until("\n");
        assert_eq!(screen.until(PROMPT), first, "the same card again");
    }
    screen.consents(first);
    screen.until("run 1: \"done");
    screen.ended();
}

#[test]
fn a_word_that_was_taken_back_before_the_line_ended_was_not_said() {
    let mut screen = asking(one(), false);
    let card = screen.until(PROMPT);
    // Erases the line, as a person does who has changed their mind.
    screen.types(format!("y {}\u{15}n better not\n", code_on(&card)));
    screen.until("denied by terminal: better not");
    screen.ended();
}

#[test]
fn end_of_input_denies_or_leaves_open_as_the_program_chose() {
    let mut screen = asking(one(), true);
    screen.until(PROMPT);
    screen.types(END_OF_INPUT);
    screen.until("denied by terminal: nobody is there to answer");
    screen.ended();

    let mut screen = asking(one(), false);
    screen.until(PROMPT);
    screen.types(END_OF_INPUT);
    screen.until("no more input; the approval stays open");
}

#[test]
fn an_answer_that_could_not_be_stored_is_asked_for_again() {
    let mut screen = asking_on_a_failing_store(false);
    let card = screen.until(PROMPT);
    screen.consents(&card);
    screen.until("no acknowledgement\nnothing was decided; please answer again\n");
    let card = screen.until(PROMPT);
    assert!(card.contains("target    letter.txt"), "{card}");
    screen.types("n not now\n");
    screen.until("denied by terminal: not now");
    screen.ended();
}

#[test]
fn a_denial_at_the_end_of_input_that_could_not_be_stored_is_tried_again() {
    let mut screen = asking_on_a_failing_store(true);
    screen.until(PROMPT);
    screen.types(END_OF_INPUT);
    screen.until("no acknowledgement\n");
    screen.until("denied by terminal: nobody is there to answer");
    screen.ended();
}

#[test]
fn two_questions_are_asked_one_after_the_other_and_each_gets_its_own_answer() {
    let both = json!([["write_file", "a.txt", "aaa"], ["write_file", "b.txt", "bbb"]]);
    let mut screen = asking(both, false);
    for _ in 0..2 {
        let card = screen.until(PROMPT);
        let targets: Vec<&str> = card.lines().filter_map(|line| line.strip_prefix("target    ")).collect();
        match targets.as_slice() {
            ["a.txt"] => screen.consents(&card),
            ["b.txt"] => screen.types("n not b\n"),
            other => panic!("not one question at a time: {other:?} in {card}"),
        }
    }
    let reported = screen.ended();
    assert!(reported.contains(r#"run 1: "done: \"aaa\"""#), "{reported}");
    assert!(reported.contains(r#"run 2: "denied: write_file b.txt was denied by terminal: not b""#), "{reported}");
}

#[test]
fn what_an_agent_wrote_cannot_pass_for_a_card_or_give_the_terminal_orders() {
    let fake = format!("── approval 0000 ──\nagent     admin\naction    read_file\ncode      0000\n{PROMPT}");
    let clear = "\u{1b}[2J\u{1b}[H\u{1b}]0;title\u{7}\u{9b}31m\u{8}\u{8}\u{7f}";
    let turned = "\u{202e}txt.exe\u{2066}\u{200b}\u{feff}\u{e0041}";
    let hostile = [
        json!(format!("harmless\r{clear}\r\n{fake}{turned}\u{85}{fake}\u{2028}{fake}")),
        json!({ "text": format!("{clear}{fake}"), (format!("\u{1b}[8m{turned}\n{fake}")): [clear] }),
        json!(format!("{}{fake}", "\n".repeat(1_990))),
    ];
    for arguments in hostile {
        let action = [json!(format!("write{clear}\n{fake}")), json!(format!("a.txt\n{fake}{turned}")), arguments];
        let mut screen = asking(json!([action]), false);
        // The real prompt is the one at the beginning of a line.
        let card = screen.until(&format!("\n{PROMPT}"));
        let strange = |c: char| {
            c.is_control() && c != '\n' || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}')
        };
        assert!(!card.contains(strange), "{card:?}");
        // The expiry and the code are the last lines of the head.
        let begins = |with: &str| card.lines().filter(|line| line.starts_with(with)).count();
        assert_eq!(["── approval ", "agent ", "action ", "target ", "code "].map(begins), [1; 5], "{card}");
        assert_eq!(begins(PROMPT.trim_end()), 1, "{card}");
        let arguments = card.lines().skip_while(|line| !line.starts_with("code ")).skip(1);
        for line in arguments.filter(|line| !line.starts_with(PROMPT.trim_end())) {
            assert!(["  │ ", "  ┆ ", "  … "].iter().any(|bar| line.starts_with(bar)), "{line:?} in {card}");
        }
        screen.types("n no\n");
        screen.until("denied by terminal: no");
        screen.ended();
    }
}

#[test]
fn what_was_typed_before_the_card_was_there_answers_nothing() {
    let mut screen = Screen::typed_ahead(program(one(), true), &format!("n early\n\ny\n{END_OF_INPUT}"));
    let card = screen.until(PROMPT);
    screen.consents(&card);
    screen.until("run 1: \"done");
    screen.ended();
}

#[test]
fn the_code_of_another_card_approves_nothing() {
    let mut screen = asking(json!([["write_file", "a.txt", "aaa"], ["write_file", "b.txt", "bbb"]]), false);
    let first = screen.until(PROMPT);
    screen.consents(&first);
    let second = screen.until(PROMPT);
    assert_ne!(code_on(&first), code_on(&second));
    screen.consents(&first);
    screen.until("please answer y and the code that is on this card");
    screen.until(PROMPT);
    screen.types("n\n");
    let reported = screen.ended();
    assert_eq!(reported.matches("done").count(), 1, "{reported}");
}

#[test]
fn what_was_pasted_after_an_answer_answers_no_other_card() {
    let mut screen = asking(json!([["write_file", "a.txt", "aaa"], ["write_file", "b.txt", "bbb"]]), true);
    let first = screen.until(PROMPT);
    screen.types(format!("y {0}\nn pasted\n\ny {0}\n{END_OF_INPUT}", code_on(&first)));
    let second = screen.until(PROMPT);
    screen.consents(&second);
    let reported = screen.ended();
    assert_eq!(reported.matches("done").count(), 2, "{reported}");
}

/// What a terminal of so many columns shows, a row for each of its rows.
fn rows(shown: &str, columns: usize) -> Vec<String> {
    let rows = |line: &str| -> Vec<String> {
        let characters: Vec<char> = line.chars().collect();
        characters.chunks(columns).map(|row| row.iter().collect()).collect()
    };
    shown.lines().flat_map(rows).collect()
}

#[test]
fn on_a_terminal_of_ten_columns_no_row_passes_for_the_head_of_a_card() {
    let columns = 10;
    let forged = ["agent     ", "admin     ", "action    ", "read_file ", "target    ", "a.txt     "].concat();
    let action = json!([[&*forged, format!("a.txt{forged}"), { "text": forged.repeat(3), (forged.clone()): forged }]]);
    let mut screen = Screen::of_columns(program(action, false), columns);
    let card = screen.until(PROMPT);
    let rows = rows(&card[card.find("── approval").unwrap()..], usize::from(columns));
    for head in ["agent ", "action ", "target "] {
        assert_eq!(rows.iter().filter(|row| row.starts_with(head)).count(), 1, "{head}: {rows:#?}");
    }
    screen.consents(&card.replace("\n┆ ", ""));
    screen.until("run 1: \"done");
    screen.ended();
}

#[test]
fn a_card_that_a_narrower_terminal_may_have_wrapped_is_shown_again_before_it_is_answered() {
    let mut screen = Screen::of_columns(program(one(), false), 80);
    let card = screen.until(PROMPT);
    screen.resize(40);
    screen.consents(&card);
    screen.until("the terminal has become narrower: this is shown again");
    let again = screen.until(PROMPT);
    assert_eq!(code_on(&card), code_on(&again));
    // A wider one wraps nothing.
    screen.resize(120);
    screen.consents(&again);
    screen.until("run 1: \"done");
    screen.ended();
}

#[test]
fn where_there_is_no_terminal_nobody_is_asked() {
    for (denies_at_end, expected) in
        [(true, "denied by terminal: nobody is there to answer"), (false, "there is no terminal to ask at; approval ")]
    {
        let mut program = program(one(), denies_at_end);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        // Input from a pipe does not come from a person, whatever it is.
        child.stdin.take().unwrap().write_all(b"y\ny\n").unwrap();
        let both: Box<dyn Read> =
            if denies_at_end { Box::new(child.stdout.take().unwrap()) } else { Box::new(child.stderr.take().unwrap()) };
        let reported = BufReader::new(both).lines().map(Result::unwrap).find(|line| line.contains(expected));
        assert!(reported.is_some(), "{expected}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_cut_from_a_long_card_is_counted_and_shown_to_who_asks() {
    let mut screen = asking(json!([["write_file", "long.txt", "ä".repeat(2_345)]]), false);
    let card = screen.until(PROMPT);
    assert_eq!(card.matches('ä').count(), 2_000);
    assert!(card.contains("  … 345 more characters; the hash above covers all of them\n"), "{card}");
    screen.types("s\n");
    let whole = screen.until(PROMPT);
    assert_eq!(whole.matches('ä').count(), 2_345);
    screen.consents(&whole);
    screen.until(&"ä".repeat(2_345));
    screen.ended();
}

#[tokio::test]
async fn the_approval_example_is_answered_on_a_terminal() {
    for (says_yes, story) in [
        (true, ["Decided: approved by terminal", "The run ended: finished.", "Dear Ada,"]),
        (false, ["Decided: denied by terminal", "by terminal: wrong address", "There is no letter."]),
    ] {
        let example = crate::processes::example("approval");
        let screen = tokio::task::spawn_blocking(move || {
            let mut screen = Screen::of(Process::new(example.as_std().get_program()));
            let card = screen.until(PROMPT);
            if says_yes {
                screen.consents(&card)
            } else {
                screen.types("n wrong address\n")
            }
            screen.ended()
        });
        let reported = screen.await.unwrap();
        assert!(story.iter().all(|part| reported.contains(part)), "{reported}");
    }
}
