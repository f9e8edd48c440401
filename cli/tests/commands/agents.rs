//! `callboard init|check|run`: real processes, with the model `fake` or a model on this machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::agents::{agent, agent_with, agents, searcher};
use crate::support::model::Model;
use crate::support::{
    CALLBOARD, Printed, callboard, command, folder_with, for_each_wrong_entry, make_pipe, output_of, write,
};

/// Runs `callboard ARGUMENTS` in the folder, with these variables.
fn callboard_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Printed {
    output_of(command(folder, arguments).envs(variables.iter().copied()))
}

/// A folder in which `callboard init` has run.
fn initialized() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let printed = callboard(folder.path(), &["init"]);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    folder
}

#[test]
fn init_check_and_run_give_a_first_result_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let printed = callboard(folder.path(), &["init"]);
    insta::assert_snapshot!("init", printed.out);
    write(&folder, "main.rs", "fn main() { todo() } // TODO: write it\n");
    let printed = callboard(folder.path(), &["check"]);
    let no_model = "no model is configured for the agents coder, coordinator, researcher, reviewer: no model is chosen, and none is listed; ";
    assert!(printed.code == Some(0) && printed.error.starts_with(no_model), "{}", printed.error);
    assert!(printed.error.ends_with("; --model fake needs no key\n"), "{}", printed.error);
    // The confinement on this machine has a test of its own.
    insta::assert_snapshot!("check", printed.out.split("commands of ShellExec").next().unwrap());
    // As README.md has it for a folder without agents.
    let run = ["run", "review this repository", "--model", "fake", "--no-input"];
    let printed = callboard(folder.path(), &run);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    assert!(printed.out.contains("review this repository") && printed.out.contains("Task answered"), "{}", printed.out);
    assert!(
        printed.error.contains("coordinator · Task") && printed.error.contains("researcher · FileSearch"),
        "{}",
        printed.error
    );
    let quiet = callboard(folder.path(), &[&run[..], &["--quiet", "--json"]].concat());
    let result = quiet.json();
    assert_eq!((quiet.error.as_str(), &result["outcome"]["kind"]), ("", &Value::from("finished")));
}

#[test]
fn a_name_that_looks_like_another_is_a_defect_of_its_own_agent_alone() {
    let folder = initialized();
    for (file, name) in [("a", "\u{441}\u{43e}\u{440}\u{435}"), ("b", "cope")] {
        write(&folder, &format!("agents/{file}.toml"), &agent(name));
    }
    let alike = "looks like that of the agent \"cope\"";
    let checked = callboard(folder.path(), &["check"]);
    let output = checked.out + &checked.error;
    assert!(checked.code == Some(2) && output.contains(alike), "{:?} {output}", checked.code);
    let run = callboard(folder.path(), &["run", "x", "--to", "cope", "--model", "fake", "--ephemeral", "--no-input"]);
    assert!(run.code == Some(0) && run.error.contains(alike), "{} {}", run.out, run.error);
}

/// The parts of the confinement of commands, in the order of `check`.
#[cfg(target_os = "linux")]
const PARTS: [&str; 11] = [
    "files that are not named",
    "system calls that are not listed",
    "capabilities, also of the superuser",
    "the terminal, and descriptors of others",
    "orders to devices",
    "signals to other processes",
    "what defines agents, models and servers",
    "permissions and dates of files outside",
    "what a command leaves",
    "shared memory",
    "the number of processes",
];

#[cfg(target_os = "linux")]
#[test]
fn check_prints_which_parts_of_the_confinement_of_commands_hold_on_this_machine() {
    let folder = initialized();
    let parts = |out: &str| -> Vec<(String, String)> {
        let (_, parts) = out.split_once("commands of ShellExec, on this machine:\n").unwrap();
        let part = |line: &str| line.strip_prefix("  ")?.split_once(": ").map(|(name, is)| (name.into(), is.into()));
        parts.lines().map_while(part).collect()
    };
    let printed = parts(&callboard(folder.path(), &["check"]).out);
    assert_eq!(printed.iter().map(|(name, _)| name).collect::<Vec<_>>(), PARTS);
    assert_eq!(printed[0].1, "refused");
    let json = callboard(folder.path(), &["check", "--json"]).json();
    let rows = json.as_array().unwrap().iter().find_map(|row| row["confinement"].as_array()).unwrap();
    for ((name, is), row) in printed.iter().zip(rows) {
        let shown = if row["holds"] == true { &row["means"] } else { &row["lacks"] };
        assert_eq!((&row["name"], shown), (&Value::from(&**name), &Value::from(&**is)));
    }
    // On a kernel without mount namespaces commands run too.
    let mut without = Command::new("unshare");
    without.args([
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$@\"",
    ]);
    without.args(["sh", CALLBOARD, "check"]).current_dir(folder.path());
    let output = without.stdin(Stdio::null()).output().unwrap();
    let printed = parts(&String::from_utf8(output.stdout).unwrap());
    assert!(
        printed[0].1 == "refused" && printed[6..].iter().all(|(_, is)| is.contains("needs user namespaces")),
        "{printed:?}"
    );
    // Nothing is printed if no agent runs commands.
    fs::remove_file(folder.path().join("agents/coder.toml")).unwrap();
    assert!(!callboard(folder.path(), &["check"]).out.contains("ShellExec"));
}

#[test]
fn init_refers_to_no_page_that_is_not_there() {
    let folder = initialized();
    for file in
        ["agents/coordinator.toml", "agents/researcher.toml", "agents/reviewer.toml", "agents/coder.toml", "mcp.toml"]
    {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(!text.contains("docs/") && !text.contains(".md"), "{file}: {text}");
    }
}

#[test]
fn the_agents_of_the_project_are_used_from_its_folders() {
    let model = Model::start();
    let folder = model.folder(&agent("writer"));
    let root = folder.path().canonicalize().unwrap();
    for sub in ["sub/inner", "top/.git", "own/agents"] {
        fs::create_dir_all(root.join(sub)).unwrap();
    }
    let inner = root.join("sub/inner");
    let remark = format!("the agents are those of {}\n", root.join("agents").display());
    model.answers("well");
    let run = callboard(&inner, &["run", "x", "--no-input"]);
    assert_eq!((run.code, &*run.out), (Some(0), "well\n"), "{}", run.error);
    assert!(run.error.starts_with(&remark), "{}", run.error);
    model.answers("well");
    let quiet = callboard(&inner, &["run", "x", "--quiet", "--ephemeral"]);
    assert_eq!((&*quiet.out, &*quiet.error), ("well\n", ""));
    let check = callboard(&inner, &["check"]);
    assert_eq!((check.code, &*check.error), (Some(0), &*remark));
    assert!(check.out.starts_with(&format!("{}: writer", root.join("agents/writer.toml").display())), "{}", check.out);
    // A folder that is a project, or one that is named, is not left.
    for (folder, arguments) in [("top", &["check"][..]), ("sub/inner", &["check", "--agents", "agents"])] {
        let refused = callboard(root.join(folder), arguments);
        assert!(refused.code == Some(2) && refused.error.contains("there is no folder agents; "), "{}", refused.error);
    }
    // An empty folder makes no project.
    assert_eq!(callboard(root.join("own"), &["check"]).error, remark);
}

/// An attack: another user puts agents and servers, which start programs, where all users may write, such as in `/tmp`, or
/// changes a file that they may write to, and a person works there or in a folder below it.
#[test]
fn agents_that_another_user_may_have_put_or_changed_start_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (below, open, mark) = (root.join("below"), root.join("open"), root.join("mark"));
    for folder in [&below, &open] {
        fs::create_dir(folder).unwrap();
    }
    let touch = format!("command = [\"sh\", \"-c\", \"touch {}\"]\n", mark.display());
    let taker = format!("[agent]\nname = \"taker\"\n[agent.process]\n{touch}");
    write(&folder, "agents/taker.toml", &taker);
    write(&folder, "open/taker.toml", &taker);
    write(&folder, "mcp.toml", &format!("[[servers]]\nname = \"s\"\n{touch}"));
    write(&folder, "models.toml", "[[models]]\nname = \"m\"\nprovider = \"anthropic\"\nmodel = \"m\"\n");
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let starts = || {
        for (place, command) in [
            (&below, &["check"][..]),
            (&below, &["run", "x", "--no-input", "--ephemeral"]),
            (&root, &["check"]),
            (&root, &["run", "x", "--no-input", "--ephemeral"]),
        ] {
            let printed = callboard(place, command);
            let is_refused = printed.error.contains("are not used: another user may have changed ");
            assert_eq!(is_refused, printed.code == Some(4), "{place:?} {command:?}: {}", printed.error);
            // The way that the error names uses them.
            assert!(!is_refused || printed.error.contains("to use them: --agents "), "{}", printed.error);
        }
        fs::remove_file(&mark).is_ok()
    };
    assert!(starts(), "what the attack needs is there");
    for (path, mode) in [
        (root.clone(), 0o755),
        (root.join("agents"), 0o755),
        (root.join("agents/taker.toml"), 0o644),
        (root.join("mcp.toml"), 0o644),
        (root.join("models.toml"), 0o644),
    ] {
        set_mode(&path, mode | 0o1022);
        assert!(!starts(), "{} is open to all", path.display());
        set_mode(&path, mode);
        if geteuid().is_root() {
            chown(&path, Some(65_534), None).unwrap();
            assert!(!starts(), "{} is another user's", path.display());
            chown(&path, Some(0), Some(65_534)).unwrap();
            assert!(starts(), "{} is of another group, which may not write", path.display());
            set_mode(&path, mode | 0o020);
            assert!(!starts(), "{} is open to another group", path.display());
            chown(&path, None, Some(0)).unwrap();
            set_mode(&path, mode);
        }
        assert!(starts(), "{} is the user's own again", path.display());
    }
    fs::rename(root.join("agents"), root.join("closed")).unwrap();
    symlink(&open, root.join("agents")).unwrap();
    assert!(starts(), "a link is followed");
    set_mode(&open, 0o777);
    assert!(!starts(), "the link leads to a folder that is open to all");
    let named = callboard(&below, &["check", "--agents", "../agents"]);
    // The program is started, and is no server.
    assert_eq!((named.code, mark.exists()), (Some(2), true), "{}", named.error);
}

/// An attack: somebody replaces the project itself in a folder above it, after it was checked.
#[test]
fn agents_below_a_folder_in_which_all_users_may_rename_start_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder,
        "open/project/agents/taker.toml",
        "[agent]\nname = \"taker\"\n[agent.process]\ncommand = [\"true\"]\n",
    );
    let open = folder.path().canonicalize().unwrap().join("open");
    for (mode, is_trusted) in [(0o755, true), (0o777, false), (0o1777, true)] {
        fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
        let printed = callboard(open.join("project"), &["check"]);
        let refusal = format!("another user may have changed {} (its mode is {mode:o}); to use them: ", open.display());
        assert_eq!(printed.code, Some(if is_trusted { 0 } else { 4 }), "{mode:o}: {}", printed.error);
        assert_eq!(printed.error.contains(&refusal), !is_trusted, "{mode:o}: {}", printed.error);
    }
}

/// An attack: the files of the agents are the user's own, and name a program or a script in the project that others may change or replace.
#[test]
fn programs_of_the_project_that_another_user_may_have_changed_are_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let script = format!("#!/bin/sh\ntouch {}\n", root.join("mark").display());
    for file in ["lib/sitecustomize.py", "lib/hook.so", "lib/hook.js"] {
        write(&folder, file, "");
    }
    let variable = |name: &str, value: &str| format!("command = [\"./a.sh\"]\nenv = {{ {name} = {value:?} }}");
    for file in ["a.sh", "deep/a.sh", "closed/a.sh", "open/own.sh", "bin/tool"] {
        write(&folder, file, &script);
        fs::set_permissions(root.join(file), Permissions::from_mode(0o755)).unwrap();
    }
    symlink("open/own.sh", root.join("link.sh")).unwrap();
    let absolute = root.join("a.sh").display().to_string();
    let server = root.join("server");
    let (program, module) = (r#"command = ["./a.sh"]"#.to_owned(), r#"command = ["sh", "closed/a.sh"]"#.to_owned());
    for (command, path, mode) in [
        (program.clone(), "a.sh", 0o757),
        (format!("command = [\"sh\", \"-e\", {absolute:?}]"), "a.sh", 0o757),
        (r#"command = ["sh", "deep/a.sh"]"#.to_owned(), "deep", 0o757),
        (r#"command = ["./link.sh"]"#.to_owned(), "open", 0o757),
        (format!("command = [\"tool\"]\nenv = {{ PATH = {:?} }}", format!("bin:{}", env!("PATH"))), "bin/tool", 0o757),
        (module, "closed", 0o1757),
        (variable("PYTHONPATH", "lib:/usr/lib"), "lib", 0o757),
        (variable("PYTHONPATH", "deep:lib"), "lib/sitecustomize.py", 0o757),
        (variable("LD_PRELOAD", "./lib/hook.so"), "lib/hook.so", 0o757),
        (variable("NODE_OPTIONS", "--no-warnings --require=./lib/hook.js"), "lib/hook.js", 0o757),
        (variable("RUBYOPT", "-I./lib"), "lib", 0o757),
    ] {
        for (file, text) in [
            ("agents/taker.toml", format!("[agent]\nname = \"taker\"\n[agent.process]\n{command}\n")),
            ("mcp.toml", format!("[[servers]]\nname = \"s\"\n{command}\n")),
        ] {
            write(&folder, "agents/taker.toml", "[agent]\nname = \"taker\"\n[agent.process]\ncommand = [\"true\"]\n");
            let started = format!("[[servers]]\nname = \"s\"\ncommand = [\"touch\", {server:?}]\n");
            write(&folder, "mcp.toml", &started);
            write(&folder, file, &text);
            let path = root.join(path);
            let before = fs::metadata(&path).unwrap().permissions();
            let starts = || {
                for command in [&["check"][..], &["run", "x", "--no-input", "--ephemeral"]] {
                    let printed = callboard(&root, command);
                    let is_refused = printed.error.contains("another user may have changed ");
                    assert_eq!(is_refused, printed.code == Some(4), "{text} {command:?}: {}", printed.error);
                    let is_started = fs::remove_file(&server).is_ok();
                    assert!(!(is_refused && is_started), "nothing is started: {text} {command:?}");
                }
                fs::remove_file(root.join("mark")).is_ok()
            };
            assert!(starts(), "what the attack needs is there: {text}");
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            // What is in a sticky folder is still the user's own.
            assert_eq!(starts(), mode & 0o1000 != 0, "{text}");
            if geteuid().is_root() {
                fs::set_permissions(&path, before.clone()).unwrap();
                chown(&path, Some(65_534), None).unwrap();
                assert!(!starts(), "{} is another user's: {text}", path.display());
                chown(&path, Some(0), None).unwrap();
            }
            fs::set_permissions(&path, before).unwrap();
        }
    }
}

/// An attack: what a link leads to is not there yet, and another user creates it after the check.
#[test]
fn links_to_what_another_user_may_still_create_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let open = root.join("open");
    fs::create_dir(&open).unwrap();
    write(&folder, "agents/taker.toml", "[agent]\nname = \"taker\"\n[agent.process]\ncommand = [\"true\"]\n");
    for link in ["mcp.toml", "models.toml", "agents/other.toml", "callboard.toml"] {
        symlink(open.join("none"), root.join(link)).unwrap();
        for mode in [0o757, 0o1757] {
            fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            let refused = callboard(&root, &["check"]);
            let why = format!("another user may have changed {} (its mode is {mode:o}); to use ", open.display());
            assert!(refused.code == Some(4) && refused.error.contains(&why), "{link} {mode:o}: {}", refused.error);
        }
        fs::remove_file(root.join(link)).unwrap();
    }
    assert_eq!(callboard(&root, &["check"]).code, Some(0));
}

#[test]
fn the_files_of_models_and_servers_are_read_beside_the_folder_of_agents() {
    let model = Model::start();
    let folder = agents(&[("other", &agent("other"))]);
    write(&folder, "team/agents/writer.toml", &agent("writer"));
    write(&folder, "team/models.toml", &model.catalog());
    write(&folder, "models.toml", "wrong");
    write(&folder, "mcp.toml", "wrong");
    model.answers("well");
    for agents in ["team/agents", "team/agents/", "./team/agents"] {
        model.answers("well");
        let run = callboard(&folder, &["run", "x", "--agents", agents, "--ephemeral"]);
        assert_eq!((run.code, &*run.out), (Some(0), "well\n"), "{agents}: {}", run.error);
    }
    let run =
        callboard(folder.path().join("team/agents"), &["run", "x", "--agents", ".", "--root", "..", "--ephemeral"]);
    assert_eq!((run.code, &*run.out), (Some(0), "well\n"), "{}", run.error);
    write(&folder, "team/mcp.toml", "wrong");
    let workflow = ["workflow", "run", "--line", "writer", "--agents", "team/agents", "--ephemeral"];
    for arguments in [&["run", "x", "--agents", "team/agents", "--ephemeral"][..], &workflow] {
        let refused = callboard(&folder, arguments);
        assert!(refused.code == Some(2) && refused.error.contains("team/mcp.toml:1"), "{}", refused.error);
    }
}

#[test]
fn tools_do_not_change_the_agents_of_the_project_in_place_of_named_ones() {
    let model = Model::start();
    let folder = model.folder(&agent("writer"));
    let text = agent_with("editor", &["FileWrite"]);
    write(&folder, "sub/team/editor.toml", &text);
    write(&folder, "sub/models.toml", &model.catalog());
    let arguments = ["run", "x", "--agents", "team", "--root", "..", "--no-input", "--ephemeral"];
    model.calls("FileWrite", json!({ "path": "agents/writer.toml", "content": text }));
    model.answers("refused");
    let run = callboard(folder.path().join("sub"), &arguments);
    assert_eq!((run.code, &*run.out), (Some(0), "refused\n"), "{}", run.error);
    model.request();
    let result = model.request().tool_result().to_owned();
    assert!(result.contains("agents/writer.toml"), "{result}");
}

#[test]
fn init_does_not_change_files_that_exist() {
    let folder = initialized();
    write(&folder, "agents/coder.toml", "mine");
    let printed = callboard(folder.path(), &["init"]);
    assert_eq!(printed.code, Some(0));
    assert!(printed.out.contains("agents/coder.toml exists and was not changed"), "{}", printed.out);
    assert_eq!(fs::read_to_string(folder.path().join("agents/coder.toml")).unwrap(), "mine");
}

#[test]
fn defects_are_reported_by_check_and_before_a_run_that_needs_the_agent() {
    let folder = initialized();
    write(&folder, "agents/coder.toml", "[agent]\nname = \"coder\"\nmod = \"build\"\nsystem_prompt = \"{{ taks }}\"\n");
    let printed = callboard(folder.path(), &["check"]);
    assert_eq!(printed.code, Some(2));
    insta::assert_snapshot!("defects", printed.error);
    let run = callboard(folder.path(), &["run", "x", "--to", "coder", "--model", "fake"]);
    assert!(run.code == Some(2) && run.out.is_empty(), "{}", run.error);
    for defect in ["agents/coder.toml:3:1: ", "agents/coder.toml:4:"] {
        assert!(run.error.matches(defect).count() >= 1, "{defect}: {}", run.error);
    }
    let json = callboard(folder.path(), &["check", "--json"]).json();
    assert_eq!((&json[0]["defects"][0]["line"], &json[1]["agent"]), (&3.into(), &"coordinator".into()));
}

#[test]
fn the_defects_of_agents_models_and_servers_are_reported_together() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "agents/x.toml", "[agent]\nname = \"x\"\nmod = \"build\"\n");
    write(&folder, "agents/y.toml", &agent_with("y", &["mcp__s__add", "FileRaed"]));
    write(&folder, "agents/z.toml", &agent_with("z", &["mcp__s__add"]));
    write(&folder, "models.toml", "[[models]]\nname = \"m\"\nprovider = \"ollama\"\ncolour = 1\n");
    write(&folder, "mcp.toml", "[[servers]]\nname = \"s\"\nurl = \"https://example.org\"\ncolour = 1\ntoken = \"t\"\n");
    write(&folder, "callboard.toml", "[serve]\nlisten = \"localhost:7420\"\ninsecre = true\n[serv]\n");
    let printed = callboard(folder.path(), &["check"]);
    assert_eq!(printed.code, Some(2), "{}", printed.error);
    insta::assert_snapshot!("defects_of_all_files", printed.error);
    let rows = callboard(folder.path(), &["check", "--json"]).json();
    let files: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["agents/x.toml", "agents/y.toml", "agents/z.toml", "models.toml", "mcp.toml", "callboard.toml"]);
    // The advice names no key that is refused.
    let advice = printed.error.lines().filter_map(|line| line.trim_start().strip_prefix("advice: its keys are "));
    let advice: Vec<&str> = advice.collect();
    assert!(
        advice.len() == 2 && advice.iter().all(|keys| !keys.contains("`token`") && !keys.contains("`key`")),
        "{advice:?}"
    );
}

#[test]
fn a_folder_that_check_is_given_without_its_option_is_named_with_it() {
    let folder = initialized();
    let refused = callboard(folder.path(), &["check", "my agents"]);
    let tip = "tip: to check the agents of another folder: callboard check --agents 'my agents'\n";
    assert!(refused.code == Some(2) && refused.error.contains(tip), "{}", refused.error);
}

#[test]
fn every_model_that_does_not_exist_is_reported_with_its_place_also_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = "[[models]]\nname = \"big\"\nprovider = \"openai-compatible\"\nurl = \"http://127.0.0.1:1/v1\"\ntags = [\"quick\"]\n";
    write(&folder, "models.toml", model);
    let agent = "[agent]\nname = \"x\"\ndescription = \"bigg\"\n\n[agent.model]\npreferred = \"bigg\"\nfallback = [\"big\", 'zz']\nprovider_tags = [\"quik\", \"quick\"]\n";
    write(&folder, "agents/x.toml", agent);
    let printed = callboard(folder.path(), &["check"]);
    assert_eq!(printed.code, Some(2), "{}", printed.error);
    for defect in [
        "x.toml:6:13: there is no model \"bigg\"",
        "x.toml:7:20: there is no model \"zz\"",
        "x.toml:8:18: no model has the tag \"quik\"",
        "3 defects in 1 of 1 file",
    ] {
        assert!(printed.error.contains(defect), "{defect}: {}", printed.error);
    }
    let printed = callboard(folder.path(), &["check", "--json"]);
    let json = printed.json();
    let places: Vec<_> = json[0]["defects"].as_array().unwrap().iter().map(|defect| defect["line"].as_u64()).collect();
    assert_eq!((printed.code, places), (Some(2), vec![Some(6), Some(7), Some(8)]));
}

#[test]
fn an_approval_that_nobody_can_give_ends_the_process_and_waits_in_the_store() {
    let folder = initialized();
    write(&folder, "agents/writer.toml", &searcher("writer"));
    let run = ["run", "look", "--to", "writer", "--model", "fake", "--no-input", "--store", "data"];
    let printed = callboard(folder.path(), &run);
    assert_eq!((printed.code, printed.out.as_str()), (Some(5), ""), "{}", printed.error);
    assert!(
        printed.error.contains("there is nobody at a terminal to ask")
            && printed.error.contains("action    FileSearch"),
        "{}",
        printed.error
    );
    let printed = callboard(folder.path(), &printed.continuation());
    assert_eq!(printed.code, Some(5), "{}", printed.error);
    assert!(printed.error.contains("action    FileSearch"), "{}", printed.error);
}

#[test]
fn the_fake_model_needs_no_catalog_and_an_ephemeral_run_is_reported_as_not_stored() {
    let folder = initialized();
    write(&folder, "agents/writer.toml", &searcher("writer"));
    write(&folder, "models.toml", "[[models");
    let printed =
        callboard(folder.path(), &["run", "look", "--to", "writer", "--model", "fake", "--no-input", "--ephemeral"]);
    assert!(printed.code == Some(5) && printed.error.contains("--ephemeral stores nothing of it"), "{}", printed.error);
    let printed = callboard(folder.path(), &["run", "look", "--to", "writer", "--no-input"]);
    assert!(printed.code == Some(2) && printed.error.contains("models.toml:1:"), "{}", printed.error);
}

#[test]
fn an_unknown_model_of_the_command_line_is_an_error_of_the_option() {
    let folder = initialized();
    let refused = |model: &str| {
        let printed = callboard(folder.path(), &["run", "x", "--to", "coder", "--ephemeral", "--model", model]);
        let names = printed.error.starts_with(&format!("error: --model {model}: there is no model \"{model}\""));
        assert!(printed.code == Some(2) && names && !printed.error.contains("agents/"), "{model}: {}", printed.error);
        printed.error
    };
    assert!(refused("fakee").ends_with("\n\n  tip: a similar value exists: 'fake'\n"));
    assert!(!refused("nonsense").contains("tip:"));
    let model = "[[models]]\nname = \"large\"\nprovider = \"ollama\"\n";
    fs::write(folder.path().join("models.toml"), model).unwrap();
    assert!(refused("lagre").ends_with("; did you mean \"large\"?\n"));
    let workflow = ["workflow", "run", "--line", "coder", "--agents", "agents", "--ephemeral", "--model", "lagre"];
    let printed = callboard(folder.path(), &workflow);
    assert!(printed.code == Some(2) && printed.error.starts_with("error: --model lagre: "), "{}", printed.error);
}

#[test]
fn check_prints_a_json_schema_for_editors() {
    let folder = tempfile::tempdir().unwrap();
    let printed = callboard(folder.path(), &["check", "--schema"]);
    let schema = printed.json();
    assert_eq!(
        (printed.code, &schema),
        (Some(0), callboard_agents::Definition::schema().value()),
        "it is the library's"
    );
    let agent = &schema["properties"]["agent"];
    assert_eq!((&schema["required"], &agent["required"]), (&json!(["agent"]), &json!(["name"])), "{agent}");
}

#[test]
fn what_is_missing_is_reported_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |code: i32, arguments: &[&str], why: &str| {
        let printed = callboard(folder.path(), arguments);
        assert!(
            printed.code == Some(code) && printed.error.contains(why),
            "{arguments:?}: {:?} {}",
            printed.code,
            printed.error
        );
    };
    refused(2, &["check"], "there is no folder agents; `callboard init` writes one");
    refused(2, &["run", "x"], "name one with --model, as --model gpt-5-mini");
    refused(2, &["run"], "required");
    fs::create_dir(folder.path().join("agents")).unwrap();
    refused(2, &["check"], "agents has no agents");
    callboard(folder.path(), &["init"]);
    fs::remove_file(folder.path().join("agents/coordinator.toml")).unwrap();
    refused(2, &["run", "x", "--model", "fake"], "name one with --to: coder, researcher, reviewer");
    refused(3, &["run", "x", "--model", "fake", "--to", "codr"], "coder");
    refused(
        2,
        &["run", "x", "--to", "coder"],
        "no model is chosen, and none is listed; set ANTHROPIC_API_KEY, OPENAI_API_KEY,",
    );
    refused(
        2,
        &["run", "x", "--to", "coder"],
        "; or name one with --model, as --model gpt-5-mini; --model fake needs no key\n",
    );
}

#[test]
fn built_in_agents_are_available_and_do_not_disturb_the_folders_agents() {
    let folder = agents(&[("only", &agent_with("only", &["Task"]))]);
    let run = |arguments: &[&str]| {
        callboard(folder.path(), &[&["run", "look", "--model", "fake", "--no-input"], arguments].concat())
    };
    // The only agent of the folder need not be named, and does not delegate to built-in agents.
    let printed = run(&[]);
    assert!(printed.code == Some(0) && !printed.error.contains("only · Task"), "{}", printed.error);
    let printed = run(&["--to", "summarizer"]);
    assert!(printed.code == Some(0) && printed.out.contains("look"), "{}", printed.error);
    // The fake model gives no answer that is JSON.
    let printed = run(&["--to", "complexity"]);
    assert!(printed.code == Some(1) && printed.error.contains("the model's answer is not JSON"), "{}", printed.error);
    // A task that cannot be classified is complex.
    let printed = run(&["--limits", "auto"]);
    assert!(
        printed.code == Some(0) && printed.error.contains("the run may use 5 handoffs, 150000 tokens"),
        "{}",
        printed.error
    );
    let printed = run(&["--limits", "huge"]);
    assert!(
        printed.code == Some(2)
            && printed
                .error
                .contains("; use simple, medium or complex, or write limits as in '{\"tokens\": 50000}', or auto"),
        "{}",
        printed.error
    );
    write(&folder, "agents/summarizer.toml", "[agent]\nname = \"summarizer\"\ndescription = \"Mine.\"\n");
    let printed = callboard(folder.path(), &["check"]);
    assert!(printed.out.contains("agents/summarizer.toml: summarizer: Mine."), "{}", printed.out);
    assert!(printed.out.contains("built in, and replaced by a file: summarizer"), "{}", printed.out);
    assert!(!printed.out.contains("built in: summarizer"), "{}", printed.out);
}

#[test]
fn a_missing_key_is_reported_with_the_variable_to_set() {
    let folder = agents(&[("lead", &agent("lead"))]);
    for (model, variable) in [
        ("gpt-4.1", "OPENAI_API_KEY"),
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini-2.5-flash", "GEMINI_API_KEY"),
        ("openai/of-ones-own", "OPENAI_API_KEY"),
    ] {
        // The key of another provider is not used.
        let other = if variable == "OPENAI_API_KEY" { "GEMINI_API_KEY" } else { "OPENAI_API_KEY" };
        let run = ["run", "x", "--model", model, "--no-input"];
        let printed = callboard_with(folder.path(), &run, &[(other, "sk-other")]);
        // It waits for a person, and the printed command has the turn begin again.
        assert_eq!((printed.code, printed.out.as_str()), (Some(5), ""), "{model}: {}", printed.error);
        assert!(printed.error.contains(&format!("set {variable}")), "{model}: {}", printed.error);
        assert!(printed.error.contains("to continue: callboard run --resume req-"), "{}", printed.error);
        assert!(!printed.error.contains("sk-other"), "{}", printed.error);
    }
}

#[test]
fn models_that_are_configured_by_variables_are_used() {
    let folder = agents(&[("lead", &agent("lead"))]);
    let model = Model::start();
    let at = format!("{}/v1", model.address);
    let ask = |name: &str, variables: &[(&str, &str)]| {
        model.answers("a boat");
        let printed = callboard_with(folder.path(), &["run", "draw", "--model", name, "--no-input", "-q"], variables);
        assert_eq!((printed.code, printed.out.as_str()), (Some(0), "a boat\n"), "{name}: {}", printed.error);
        let request = model.request();
        assert!(request.body.to_string().contains("draw"), "{}", request.body);
        (request.head.lines().next().unwrap().to_owned(), request.head, request.body["model"].clone())
    };
    let openai = "POST /v1/chat/completions HTTP/1.1";
    let (first, head, name) = ask("local", &[("OPENAI_BASE_URL", &at), ("OPENAI_API_KEY", "sk-mine")]);
    assert_eq!((first.as_str(), &name), (openai, &json!("local")));
    assert!(head.contains("authorization: Bearer sk-mine"), "{head}");
    let (first, head, _) = ask("openai/local", &[("OPENAI_BASE_URL", &at), ("GEMINI_API_KEY", "sk-other")]);
    assert!(first == openai && !head.contains("sk-other"), "{head}");
    let host = model.address.strip_prefix("http://").unwrap();
    let (first, _, name) = ask("ollama/llama3", &[("OLLAMA_HOST", host)]);
    assert_eq!((first.as_str(), &name), ("POST /api/chat HTTP/1.1", &json!("llama3")));
}

#[test]
fn files_that_are_not_utf_8_are_reported_with_the_place() {
    for file in ["models.toml", "mcp.toml", "callboard.toml"] {
        let folder = agents(&[("lead", &agent("lead"))]);
        fs::write(folder.path().join(file), b"# \xe4hnlich\n").unwrap();
        let printed = callboard(folder.path(), &["run", "x", "--model", "m", "--no-input"]);
        assert_eq!((printed.code, printed.out.as_str()), (Some(2), ""), "{file}: {}", printed.error);
        let place =
            format!("{file}: the text is not UTF-8, invalid utf-8 sequence of 1 bytes from index 2: save it as UTF-8");
        assert!(printed.error.contains(&place), "{file}: {}", printed.error);
    }
}

#[test]
fn agents_hand_over_control_only_with_the_option() {
    let may = |name: &str, prompt: &str| {
        let tools = "[agent.capabilities]\nallowed_tools = [\"handoff_to_agent\"]\n";
        format!("[agent]\nname = \"{name}\"\nsystem_prompt = \"{prompt}\"\n{tools}")
    };
    let folder = agents(&[("lead", &may("lead", "You lead."))]);
    write(&folder, "agents/writer.toml", &may("writer", "You write."));
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    let run = |more: &[&str]| {
        model.calls("handoff_to_agent", json!({ "agent_name": "writer", "task": "write it" }));
        model.answers("done");
        let printed = callboard(folder.path(), &[&["run", "x", "--to", "lead", "--no-input"], more].concat());
        assert_eq!((printed.code, printed.out.as_str()), (Some(0), "done\n"), "{}", printed.error);
        [model.request(), model.request()]
    };
    let [first, then] = run(&[]);
    assert_eq!(first.tools(), Vec::<&str>::new());
    assert!(then.tool_result().starts_with("there is no tool \"handoff_to_agent\""), "{}", then.body);
    let [first, then] = run(&["--enable-handoffs"]);
    assert_eq!(first.tools(), ["handoff_to_agent"]);
    assert!(then.body.to_string().contains("You write."), "{}", then.body);
}

/// An attack on what errors show: `models.toml` of a project leads to a file of the user elsewhere.
#[test]
fn default_files_that_lead_out_of_the_project_or_are_folders_are_refused_and_no_line_is_shown() {
    let folder = initialized();
    let elsewhere = folder_with(&[("secret", "root:C4N4RY:1")]);
    for name in ["models.toml", "mcp.toml", "callboard.toml"] {
        let _ = fs::remove_file(folder.path().join(name));
        for_each_wrong_entry(&folder.path().join(name), &elsewhere.path().join("secret"), |case, problem| {
            if case == "folder" {
                // The confinement of commands makes an empty one.
                assert_eq!(callboard(&folder, &["check"]).code, Some(0), "{name}");
                fs::create_dir(folder.path().join(name).join("a")).unwrap();
            }
            for command in [&["check"][..], &["run", "x", "--to", "reviewer", "--no-input", "--ephemeral"]] {
                let printed = callboard(&folder, command);
                let text = printed.out + &printed.error;
                assert_eq!(printed.code, Some(2), "{name}, {case}: {text}");
                assert!(text.contains(&format!("{name}: it is ")) && text.contains(problem), "{name}, {case}: {text}");
                assert!(!text.contains("C4N4RY"), "{name}, {case}: {text}");
            }
            let _ = fs::remove_dir(folder.path().join(name).join("a"));
        });
    }
}

#[test]
fn without_a_folder_of_agents_the_starter_team_works_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let task = "review this repository";
    let printed = callboard(&folder, &["run", task, "--model", "fake"]);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    let remark =
        "there is no folder of agents, so the team of `callboard init` works: coder, coordinator, researcher, reviewer";
    assert_eq!(printed.error.lines().next(), Some(remark));
    assert_eq!(printed.error.matches("folder of agents").count(), 1);
    assert!(printed.out.starts_with("The fake model does not think"), "{}", printed.out);
    for agent in ["researcher", "reviewer", "coder"] {
        let line = format!("coordinator · Task {{\"agent\":{agent:?},\"task\":{task:?}}}");
        assert!(printed.error.lines().any(|shown| shown == line), "{line}: {}", printed.error);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let again = callboard(&folder, &["run", "--resume", "@last"]);
    assert_eq!((again.code, again.out), (Some(0), printed.out));
    let quiet = callboard(&folder, &["run", task, "--model", "fake", "--to", "reviewer", "--quiet", "--ephemeral"]);
    assert_eq!((quiet.code, &*quiet.error), (Some(0), ""));
    // Only what is named is read beside agents that are not there.
    write(&folder, "models.toml", "[");
    write(&folder, "mcp.toml", "[");
    assert_eq!(callboard(&folder, &["run", task, "--model", "fake", "--ephemeral"]).code, Some(0));
    let named = callboard(&folder, &["run", task, "--mcp", "mcp.toml", "--model", "fake", "--ephemeral"]);
    assert!(named.code == Some(2) && named.error.contains("mcp.toml:1:"), "{}", named.error);
    // A file in its place is not a project without a folder of agents.
    write(&folder, "agents", "");
    let refused = callboard(&folder, &["run", task, "--model", "fake", "--ephemeral"]);
    assert!(refused.code == Some(2) && refused.error.contains("there is no folder agents"), "{}", refused.error);
}

#[test]
fn of_two_files_with_one_agent_the_second_is_left_out_by_the_name_of_its_file() {
    let folder = initialized();
    fs::copy(folder.path().join("agents/coder.toml"), folder.path().join("agents/other.toml")).unwrap();
    let printed = callboard(&folder, &["run", "x", "--to", "coder", "--model", "fake", "--ephemeral"]);
    let warning = "warning: the agent of agents/other.toml is left out: agents/other.toml: agents/coder.toml has an agent of the \
                   name \"coder\" too";
    assert_eq!((printed.code, printed.error.lines().next()), (Some(0), Some(warning)));
}

#[test]
fn options_and_default_files_that_are_not_files_are_refused() {
    let folder = initialized();
    let pipe = |name: &str| {
        let pipe = folder.path().join(name);
        let _ = fs::remove_file(&pipe);
        make_pipe(&pipe);
        pipe
    };
    pipe("named.toml");
    let named = callboard(folder.path(), &["check", "--models", "named.toml"]);
    assert!(named.code == Some(2) && named.error.contains("named.toml: it is not a file"), "{}", named.error);
    let store = folder.path().join("store");
    for arguments in [
        &["run", "x", "--model", "fake", "--ephemeral", "--input", "@named.toml"][..],
        &["run", "@named.toml", "--model", "fake", "--ephemeral"],
        &["workflow", "run", "--line", "workflow a: coder", "--model", "fake", "--input-json", "@named.toml"],
        &["workflow", "run", "--line", "workflow a: coder", "--model", "fake", "--input", "x=@named.toml"],
        &["workflow", "check", "named.toml"],
        &["runs", "import", "named.toml", "--store", store.to_str().unwrap()],
        &["runs", "fork", "@last", "--turn", "1", "--set", "a=@named.toml"],
    ] {
        let refused = callboard(folder.path(), arguments);
        let output = refused.out + &refused.error;
        assert!(refused.code == Some(2) && output.contains(".toml: it is not a file"), "{arguments:?}: {output}");
    }
    // Files with the default names, which no option names.
    let run = ["run", "look", "--to", "coder", "--model", "fake", "--no-input", "--ephemeral"];
    for name in ["models.toml", "mcp.toml", "callboard.toml", "agents/pipe.toml"] {
        let pipe = pipe(name);
        let refused = callboard(folder.path(), &["check"]);
        let output = refused.out + &refused.error;
        assert!(refused.code != Some(0) && output.contains(&format!("{name}: ")), "{name}: {output}");
        fs::remove_file(pipe).unwrap();
    }
    assert_eq!(callboard(folder.path(), &run).code, Some(0));
}

#[test]
fn entries_that_are_not_files_of_the_folder_of_agents_are_named_and_left_out() {
    let folder = initialized();
    let (odd, secret) = (folder.path().join("agents/odd.toml"), folder.path().join("secret"));
    fs::write(&secret, "root:C4N4RY:1").unwrap();
    for_each_wrong_entry(&odd, &secret, |case, problem| {
        for (command, code) in
            [(&["check"][..], 2), (&["run", "--to", "coder", "--ephemeral", "--model", "fake", "x"], 0)]
        {
            let printed = callboard(folder.path(), command);
            let text = format!("{}{}", printed.out, printed.error);
            assert_eq!(printed.code, Some(code), "{case}: {text}");
            assert!(text.contains("agents/odd.toml: ") && text.contains(problem), "{case}: {text}");
            assert!(!text.contains("C4N4RY"), "{case}: {text}");
        }
    });
    std::os::unix::fs::symlink("coder.toml", &odd).unwrap();
    let printed = callboard(folder.path(), &["check"]);
    let twice = "agents/odd.toml: agents/coder.toml has an agent of the name \"coder\" too";
    assert!(
        printed.error.contains(twice) || printed.out.contains(twice),
        "a link within the folder is read: {}{}",
        printed.out,
        printed.error
    );
}
