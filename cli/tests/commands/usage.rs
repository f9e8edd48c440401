//! Errors in command lines, as people and as programs read them.

use std::process::Command;

use crate::support::{Printed, callboard as in_folder, command, content, folder_with, output_of, write};

/// Runs the program in an empty folder, within the run if one is given.
fn callboard(arguments: &[&str], within: Option<&str>) -> Printed {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(&folder, arguments);
    output_of(command.envs(within.map(|run| ("CALLBOARD_RUN", run))))
}

#[test]
fn errors_in_a_command_line_are_json_on_standard_output_if_json_is_among_its_arguments() {
    for (arguments, expected) in [
        (&["run", "x", "--nonsense", "--json"][..], "unexpected argument '--nonsense'"),
        (&["run", "x", "--json", "--store"], "a value is required for '--store <STORE>'"),
        (&["run", "--json"], "required"),
        (&["run", "x", "--json", "--resume", "@last"], "cannot be used with"),
        (&["run", "--resume", "@last", "--limits", "simple", "--json"], "callboard run --retry @last --limits"),
        (&["run", "x", "--json", "--limits", "huge"], "use simple, medium or complex"),
        (&["nonsense", "--json"], "unrecognized subcommand 'nonsense'"),
        (&["show", "@last", "--json"], "runs show"),
        (&["--json"], "unexpected argument '--json'"),
        (&["runs", "list", "--json", "--state", "nonsense"], "nonsense"),
        (&["workflow", "run", "--json"], "required"),
        (&["conversations", "fork", "a", "--json"], "required"),
    ] {
        let refused = callboard(arguments, None);
        let json = refused.json();
        assert_eq!((refused.code, &json["code"]), (Some(2), &2.into()), "{arguments:?}");
        let error = json["error"].as_str().unwrap();
        assert!(error.contains(expected) && !error.starts_with("error"), "{arguments:?}: {error}");
        assert_eq!(refused.error, "", "{arguments:?}");
    }
    let within = callboard(&["run", "x", "--json"], Some("0192f0c1-2345-7abc-8def-0123456789ab")).json();
    assert!(within["error"].as_str().unwrap().contains("CALLBOARD_RUN is set"), "{within}");
}

#[test]
fn values_that_cannot_be_meant_are_refused_with_what_to_write() {
    for (arguments, error) in [
        (
            &["run", "@"][..],
            "error: invalid value '@' for '[TASK]': after @ comes the name of a file, or - for standard input\n",
        ),
        (&["run", "hi", "--model", ""], "error: a value is required for '--model <MODEL>' but none was supplied\n"),
        (&["run", "hi", "--to", "-x"], "\n\n  tip: to give --to this value: --to=-x\n"),
        (
            &["run", "hi", "--pipeline", ""],
            "error: invalid value '' for '--pipeline <AGENT,…>': a name is empty: write names with commas between them, as in ann,bob\n",
        ),
        (&["run", "hi", "--peers", "coder"], "error: --peers takes two agents or more, as in ann,bob; here is 1\n"),
    ] {
        let refused = callboard(arguments, None);
        assert!(refused.code == Some(2) && refused.error.contains(error), "{arguments:?}: {}", refused.error);
    }
    let empty = callboard(&["check", ""], None);
    assert!(empty.code == Some(2) && !empty.error.contains("tip"), "{}", empty.error);
}

#[test]
fn a_subcommand_with_a_typo_is_corrected_in_a_tip() {
    for (arguments, tip) in [
        (&["workflow", "rnu"][..], "tip: a similar subcommand exists: 'run'"),
        (&["workflow", "retyr", "@last"], "tip: a similar subcommand exists: 'retry'"),
        (&["runs", "lst"], "tip: a similar subcommand exists: 'list'"),
    ] {
        let refused = callboard(arguments, None);
        assert!(refused.code == Some(2) && refused.error.contains(tip), "{arguments:?}: {}", refused.error);
    }
}

#[test]
fn people_read_errors_on_standard_error_and_help_is_not_an_error() {
    for arguments in [&["run", "x", "--nonsense"][..], &["run", "--nonsense", "--", "--json"]] {
        let refused = callboard(arguments, None);
        assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{arguments:?}");
        assert!(refused.error.starts_with("error: unexpected argument '--nonsense'"), "{}", refused.error);
    }
    let help = callboard(&["run", "--json", "--help"], None);
    assert!(help.code == Some(0) && help.out.starts_with("Run a task with agents"));
}

#[test]
fn control_characters_of_arguments_are_escaped_in_errors() {
    const RED: &str = "\u{1b}[31mred\u{202e}";
    for arguments in [
        &[RED][..],
        &["run", "x", "--\u{1b}[31mred\u{202e}"],
        &["run", "x", "--limits", RED],
        &["run", "x", "--rounds", RED],
        &["runs", "list", "--state", RED],
        &["runs", "list", "--since", RED],
        &["run", "x", "--input", "@\u{1b}[31mred\u{202e}"],
        &["conversations", "show", RED],
        &["workflow", "run", "--line", "a", "--input", RED],
    ] {
        for json in [&[][..], &["--json"]] {
            let refused = callboard(&[arguments, json].concat(), None);
            let printed = refused.out + &refused.error;
            assert_eq!(refused.code, Some(2), "{arguments:?}");
            assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{arguments:?}: {printed:?}");
            let escaped = if json.is_empty() { "\\u{1b}[31mred\\u{202e}" } else { "\\\\u{1b}[31mred\\\\u{202e}" };
            assert!(printed.contains(escaped), "{arguments:?}: {printed}");
        }
    }
}

#[test]
fn an_approval_has_time_for_its_answer() {
    for command in [&["run", "x"][..], &["workflow", "run", "--line", "a"]] {
        let refused = callboard(&[command, &["--approval-ttl", "0s"]].concat(), None);
        assert!(refused.code == Some(2) && refused.error.contains("it has to be above zero"), "{}", refused.error);
    }
}

#[test]
fn repeated_keys_and_text_that_is_almost_json_are_refused() {
    for (arguments, expected) in [
        (
            &["run", "x", "--input", "{\"a\": 1, \"a\": 2}"][..],
            "column 12: the key \"a\" is repeated; keep one of them",
        ),
        (
            &["runs", "fork", "@last", "--turn", "1", "--set", "a={\"b\": [{\"c\": 1, \"c\": 1}]}"],
            "the key \"c\" is repeated",
        ),
        (&["workflow", "run", "--line", "a", "--input-json", "{\"a\": 1, \"a\": 2}"], "the key \"a\" is repeated"),
        (&["workflow", "run", "--line", "a", "--input", "x={\"a\": 1, \"a\": 2}"], "the key \"a\" is repeated"),
        (&["workflow", "run", "--line", "a", "--input", "x={\"a\": 1"], "it begins like JSON and is none: column 7: "),
        (&["workflow", "run", "--line", "a", "--input", "x=[1] and"], "as text of JSON: \"[1] and\", or as KEY=@FILE"),
        (&["workflow", "resume", "@last", "--set", "a={\"b\": 1, \"b\": 1}"], "the key \"b\" is repeated"),
    ] {
        let refused = callboard(arguments, None);
        assert!(refused.code == Some(2) && refused.error.contains(expected), "{arguments:?}: {}", refused.error);
    }
}

/// The help of each command, with the words that name it.
fn helps() -> Vec<(String, String)> {
    let (mut found, mut left) = (Vec::new(), vec![Vec::new()]);
    while let Some(words) = left.pop() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = callboard(&[&words[..], &["--help"]].concat(), None).out;
        let listed = help.split_once("\nCommands:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap().to_owned());
        // Further lines of a description are indented more.
        let names = listed.iter().flat_map(|listed| listed.lines()).filter(|line| !line.starts_with("   "));
        for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            left.push(words.iter().chain([&name]).map(|word| (*word).to_owned()).collect());
        }
        found.push((words.join(" "), help));
    }
    found
}

#[test]
fn each_command_that_prints_json_is_on_the_page_of_its_shapes() {
    let page = include_str!("../../../docs/json-output.md");
    let missing: Vec<String> = helps()
        .into_iter()
        .filter(|(words, help)| {
            let option = help.contains("--json ");
            option && ![format!("`{words}`"), format!("`{words} ")].iter().any(|name| page.contains(name))
        })
        .map(|(words, _)| words)
        .collect();
    assert_eq!(missing, [""; 0]);
    let agents = |version| callboard(&["check", version], None);
    assert!(agents("--json=1").out.contains("there is no folder agents"), "{}", agents("--json=1").out);
    let other = agents("--json=2");
    assert!(other.code == Some(2) && other.out.contains("unexpected value '2' for '--json'"), "{}", other.out);
}

#[test]
fn every_command_has_the_same_exit_codes_in_its_help_and_they_are_those_of_the_documents() {
    let helps = helps();
    assert!(helps.len() > 20 && helps.iter().any(|(words, _)| words == "runs show"), "{}", helps.len());
    let codes =
        |help: &str| help.split_once("\nExit codes, of every command:\n").map(|(_, codes)| codes.trim_end().to_owned());
    let (_, first) = &helps[0];
    let expected = codes(first).unwrap();
    for (words, help) in &helps {
        assert_eq!(codes(help).as_ref(), Some(&expected), "callboard {words} --help:\n{help}");
    }
    let documented = include_str!("../../../docs/exit-codes.md");
    let rows = documented.lines().filter_map(|line| {
        let (code, meaning) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        code.parse::<u8>().ok().map(|code| format!("{code:>5}  {meaning}"))
    });
    assert_eq!(rows.collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
}

#[test]
fn each_exit_code_is_that_of_its_cause() {
    for (arguments, within, code) in [
        (&["runs", "list", "--store", "nowhere"][..], None, 3),
        (&["run", "--resume", "0192"], None, 3),
        (&["conversations", "show", "ann"], None, 3),
        (&["check"], None, 2),
        (&["workflow", "check", "--line", "a -> b("], None, 2),
        (&["run", "x"], Some("0192f0c1-2345-7abc-8def-0123456789ab"), 4),
    ] {
        let refused = callboard(arguments, within);
        assert_eq!(refused.code, Some(code), "{arguments:?}: {}", refused.error);
    }
}

#[test]
fn shells_complete_the_commands_and_each_command_has_a_man_page() {
    let folder = folder_with(&[("file", "")]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = in_folder(&folder, &["completions", shell]);
        assert!(script.code == Some(0) && script.out.contains("dead-letters"), "{shell}: {}", script.error);
        write(&folder, shell, &script.out);
    }
    let checked = Command::new("bash").args(["-n", "bash"]).current_dir(&folder).status();
    assert!(checked.is_ok_and(|status| status.success()));
    assert_eq!(in_folder(&folder, &["completions", "tcsh"]).code, Some(2));
    let made = in_folder(&folder, &["man", "pages/man1"]);
    assert!(made.code == Some(0) && made.out.ends_with(" files in pages/man1\n"), "{}", made.error);
    let page = content(&folder, "pages/man1/callboard-workflow-run.1").unwrap();
    assert!(page.contains("Exit codes, of every command") && page.contains("no\\-input"), "{page}");
    assert_eq!(in_folder(&folder, &["man", "file"]).code, Some(2));
}
