//! Command lines that are wrong, as people and as programs receive it: real processes.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn callboard(arguments: &[&str], within: Option<&str>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.args(arguments).current_dir(&folder).stdin(Stdio::null());
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.envs(within.map(|run| ("CALLBOARD_RUN", run))).output().unwrap()
}

#[test]
fn what_is_wrong_with_a_command_line_is_json_on_standard_output_if_json_is_among_its_arguments() {
    for (arguments, says) in [
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
        let output = callboard(arguments, None);
        let printed: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!((output.status.code(), &printed["code"]), (Some(2), &2.into()), "{arguments:?}");
        let error = printed["error"].as_str().unwrap();
        assert!(error.contains(says) && !error.starts_with("error"), "{arguments:?}: {error}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
    let within = callboard(&["run", "x", "--json"], Some("0192f0c1-2345-7abc-8def-0123456789ab"));
    let printed: Value = serde_json::from_slice(&within.stdout).unwrap();
    assert!(printed["error"].as_str().unwrap().contains("CALLBOARD_RUN is set"), "{printed}");
}

#[test]
fn what_is_a_slip_away_from_a_subcommand_is_named_as_a_tip() {
    for (arguments, tip) in [
        (&["workflow", "rnu"][..], "tip: a similar subcommand exists: 'run'"),
        (&["workflow", "retyr", "@last"], "tip: a similar subcommand exists: 'retry'"),
        (&["runs", "lst"], "tip: a similar subcommand exists: 'list'"),
    ] {
        let output = callboard(arguments, None);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(tip), "{arguments:?}: {error}");
    }
}

#[test]
fn people_read_what_is_wrong_on_standard_error_and_help_is_no_error() {
    for arguments in [&["run", "x", "--nonsense"][..], &["run", "--nonsense", "--", "--json"]] {
        let output = callboard(arguments, None);
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{arguments:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("error: unexpected argument '--nonsense'"), "{error}");
    }
    let help = callboard(&["run", "--json", "--help"], None);
    assert!(help.status.success() && help.stdout.starts_with(b"Have agents do something"));
}
