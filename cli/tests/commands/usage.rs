//! Errors in command lines, as people and as programs read them.

use crate::support::{Printed, command, output_of};

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
        (&["run", "x", "--json", "--store"], "a value is required for '--store <FOLDER>'"),
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
    assert!(help.code == Some(0) && help.out.starts_with("Give agents a task"));
}
