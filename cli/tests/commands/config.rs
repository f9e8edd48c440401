//! `callboard.toml`, and the options and variables that come before it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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
        (cert, Some(("CALLBOARD_TLS_KEY", "key.pem")), "callboard.toml:2:12: TLS: cert.pem: No such file"),
        (key, None, "callboard.toml:2:11: TLS needs `tls_cert` too"),
        (open, None, reached),
        (open, Some(("CALLBOARD_LISTEN", "127.0.0.1:0")), ""),
        (open, Some(("CALLBOARD_INSECURE", "true")), ""),
        (&format!("{open}insecure = false\n"), None, reached),
        (&format!("{open}insecure = true\n"), Some(("CALLBOARD_INSECURE", "false")), reached),
        (&format!("{open}insecure = true\n"), None, ""),
        (&format!("{open}tls_cert = \"a\"\ntls_key = \"b\"\n"), None, "callboard.toml:3:12: TLS: a: No such file"),
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

/// The section before its secret, what is set as the secret, and where that stands.
const SECRETS: [(&str, &str, &str, &str); 4] = [
    ("[telegram]", "token", "2", "the token of the bot"),
    (
        "[matrix]\nhomeserver = \"https://example.org\"\nrooms = [\"!a:example.org\"]",
        "token",
        "4",
        "the access token of the account",
    ),
    (
        "[email]\nserver = \"mail.example.org\"\nfrom = \"board@example.org\"\nuser = \"board\"",
        "password",
        "5",
        "the password of the account that sends mails",
    ),
    (
        "[channels.webhooks.relay]\nurl = \"https://relay.example.org\"",
        "secret",
        "3",
        "the secret of the webhook \"relay\"",
    ),
];

#[test]
fn secrets_that_serve_would_refuse_are_defects_and_variables_that_are_not_set_are_warnings() {
    let (folder, beside) = (folder_with(&[AGENT]), tempfile::tempdir().unwrap());
    let malformed = beside.path().join("malformed");
    fs::write(&malformed, " \n").unwrap();
    let malformed = malformed.display().to_string();
    for (section, key, line, what) in SECRETS {
        let (file, variable) = (format!("{key}_file"), format!("{key}_env"));
        let within = "is in the folder that tools of agents work in, so they could read it; move it elsewhere";
        for (key, value, set, code, expected) in [
            (&file, "/none.token", None, 2, format!("{what}: /none.token: there is no such file; put it there, or")),
            (&file, "/", None, 2, format!("{what}: /: it is not a file; put it there, or name another place with")),
            (&file, "agents/a.toml", None, 4, format!("{what}, agents/a.toml, {within}")),
            (&file, &malformed, None, 2, format!("{malformed}: the ")),
            (&variable, "BOT", Some(" "), 2, "the variable BOT: the ".to_owned()),
            (
                &variable,
                "BOT",
                Some(""),
                2,
                format!("{what}: the variable BOT of callboard.toml is not set; set it where"),
            ),
        ] {
            let people = "[people]\nann = { telegram = 12, matrix = [\"@ann:example.org\"], tokens = [], email = \"ann@example.org\" }";
            write(&folder, "callboard.toml", &format!("{section}\n{key} = {value:?}\n{people}\n"));
            let run = |arguments: &[&str]| output_of(command(&folder, arguments).envs(set.map(|value| ("BOT", value))));
            let at = format!("callboard.toml:{line}:{}: ", key.len() + 4);
            let served = run(&["serve", "--listen", "127.0.0.1:0", "--model", "fake", "--store", "data"]);
            let is_refused = served.error.contains(&format!("error: {at}{expected}"));
            assert!(served.code == Some(code) && is_refused, "{:?} {}", served.code, served.error);
            let checked = run(&["check"]);
            if set == Some("") {
                let is_warned = checked.error.contains(&format!("warning: {at}{expected}"));
                assert!(checked.code == Some(0) && is_warned, "{:?} {}", checked.code, checked.error);
                let rows = run(&["check", "--json"]).json();
                let unset = rows.as_array().unwrap().iter().find(|row| row["kind"] == "unset").unwrap();
                assert!(unset["variable"] == "BOT" && unset["why"].as_str().unwrap().starts_with(&at), "{unset}");
            } else {
                let (problem, _) = expected.split_once("; ").unwrap_or((&expected, ""));
                let is_defect = checked.error.contains(&format!("{at}{problem}"));
                assert!(checked.code == Some(2) && is_defect, "{:?} {}", checked.code, checked.error);
            }
        }
    }
}

#[test]
fn a_certificate_that_serve_would_refuse_is_a_defect_with_its_place() {
    let (folder, beside) = (folder_with(&[AGENT]), tempfile::tempdir().unwrap());
    let file = |name: &str| {
        let (from, to) =
            (Path::new("../crates/callboard-server/tests/server/certificates").join(name), beside.path().join(name));
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
        to.display().to_string()
    };
    let (certificate, other, key) = (file("first.pem"), file("second.pem"), file("first.key"));
    fs::copy(&key, folder.path().join("near.key")).unwrap();
    for (certificate, key, code, expected) in [
        (&*certificate, &*key, 0, ""),
        ("/none.pem", &key, 2, "2:12: TLS: /none.pem: No such file"),
        (&certificate, "/none.key", 2, "3:11: TLS: /none.key: No such file"),
        (&certificate, &certificate, 2, "3:11: TLS: "),
        (&other, &key, 2, "2:12: TLS: the certificate and the key cannot be used: "),
        (&certificate, "near.key", 4, "3:11: the key near.key is in the folder that tools of agents work in"),
    ] {
        let settings = format!("[serve]\ntls_cert = {certificate:?}\ntls_key = {key:?}\n");
        write(&folder, "callboard.toml", &settings);
        let expected = format!("callboard.toml:{expected}");
        let checked = callboard(&folder, &["check"]);
        if code == 0 {
            assert_eq!(checked.code, Some(0), "{}", checked.error);
            continue;
        }
        assert!(checked.code == Some(2) && checked.error.contains(&expected), "{}", checked.error);
        let served = callboard(&folder, &["serve", "--listen", "127.0.0.1:0", "--store", "data"]);
        assert!(served.code == Some(code) && served.error.contains(&expected), "{:?} {}", served.code, served.error);
    }
}

#[test]
fn rules_for_which_too_few_people_can_decide_are_defects() {
    let folder = folder_with(&[AGENT]);
    let check = |text: &str, expected: &str| {
        write(&folder, "callboard.toml", text);
        let checked = output_of(command(&folder, &["check"]).env("CALLBOARD_STORE", "data"));
        let (code, at) = if expected.is_empty() { (0, "") } else { (2, "callboard.toml:") };
        let is_expected = checked.error.contains(&format!("{at}{expected}"));
        assert!(checked.code == Some(code) && is_expected, "{text}: {:?} {}", checked.code, checked.error);
    };
    let of_ops = "[groups]\nops = [\"ann\", \"bob\"]\n[[approvals]]\ngroup = \"ops\"\n";
    let rule = |people: &str, more: &str| format!("[people]\n{people}\n{of_ops}{more}\n");
    let nobody = rule("ann = { telegram = 12 }\nbob = { tokens = [] }", "");
    let one = rule("ann = { tokens = [\"a\"] }\nbob = { tokens = [] }", "at_least = 2");
    let all = "[[approvals]]\nat_least = 2\n";
    check(&nobody, "7:9: nobody of \"ops\" can decide");
    check(&format!("{nobody}[telegram]\ntoken_env = \"BOT\"\n"), "");
    let relay =
        "[channels.webhooks.relay]\nurl = \"https://relay.example.org\"\nsecret_env = \"BOT\"\npeople = [\"bob\"]\n";
    check(&format!("{nobody}{relay}"), "");
    check(&one, "7:9: 2 of \"ops\" have to approve, and 1 of them can decide");
    check(&format!("{one}{relay}"), "");
    check(all, "2:12: 2 people have to approve, and 1 can decide");
    check(&format!("[people]\nann = {{ tokens = [\"a\"] }}\n{all}"), "");
    let bot = "[telegram]\ntoken_env = \"BOT\"\nchats = [-5]\n";
    check(bot, "1:1: nobody in [people] has an account on Telegram, so nobody could decide there");
    // A token decides in the name of its owner.
    let added = callboard(&folder, &["tokens", "add", "laptop", "--owner", "bob", "--store", "data"]);
    assert_eq!(added.code, Some(0), "{}", added.error);
    for text in [&*nobody, &one, all] {
        check(text, "");
    }
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
