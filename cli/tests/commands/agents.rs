//! `callboard init|check|run`: real processes, real files, a real disk, and a model that does not think.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::model::Model;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

/// Runs `callboard ARGUMENTS` in the folder, with nobody to ask.
fn callboard(folder: &Path, arguments: &[&str]) -> Said {
    callboard_with(folder, arguments, &[])
}

/// As [`callboard`], with these variables and no others.
fn callboard_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env_clear().env("USER", "ann").env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn begun() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let said = callboard(folder.path(), &["init"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).unwrap();
}

const WRITER: &str = r#"
[agent]
name = "writer"
mode = "build"

[agent.capabilities]
allowed_tools = ["FileSearch"]
ask = ["FileSearch"]
"#;

#[test]
fn a_beginner_comes_to_a_review_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let said = callboard(folder.path(), &["init"]);
    insta::assert_snapshot!("init", said.out);
    write(&folder, "main.rs", "fn main() { todo() } // TODO: write it\n");
    let said = callboard(folder.path(), &["check"]);
    assert_eq!((said.code, said.error.as_str()), (Some(0), ""));
    // What holds on this machine has a test of its own.
    insta::assert_snapshot!("check", said.out.split("commands of ShellExec").next().unwrap());
    let run = ["run", "review this repository", "--to", "coordinator", "--model", "fake", "--no-input"];
    let said = callboard(folder.path(), &run);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.out.contains("review this repository") && said.out.contains("Task answered"), "{}", said.out);
    assert!(
        said.error.contains("coordinator · Task") && said.error.contains("researcher · FileSearch"),
        "{}",
        said.error
    );
    let quiet = callboard(folder.path(), &[&run[..], &["--quiet", "--json"]].concat());
    let result: Value = serde_json::from_str(&quiet.out).unwrap();
    assert_eq!((quiet.error.as_str(), &result["outcome"]["kind"]), ("", &Value::from("finished")));
}

#[test]
fn a_name_that_looks_like_another_stops_only_its_own_agent_and_is_a_defect() {
    let folder = begun();
    for (file, name) in [("a", "\u{441}\u{43e}\u{440}\u{435}"), ("b", "cope")] {
        let text = format!("[agent]\nname = \"{name}\"\n[agent.capabilities]\nallowed_tools = []\n");
        fs::write(folder.path().join(format!("agents/{file}.toml")), text).unwrap();
    }
    let alike = "looks like that of the agent \"cope\"";
    let checked = callboard(folder.path(), &["check"]);
    let told = checked.out + &checked.error;
    assert!(checked.code == Some(1) && told.contains(alike), "{:?} {told}", checked.code);
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
fn check_prints_what_of_the_confinement_of_commands_holds_on_this_machine() {
    let folder = begun();
    let parts = |out: &str| -> Vec<(String, String)> {
        let (_, parts) = out.split_once("commands of ShellExec, on this machine:\n").unwrap();
        let part = |line: &str| line.strip_prefix("  ")?.split_once(": ").map(|(name, is)| (name.into(), is.into()));
        parts.lines().map_while(part).collect()
    };
    let printed = parts(&callboard(folder.path(), &["check"]).out);
    assert_eq!(printed.iter().map(|(name, _)| name).collect::<Vec<_>>(), PARTS);
    assert_eq!(printed[0].1, "refused");
    let json: Value = serde_json::from_str(&callboard(folder.path(), &["check", "--json"]).out).unwrap();
    let rows = json.as_array().unwrap().iter().find_map(|row| row["confinement"].as_array()).unwrap();
    for ((name, is), row) in printed.iter().zip(rows) {
        let shown = if row["holds"] == true { &row["means"] } else { &row["lacks"] };
        assert_eq!((&row["name"], shown), (&Value::from(&**name), &Value::from(&**is)));
    }
    // A kernel that makes no mount namespaces; commands run there all the same.
    let mut without = Command::new("unshare");
    without.args([
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$@\"",
    ]);
    without.args(["sh", env!("CARGO_BIN_EXE_callboard"), "check"]).current_dir(folder.path());
    let output = without.stdin(Stdio::null()).output().unwrap();
    let printed = parts(&String::from_utf8(output.stdout).unwrap());
    assert!(
        printed[0].1 == "refused" && printed[6..].iter().all(|(_, is)| is.contains("needs user namespaces")),
        "{printed:?}"
    );
    // Where no agent runs commands there is nothing to print.
    fs::remove_file(folder.path().join("agents/coder.toml")).unwrap();
    assert!(!callboard(folder.path(), &["check"]).out.contains("ShellExec"));
}

#[test]
fn what_is_there_already_stays_as_it_is() {
    let folder = begun();
    write(&folder, "agents/coder.toml", "mine");
    let said = callboard(folder.path(), &["init"]);
    assert_eq!(said.code, Some(0));
    assert!(said.out.contains("agents/coder.toml is there already"), "{}", said.out);
    assert_eq!(fs::read_to_string(folder.path().join("agents/coder.toml")).unwrap(), "mine");
}

#[test]
fn defects_are_told_by_check_and_before_a_run_that_needs_the_agent() {
    let folder = begun();
    write(&folder, "agents/coder.toml", "[agent]\nname = \"coder\"\nmod = \"build\"\nsystem_prompt = \"{{ taks }}\"\n");
    let said = callboard(folder.path(), &["check"]);
    assert_eq!(said.code, Some(1));
    insta::assert_snapshot!("defects", said.error);
    let run = callboard(folder.path(), &["run", "x", "--to", "coder", "--model", "fake"]);
    assert!(run.code == Some(2) && run.out.is_empty(), "{}", run.error);
    for defect in ["agents/coder.toml:3:1: ", "agents/coder.toml:4:"] {
        assert!(run.error.matches(defect).count() >= 1, "{defect}: {}", run.error);
    }
    let json: Value = serde_json::from_str(&callboard(folder.path(), &["check", "--json"]).out).unwrap();
    assert_eq!((&json[0]["defects"][0]["line"], &json[1]["agent"]), (&3.into(), &"coordinator".into()));
}

#[test]
fn every_model_that_is_not_there_is_told_with_its_place_also_to_machines() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let model = "[[models]]\nname = \"big\"\nprovider = \"openai-compatible\"\nurl = \"http://127.0.0.1:1/v1\"\ntags = [\"quick\"]\n";
    write(&folder, "models.toml", model);
    let agent = "[agent]\nname = \"x\"\ndescription = \"bigg\"\n\n[agent.model]\npreferred = \"bigg\"\nfallback = [\"big\", 'zz']\nprovider_tags = [\"quik\", \"quick\"]\n";
    write(&folder, "agents/x.toml", agent);
    let said = callboard(folder.path(), &["check"]);
    assert_eq!(said.code, Some(1), "{}", said.error);
    for told in [
        "x.toml:6:13: there is no model \"bigg\"",
        "x.toml:7:20: there is no model \"zz\"",
        "x.toml:8:18: no model has the tag \"quik\"",
        "3 defects in 1 of 1 file",
    ] {
        assert!(said.error.contains(told), "{told}: {}", said.error);
    }
    let said = callboard(folder.path(), &["check", "--json"]);
    let json: Value = serde_json::from_str(&said.out).unwrap();
    let places: Vec<_> = json[0]["defects"].as_array().unwrap().iter().map(|defect| defect["line"].as_u64()).collect();
    assert_eq!((said.code, places), (Some(1), vec![Some(6), Some(7), Some(8)]));
}

#[test]
fn what_nobody_is_there_to_answer_ends_the_process_and_waits_in_the_store() {
    let folder = begun();
    write(&folder, "agents/writer.toml", WRITER);
    let run = ["run", "look", "--to", "writer", "--model", "fake", "--no-input", "--store", "data"];
    let said = callboard(folder.path(), &run);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{}", said.error);
    assert!(
        said.error.contains("there is nobody at a terminal to ask") && said.error.contains("action    FileSearch"),
        "{}",
        said.error
    );
    let resumption = said.error.lines().find_map(|line| line.strip_prefix("to go on: callboard ")).unwrap();
    let said = callboard(folder.path(), &resumption.split(' ').collect::<Vec<_>>());
    assert_eq!(said.code, Some(3), "{}", said.error);
    assert!(said.error.contains("action    FileSearch"), "{}", said.error);
}

#[test]
fn the_fake_model_needs_no_catalog_and_what_is_kept_nowhere_is_said_to_be() {
    let folder = begun();
    write(&folder, "agents/writer.toml", WRITER);
    write(&folder, "models.toml", "[[models");
    let said =
        callboard(folder.path(), &["run", "look", "--to", "writer", "--model", "fake", "--no-input", "--ephemeral"]);
    assert!(said.code == Some(3) && said.error.contains("because it is --ephemeral"), "{}", said.error);
    let said = callboard(folder.path(), &["run", "look", "--to", "writer", "--no-input"]);
    assert!(said.code == Some(2) && said.error.contains("models.toml:1:"), "{}", said.error);
}

#[test]
fn a_model_that_only_the_command_line_names_wrongly_is_blamed_on_the_option() {
    let folder = begun();
    let refused = |model: &str| {
        let said = callboard(folder.path(), &["run", "x", "--to", "coder", "--ephemeral", "--model", model]);
        let names = said.error.starts_with(&format!("error: --model {model}: there is no model \"{model}\""));
        assert!(said.code == Some(2) && names && !said.error.contains("agents/"), "{model}: {}", said.error);
        said.error
    };
    assert!(refused("fakee").ends_with("\n\n  tip: a similar value exists: 'fake'\n"));
    assert!(!refused("nonsense").contains("tip:"));
    let model = "[[models]]\nname = \"large\"\nprovider = \"ollama\"\n";
    fs::write(folder.path().join("models.toml"), model).unwrap();
    assert!(refused("lagre").ends_with("; did you mean \"large\"?\n"));
    let workflow = ["workflow", "run", "--line", "coder", "--agents", "agents", "--ephemeral", "--model", "lagre"];
    let said = callboard(folder.path(), &workflow);
    assert!(said.code == Some(2) && said.error.starts_with("error: --model lagre: "), "{}", said.error);
}

#[test]
fn editors_get_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    let said = callboard(folder.path(), &["check", "--schema"]);
    let schema: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &schema["required"][0]), (Some(0), &"agent".into()));
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let told = |arguments: &[&str], says: &str| {
        let said = callboard(folder.path(), arguments);
        assert!(said.code == Some(2) && said.error.contains(says), "{arguments:?}: {:?} {}", said.code, said.error);
    };
    told(&["check"], "there is no folder agents; `callboard init` writes one");
    told(&["run", "x"], "there is no folder agents");
    told(&["run"], "required");
    fs::create_dir(folder.path().join("agents")).unwrap();
    told(&["check"], "agents has no agents");
    callboard(folder.path(), &["init"]);
    told(&["run", "x", "--model", "fake"], "name one with --to: coder, coordinator, researcher, reviewer");
    told(&["run", "x", "--model", "fake", "--to", "codr"], "coder");
    told(
        &["run", "x", "--to", "coder"],
        "no model is chosen, and none is listed; set ANTHROPIC_API_KEY, OPENAI_API_KEY,",
    );
}

#[test]
fn built_in_agents_are_on_the_board_and_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let text = "[agent]\nname = \"only\"\n[agent.capabilities]\nallowed_tools = [\"Task\"]\n";
    write(&folder, "agents/only.toml", text);
    let run = |arguments: &[&str]| {
        callboard(folder.path(), &[&["run", "look", "--model", "fake", "--no-input"], arguments].concat())
    };
    // The one agent of the folder need not be named, and gives its tasks to nobody that it was not told of.
    let said = run(&[]);
    assert!(said.code == Some(0) && !said.error.contains("only · Task"), "{}", said.error);
    let said = run(&["--to", "summarizer"]);
    assert!(said.code == Some(0) && said.out.contains("look"), "{}", said.error);
    // What does not think gives no answer that is a value.
    let said = run(&["--to", "complexity"]);
    assert!(said.code == Some(1) && said.error.contains("the model's answer is not JSON"), "{}", said.error);
    // A task that nobody can judge is complex.
    let said = run(&["--limits", "auto"]);
    assert!(said.code == Some(0) && said.error.contains("the run may use 5 handoffs, 150000 tokens"), "{}", said.error);
    let said = run(&["--limits", "huge"]);
    assert!(said.code == Some(2) && said.error.contains("use simple, medium or complex, or auto"), "{}", said.error);
    write(&folder, "agents/summarizer.toml", "[agent]\nname = \"summarizer\"\ndescription = \"Mine.\"\n");
    let said = callboard(folder.path(), &["check"]);
    assert!(said.out.contains("agents/summarizer.toml: summarizer: Mine."), "{}", said.out);
    assert!(said.out.contains("built in, and replaced by a file: summarizer"), "{}", said.out);
    assert!(!said.out.contains("built in: summarizer"), "{}", said.out);
}

const ALONE: &str = "[agent]\nname = \"lead\"\n[agent.capabilities]\nallowed_tools = []\n";

fn lead(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    write(&folder, "agents/lead.toml", text);
    folder
}

#[test]
fn a_missing_key_is_told_by_the_variable_to_set() {
    let folder = lead(ALONE);
    for (model, variable) in [
        ("gpt-4.1", "OPENAI_API_KEY"),
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini-2.5-flash", "GEMINI_API_KEY"),
        ("openai/of-ones-own", "OPENAI_API_KEY"),
    ] {
        // The key of another provider is no key.
        let other = if variable == "OPENAI_API_KEY" { "GEMINI_API_KEY" } else { "OPENAI_API_KEY" };
        let run = ["run", "x", "--model", model, "--no-input"];
        let said = callboard_with(folder.path(), &run, &[(other, "sk-other")]);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{model}: {}", said.error);
        assert!(said.error.contains(&format!("set {variable}")), "{model}: {}", said.error);
        assert!(!said.error.contains("sk-other"), "{}", said.error);
    }
}

#[test]
fn models_that_only_variables_name_are_asked() {
    let folder = lead(ALONE);
    let model = Model::start();
    let at = format!("{}/v1", model.address);
    let ask = |name: &str, variables: &[(&str, &str)]| {
        model.says("a boat");
        let said = callboard_with(folder.path(), &["run", "draw", "--model", name, "--no-input", "-q"], variables);
        assert_eq!((said.code, said.out.as_str()), (Some(0), "a boat\n"), "{name}: {}", said.error);
        let asked = model.asked();
        assert!(asked.body.to_string().contains("draw"), "{}", asked.body);
        (asked.head.lines().next().unwrap().to_owned(), asked.head, asked.body["model"].clone())
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
fn files_that_are_no_text_are_told_with_their_place() {
    for file in ["models.toml", "mcp.toml"] {
        let folder = lead(ALONE);
        fs::write(folder.path().join(file), b"# \xe4hnlich\n").unwrap();
        let said = callboard(folder.path(), &["run", "x", "--model", "m", "--no-input"]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{file}: {}", said.error);
        let place =
            format!("{file}: the text is not UTF-8, invalid utf-8 sequence of 1 bytes from index 2: save it as UTF-8");
        assert!(said.error.contains(&place), "{file}: {}", said.error);
    }
}

#[test]
fn control_is_passed_on_only_if_the_command_line_says_so() {
    let may = |name: &str, prompt: &str| {
        let tools = "[agent.capabilities]\nallowed_tools = [\"handoff_to_agent\"]\n";
        format!("[agent]\nname = \"{name}\"\nsystem_prompt = \"{prompt}\"\n{tools}")
    };
    let folder = lead(&may("lead", "You lead."));
    write(&folder, "agents/writer.toml", &may("writer", "You write."));
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    let run = |more: &[&str]| {
        model.calls("handoff_to_agent", json!({ "agent_name": "writer", "task": "write it" }));
        model.says("done");
        let said = callboard(folder.path(), &[&["run", "x", "--to", "lead", "--no-input"], more].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(0), "done\n"), "{}", said.error);
        [model.asked(), model.asked()]
    };
    let [first, then] = run(&[]);
    assert_eq!(first.tools(), Vec::<&str>::new());
    assert!(then.answer().starts_with("there is no tool \"handoff_to_agent\""), "{}", then.body);
    let [first, then] = run(&["--enable-handoffs"]);
    assert_eq!(first.tools(), ["handoff_to_agent"]);
    assert!(then.body.to_string().contains("You write."), "{}", then.body);
}

#[test]
fn what_is_no_file_is_not_read() {
    let folder = begun();
    let pipe = |name: &str| {
        let pipe = folder.path().join(name);
        let _ = fs::remove_file(&pipe);
        let made = rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0);
        made.unwrap();
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
        let told = refused.out + &refused.error;
        assert!(refused.code == Some(2) && told.contains(".toml: it is not a file"), "{arguments:?}: {told}");
    }
    // What nobody named, but what has the name of a file that is read.
    let run = ["run", "look", "--to", "coder", "--model", "fake", "--no-input", "--ephemeral"];
    for name in ["models.toml", "mcp.toml", "agents/pipe.toml"] {
        let pipe = pipe(name);
        let refused = callboard(folder.path(), &["check"]);
        let told = refused.out + &refused.error;
        assert!(refused.code != Some(0) && told.contains(&format!("{name}: ")), "{name}: {told}");
        fs::remove_file(pipe).unwrap();
    }
    assert_eq!(callboard(folder.path(), &run).code, Some(0));
}

#[test]
fn what_is_no_file_in_the_folder_of_agents_is_named_and_a_link_shows_nothing_from_elsewhere() {
    let folder = begun();
    let (odd, secret) = (folder.path().join("agents/odd.toml"), folder.path().join("secret"));
    fs::write(&secret, "root:C4N4RY:1").unwrap();
    let cases: [(&str, &dyn Fn(), &str); 4] = [
        ("fifo", &|| assert!(Command::new("mkfifo").arg(&odd).status().unwrap().success()), "no regular file"),
        ("folder", &|| fs::create_dir(&odd).unwrap(), "no regular file"),
        ("dangling", &|| std::os::unix::fs::symlink("nothing", &odd).unwrap(), "a link to nothing"),
        ("link", &|| std::os::unix::fs::symlink(&secret, &odd).unwrap(), "leads out of its folder"),
    ];
    for (case, make, problem) in cases {
        make();
        for (command, code) in
            [(&["check"][..], 1), (&["run", "--to", "coder", "--ephemeral", "--model", "fake", "x"], 0)]
        {
            let said = callboard(folder.path(), command);
            let text = format!("{}{}", said.out, said.error);
            assert_eq!(said.code, Some(code), "{case}: {text}");
            assert!(text.contains("agents/odd.toml: ") && text.contains(problem), "{case}: {text}");
            assert!(!text.contains("C4N4RY"), "{case}: {text}");
        }
        if case == "folder" { fs::remove_dir(&odd).unwrap() } else { fs::remove_file(&odd).unwrap() }
    }
    std::os::unix::fs::symlink("coder.toml", &odd).unwrap();
    let said = callboard(folder.path(), &["check"]);
    let twice = "agents/odd.toml: agents/coder.toml has an agent of the name \"coder\" too";
    assert!(
        said.error.contains(twice) || said.out.contains(twice),
        "a link within the folder is read: {}{}",
        said.out,
        said.error
    );
}
