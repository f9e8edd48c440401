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

#[test]
fn tools_of_roles_and_tokens_of_people_that_are_not_there_are_defects() {
    let settings = "[roles.auditor]\ntools = [\"reads\", \"FileRaed\", \"mcp__db__*\", \"Task\", \"mcp__db__query\"]\n[people]\n\
                    ann = { tokens = [\"owner\", \"laptop\", \"laptpo\"] }\n";
    let folder = folder_with(&[AGENT, ("callboard.toml", settings)]);
    let checked = || {
        let printed = output_of(command(&folder, &["check"]).env("CALLBOARD_STORE", "data"));
        (
            printed.code,
            printed
                .error
                .lines()
                .filter(|line| line.starts_with("callboard.toml"))
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    let of_roles = [
        "callboard.toml:2:19: there is no tool \"FileRaed\"; did you mean \"FileRead\"?",
        "callboard.toml:2:53: there is no tool \"mcp__db__query\"",
    ];
    assert_eq!(checked(), (Some(2), of_roles.map(str::to_owned).to_vec()), "without a server no token is known");
    let added = callboard(&folder, &["tokens", "add", "laptop", "--store", "data"]);
    assert_eq!(added.code, Some(0), "{}", added.error);
    let of_people = "callboard.toml:4:38: there is no token \"laptpo\"; did you mean \"laptop\"?";
    let all = of_roles.into_iter().chain([of_people]).map(str::to_owned).collect();
    assert_eq!(checked(), (Some(2), all));
}

#[test]
fn settings_that_serve_would_refuse_are_defects_also_without_agents() {
    let cert = "[serve]\ntls_cert = \"cert.pem\"\n";
    let (key, open) = ("[serve]\ntls_key = \"key.pem\"\n", "[serve]\nlisten = \"0.0.0.0:7420\"\n");
    let reached = "callboard.toml:2:10: other machines reach 0.0.0.0:7420, and there is no TLS";
    for (text, variable, expected) in [
        (cert, None, "callboard.toml:2:12: TLS needs `tls_key` too"),
        (cert, Some(("CALLBOARD_TLS_KEY", "key.pem")), ""),
        (key, None, "callboard.toml:2:11: TLS needs `tls_cert` too"),
        (open, None, reached),
        (open, Some(("CALLBOARD_LISTEN", "127.0.0.1:0")), ""),
        (open, Some(("CALLBOARD_INSECURE", "true")), ""),
        (&format!("{open}insecure = false\n"), None, reached),
        (&format!("{open}insecure = true\n"), Some(("CALLBOARD_INSECURE", "false")), reached),
        (&format!("{open}insecure = true\n"), None, ""),
        (&format!("{open}tls_cert = \"a\"\ntls_key = \"b\"\n"), None, ""),
        ("[roles.auditor]\ntools = [\"FileRaed\"]\n", None, "callboard.toml:2:10: there is no tool \"FileRaed\""),
    ] {
        for agents in [&[AGENT][..], &[(".callboard/x", "")]] {
            let folder = folder_with(&[agents, &[("callboard.toml", text)]].concat());
            let checked = output_of(command(&folder, &["check"]).envs(variable));
            let code = if expected.is_empty() { 0 } else { 2 };
            assert!(checked.code == Some(code) && checked.error.contains(expected), "{text}: {}", checked.error);
        }
    }
    // A run with such a role has no fewer tools.
    let settings = ("callboard.toml", "[roles.auditor]\ntools = [\"FileRaed\"]\n");
    let folder = folder_with(&[AGENT, settings]);
    let warned = callboard(&folder, &["run", "x", "--model", "fake", "--ephemeral"]);
    let why = "warning: callboard.toml:2:10: there is no tool \"FileRaed\"; did you mean \"FileRead\"?";
    assert!(warned.code == Some(0) && warned.error.contains(why), "{}", warned.error);
    let empty = folder_with(&[(".callboard/x", "")]);
    let missing = callboard(&empty, &["check"]);
    assert!(missing.code == Some(2) && missing.error.contains("there is no folder agents"), "{}", missing.error);
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

#[test]
fn a_limit_of_money_for_a_model_without_prices_is_an_error_with_its_place() {
    let models = "[[models]]\nname = \"m\"\nprovider = \"openai-compatible\"\nurl = \"http://127.0.0.1:9/v1\"\n";
    let of_agent = "[agent]\nname = \"a\"\n\n[agent.limits]\ncost_per_day = \"1.00\"\n";
    let task = ["run", "x", "--to", "a", "--ephemeral"];
    let folder =
        folder_with(&[AGENT, ("models.toml", models), ("callboard.toml", "[limits]\ncost_per_day = \"2.50\"\n")]);
    let at = "callboard.toml:2:16: money is limited, and the price of the model m of agent a is not known";
    for arguments in [&task[..], &["check"], &["serve", "--listen", "127.0.0.1:0"]] {
        let refused = callboard(&folder, arguments);
        let text = refused.out + &refused.error;
        assert!(refused.code == Some(2) && text.contains(at) && text.contains("^"), "{arguments:?}: {text}");
    }
    let folder = folder_with(&[("agents/a.toml", of_agent), ("models.toml", models)]);
    let at = "a.toml:5:1: money is limited, and the price of the model m is not known";
    let is_refused = |arguments: &[&str], advice: &str| {
        let refused = callboard(&folder, arguments);
        let text = refused.out + &refused.error;
        assert!(refused.code == Some(2) && text.contains(at) && text.contains(advice), "{arguments:?}: {text}");
    };
    is_refused(&task, "or limit tokens_per_day instead");
    is_refused(&["check"], "or limit tokens_per_day instead");
    write(&folder, "agents/a.toml", &of_agent.replace("per_day", "per_run"));
    is_refused(&["check"], "or limit tokens_per_run instead");
    let free = callboard(&folder, &[&task[..], &["--model", "fake", "--limits", "{\"cost\": \"0.01\"}"]].concat());
    assert_eq!(free.code, Some(0), "what costs nothing needs no prices: {}", free.error);
    let folder = folder_with(&[AGENT, ("models.toml", models)]);
    let refused = callboard(&folder, &[&task[..], &["--limits", "{\"cost\": \"0.01\"}"]].concat());
    let why = "error: --limits has a cost, and the price of the model m of agent a is not known: give it `prices` in models.toml";
    assert!(refused.code == Some(2) && refused.error.contains(why), "{}", refused.error);
}

#[test]
fn a_limit_of_a_day_refuses_what_does_not_fit_over_several_processes_and_says_what_to_raise() {
    let folder =
        folder_with(&[AGENT, ("callboard.toml", "[limits]\ntime_zone = \"Europe/Berlin\"\ntokens_per_day = 12000\n")]);
    let run = || callboard(&folder, &["run", "x", "--to", "a", "--model", "fake", "--store", "data"]);
    let first = run();
    assert_eq!(first.code, Some(0), "{}", first.error);
    let refused = run();
    let why = "raise `tokens_per_day` in [limits] of callboard.toml";
    assert!(refused.code == Some(1) && refused.error.contains(why), "{:?} {}", refused.code, refused.error);
    write(&folder, "callboard.toml", "[limits]\ntokens_per_run = 12\n");
    let refused = run();
    assert!(refused.code == Some(1) && refused.error.contains("do not fit the budget of 12"), "{}", refused.error);
    write(&folder, "callboard.toml", "");
    write(&folder, "agents/a.toml", "[agent]\nname = \"a\"\n\n[agent.limits]\ntokens_per_run = 12\n");
    let refused = run();
    let why = "agent a may use 12 tokens in a run, and in this one it has used or set aside 0";
    assert!(refused.code == Some(1) && refused.error.contains(why), "{}", refused.error);
    write(&folder, "callboard.toml", "[limits]\ntime_zone = \"Europe/Berlni\"\n");
    let unknown = callboard(&folder, &["check"]);
    assert!(
        unknown.out.contains("callboard.toml:2:13") || unknown.error.contains("callboard.toml:2:13"),
        "{}",
        unknown.out
    );
}
