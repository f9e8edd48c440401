//! `callboard.toml`, and the options and variables that come before it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{callboard, command, folder_with, output_of, write};

const AGENT: (&str, &str) = ("agents/a.toml", "[agent]\nname = \"a\"\n");

#[test]
fn an_option_comes_before_a_variable_and_a_variable_before_the_file() {
    let folder = folder_with(&[AGENT, ("callboard.toml", "[serve]\nlisten = \"0.0.0.0:1\"\n")]);
    write(&folder, "other.toml", "[serve]\nlisten = \"0.0.0.0:4\"\n");
    // Addresses that other machines reach: each is refused before anything is listened on.
    let address = |variables: &[(&str, &str)], options: &[&str]| {
        let mut serve = command(&folder, &[&["serve"], options].concat());
        let printed = output_of(serve.envs(variables.iter().copied()));
        assert_eq!(printed.code, Some(2), "{}", printed.error);
        printed.error
    };
    let variable = ("CALLBOARD_LISTEN", "0.0.0.0:2");
    for (variables, options, expected) in [
        (&[][..], &[][..], "error: 0.0.0.0:1: other machines reach this address"),
        (&[("CALLBOARD_LISTEN", "")], &[], "error: 0.0.0.0:1: "),
        (&[variable], &[], "error: 0.0.0.0:2: "),
        (&[variable], &["--listen", "0.0.0.0:3"], "error: 0.0.0.0:3: "),
        (&[("CALLBOARD_CONFIG", "other.toml")], &[], "error: 0.0.0.0:4: "),
        (&[("CALLBOARD_CONFIG", "none.toml")], &["--config", "other.toml"], "error: 0.0.0.0:4: "),
        (&[("CALLBOARD_LISTEN", "here")], &[], "error: CALLBOARD_LISTEN is \"here\": write an IP address and a port"),
        (&[("CALLBOARD_INSECURE", "yes")], &[], "error: CALLBOARD_INSECURE is \"yes\": write true or false"),
        (&[("CALLBOARD_INSECURE", "false")], &[], "error: 0.0.0.0:1: "),
    ] {
        let error = address(variables, options);
        assert!(error.starts_with(expected), "{variables:?} {options:?}: {error}");
    }
}

#[test]
fn every_command_that_reads_settings_shows_the_place_of_a_defect() {
    let folder = folder_with(&[AGENT, ("callboard.toml", "[serve]\npublic_url = \"agents.example.org\"\n")]);
    let expected = "callboard.toml:2:14: `public_url` must be an origin, not \"agents.example.org\"";
    for (arguments, code) in
        [(&["check"][..], 2), (&["serve"], 2), (&["run", "x", "--model", "fake", "--ephemeral"], 2), (&["doctor"], 1)]
    {
        let printed = callboard(&folder, arguments);
        let text = printed.out + &printed.error;
        assert!(printed.code == Some(code) && text.contains(expected), "{arguments:?} {:?}: {text}", printed.code);
    }
}

#[test]
fn roles_of_the_project_bound_the_files_of_its_agents() {
    let agent =
        "[agent]\nname = \"auditor\"\n[agent.announces]\nrole = \"auditor\"\n[agent.capabilities]\nallowed_tools = [";
    let role = "[roles.auditor]\ntools = [\"reads\", \"Task\"]\nauthority = [\"reads\", \"notes\"]\nnamespaces = [\"audit\"]\n";
    let folder = folder_with(&[("callboard.toml", role)]);
    write(&folder, "agents/auditor.toml", &format!("{agent}\"FileRead\", \"Task\"]\n"));
    let checked = callboard(&folder, &["check"]);
    let granted = "agents/auditor.toml: auditor (general; FileRead, Task)\n  role auditor grants tools: reads, Task; authority: reads, \
                   notes; namespaces: audit; variables: none; Docker's socket: no\n";
    assert!(checked.code == Some(0) && checked.out.contains(granted), "{} {}", checked.out, checked.error);

    write(&folder, "agents/auditor.toml", &format!("{agent}\"FileRead\", \"FileWrite\"]\n"));
    let refused = "agents/auditor.toml:6:30: the role \"auditor\" does not grant the tool \"FileWrite\", whose effect is \"writes\"";
    for arguments in [&["check"][..], &["run", "x", "--model", "fake", "--ephemeral"]] {
        let printed = callboard(&folder, arguments);
        assert!(printed.code == Some(2) && printed.error.contains(refused), "{arguments:?}: {}", printed.error);
    }
    // What the roles grant is unknown where their file has defects.
    write(&folder, "callboard.toml", &role.replace("tools", "tool"));
    let checked = callboard(&folder, &["check"]);
    let wrong = "callboard.toml:2:1: a role has no key \"tool\"; did you mean \"tools\"?";
    assert!(checked.error.contains(wrong) && checked.error.contains("1 defect in"), "{}", checked.error);
}

/// An attack: settings that another user has put into a folder above, as into `/tmp`.
#[test]
fn settings_that_another_user_may_have_changed_are_not_used() {
    for files in
        [&[AGENT, ("callboard.toml", "[serve]\n")][..], &[("callboard.toml", "[serve]\n"), (".callboard/x", "")]]
    {
        let folder = folder_with(files);
        let file = folder.path().canonicalize().unwrap().join("callboard.toml");
        fs::create_dir(folder.path().join("deep")).unwrap();
        let run = |more: &[&str]| {
            let run = ["run", "x", "--model", "fake", "--to", "a", "--ephemeral"];
            let to = if files[0] == AGENT { "a" } else { "coder" };
            callboard(
                folder.path().join("deep"),
                &[&run.map(|word| if word == "a" { to } else { word }), more].concat(),
            )
        };
        assert_eq!(run(&[]).code, Some(0), "what the attack needs is there");
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        let refused = run(&[]);
        let shown = file.display();
        let why = format!(
            "error: {shown} is not used: another user may have changed {shown} (its mode is 666); to use it: --config {shown}"
        );
        assert_eq!((refused.code, refused.error.lines().last()), (Some(4), Some(&*why)));
        assert_eq!(run(&["--config", "../callboard.toml"]).code, Some(0));
        // The file that was named is the only one that is read.
        write(&folder, "named.toml", "[serve]\nlisten = 1\n");
        assert_eq!(run(&["--config", "../named.toml"]).code, Some(2));
    }
}
