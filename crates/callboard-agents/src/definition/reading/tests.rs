#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use callboard::actors::Mode;
use callboard::messages::{Authority, ConversationStrategy, Cost, OnUnknown, PerDay};
use serde_json::json;

use super::*;
use crate::{Effect, Tools, tool::Tool};

struct Named(&'static str, Effect);

impl Tool for Named {
    fn spec(&self) -> crate::ToolSpec {
        crate::ToolSpec::new(self.0, "", json!({ "type": "object" }), self.1)
    }

    fn call(
        &self,
        _: callboard::messages::Json,
        _: crate::ToolScope,
    ) -> futures::future::BoxFuture<'static, Result<crate::ToolOutput, crate::ToolFailure>> {
        Box::pin(async { Ok("".into()) })
    }
}

fn reader() -> DefinitionReader {
    let tools = Tools::new().with(Named("FileRead", Effect::Reads)).unwrap();
    let tools = tools.with(Named("ShellExec", Effect::Executes)).unwrap();
    Definition::reader().tools(&tools).models(["big", "small"])
}

fn defects(text: &str) -> String {
    reader().read("a.toml", text).unwrap_err().to_string()
}

#[test]
fn every_setting_is_read() {
    let text = r#"
[agent]
name = "coordinator"
description = "Leads."
mode = "build"
system_prompt = "You lead {{ team }}."

[[agent.sections]]
name = "style"
priority = 70
modes = ["build", "plan"]
text = "Short sentences."

[[agent.sections]]
name = "steps"
priority = { plan = 5, build = 15 }
text = "In steps."

[agent.model]
preferred = "big"
fallback = ["small"]
provider_tags = ["fast"]
max_tokens = 1000
compact_at = 90000

[agent.capabilities]
allowed_tools = ["FileRead", "ShellExec", "Task"]
hidden_tools = ["ShellExec"]
ask = ["FileRead"]
idempotent = ["ShellExec"]
on_unknown = "report"
max_iterations = 7
trust_tier = "user_defined"
authority = ["reads", "executes"]

[agent.announces]
role = "developer"
capabilities = ["rust"]
projects = ["callboard"]

[agent.limits]
concurrency = 2
timeout = "5m"
tokens = 20000
restarts = { max = 3, within = "30s" }

[agent.context]
namespaces = ["codebase"]

[agent.delegation]
context = "filtered"
max_tokens = 2000
built_in = ["enricher"]

[agent.output]
schema = { type = "object" }
"#;
    let read = reader().read("a.toml", text).unwrap();
    assert_eq!((read.name.as_str(), read.mode, read.tier()), ("coordinator", Mode::Build, Tier::UserDefined));
    assert_eq!((&*read.description, &*read.system_prompt), ("Leads.", "You lead {{ team }}."));
    assert_eq!((read.model.preferred.as_deref(), &read.model.fallback[..]), (Some("big"), &["small".into()][..]));
    assert_eq!(read.model.tags, ["fast".into()]);
    assert_eq!(read.allowed_tools.as_deref().unwrap().len(), 3);
    assert_eq!((&read.hidden_tools[..], &read.ask[..]), (&["ShellExec".into()][..], &["FileRead".into()][..]));
    assert_eq!((&read.idempotent[..], read.on_unknown), (&["ShellExec".into()][..], Some(OnUnknown::Report)));
    assert_eq!(read.authority, Authority::of([Effect::Reads, Effect::Executes]));
    assert_eq!((read.role.as_deref(), &read.capabilities[..]), (Some("developer"), &["rust".into()][..]));
    assert_eq!(read.projects, ["callboard".into()]);
    assert_eq!((read.max_iterations, read.max_tokens, read.tokens), (7, 1000, Some(20_000)));
    assert_eq!(read.restarts, (3, Duration::from_secs(30)));
    let style = &read.sections[0];
    assert_eq!((&*style.name, style.priority, &*style.text), ("style", 70, "Short sentences."));
    assert_eq!(style.modes, [Mode::Build, Mode::Plan]);
    let steps = &read.sections[1];
    assert_eq!((steps.priority, &steps.priorities[..]), (60, &[(Mode::Build, 15), (Mode::Plan, 5)][..]));
    assert_eq!((read.concurrency, read.timeout), (2, Duration::from_secs(300)));
    assert_eq!(read.namespaces.as_deref(), Some(&["codebase".into()][..]));
    assert_eq!(
        (read.compact_at, read.passed_context, read.reported_tokens),
        (Some(90_000), ConversationStrategy::Filtered, 2_000)
    );
    assert_eq!(read.built_in_team, [crate::BuiltIn::Enricher]);
    assert_eq!(*read.output.unwrap().schema(), json!({ "type": "object" }));
}

#[test]
fn of_several_preferred_models_the_first_is_asked_first() {
    let model = |text: &str| {
        Definition::from_toml("a", &format!("[agent]\nname = \"a\"\n[agent.model]\n{text}")).unwrap().model
    };
    let several =
        model("preferred = [\"claude-sonnet-4-6\", \"b\"]\nfallback = [\"gpt-4o\"]\nprovider_tags = [\"fast\"]");
    assert_eq!(several.preferred.as_deref(), Some("claude-sonnet-4-6"));
    assert_eq!((&several.fallback[..], &several.tags[..]), (&["b".into(), "gpt-4o".into()][..], &["fast".into()][..]));
    assert_eq!(model("preferred = [\"one\"]"), model("preferred = \"one\""));
    assert_eq!(model("preferred = []\nfallback = [\"x\"]").preferred, None);
    let reported = |text: &str| defects(&format!("[agent]\nname = \"a\"\n[agent.model]\n{text}"));
    assert!(reported("preferred = [\"big\", \"big\"]").contains("stands here twice"));
    assert!(reported("preferred = [\"big\", 3]").contains("a.toml:4:21"), "{}", reported("preferred = [\"big\", 3]"));
    assert!(reported("preferred = 3").contains("`preferred`"), "{}", reported("preferred = 3"));
}

#[test]
fn a_budget_below_one_answer_is_reported_at_its_place_with_both_figures() {
    let text = |tokens: u32| {
        format!("[agent]\nname = \"a\"\n[agent.model]\nmax_tokens = 500\n[agent.limits]\ntokens = {tokens}\n")
    };
    let reported = defects(&text(499));
    assert!(
        reported.contains("a.toml:6:10: 499 tokens in a turn are less") && reported.contains("which is 500"),
        "{reported}"
    );
    assert!(Definition::from_toml("a.toml", &text(500)).is_ok());
    let priorities =
        defects("[agent]\nname = \"a\"\n[[agent.sections]]\nname = \"x\"\ntext = \"x\"\npriority = { plann = 5 }\n");
    assert!(priorities.contains("did you mean \"plan\""), "{priorities}");
}

#[test]
fn unset_settings_are_as_for_an_agent_that_is_compiled_in() {
    let read = Definition::from_toml("a", "[agent]\nname = \"a\"").unwrap();
    let built_in = Definition::built_in(AgentName::new("a").unwrap());
    assert_eq!(Definition { tier: Tier::BuiltIn, grant: AgentGrant::of_code(), ..read }, built_in);
}

#[test]
fn all_that_is_wrong_is_reported_at_its_place() {
    insta::assert_snapshot!(
        "defects",
        defects(
            r#"[agent]
name = "a\nb"
mod = "plan"
mode = "plann"
system_prompt = "{{ taks }}"
[[agent.sections]]
name = "x"
text = "{% for %}"
priority = -1
[agent.model]
preferred = "bigg"
fallback = ["small", "small"]
[agent.capabilities]
allowed_tools = ["FileReed", "Task", 3]
hidden_tools = ["ShellExec"]
max_iterations = 0
trust_tier = "built_in"
[agent.announces]
role = ""
[agent.limits]
restarts = 5
[agent.contexts]
[agents]
"#
        )
    );
}

#[test]
fn a_mode_has_only_the_tools_that_fit_it() {
    let text =
        "[agent]\nname = \"a\"\nmode = \"explore\"\n[agent.capabilities]\nallowed_tools = [\"ShellExec\", \"AskUser\"]";
    let reported = defects(text);
    assert!(reported.contains("an agent of the mode explore has no tool \"ShellExec\""), "{reported}");
    assert_eq!(reported.matches("a.toml:").count(), 1, "{reported}");
}

#[test]
fn what_is_wrong_with_delegation_and_output_is_reported_at_its_place() {
    insta::assert_snapshot!(
        "delegation_defects",
        defects(
            r#"[agent]
name = "a"
[agent.delegation]
context = "filterd"
max_tokens = 0
built_in = ["summariser", 3]
[agent.output]
schema = { type = "objekt" }
"#
        )
    );
    assert!(defects("[agent]\nname = \"a\"\n[agent.output]\n").contains("the output of an agent needs `schema`"));
}

#[test]
fn errors_of_texts_that_are_no_agents_name_what_to_write() {
    insta::assert_snapshot!("empty", defects(""));
    assert!(defects("[[agent]]\nname = \"a\"").contains("with one pair of brackets"));
    assert!(defects("x = ").contains("a.toml:1:"));
    let source = |origin: &str, bytes: &[u8]| DefinitionSource { origin: origin.into(), bytes: bytes.to_vec() };
    let text = b"[agent]\nname = \"a\"";
    let read = reader().all(&[
        source("1", text),
        source("2", text),
        source("3", b"\xff"),
        source("4", b"[agent]\nname = \"b\""),
    ]);
    let reported: Vec<String> = read
        .into_iter()
        .map(|read| read.map_or_else(|defects| defects.list()[0].problem.clone(), |one| one.name.to_string()))
        .collect();
    assert_eq!(
        reported,
        ["a", "1 has an agent of the name \"a\" too", "the text is not UTF-8: byte 0 (0xff) begins no character", "b"]
    );
}

/// The example in the docs that has every key.
fn whole_example(page: &'static str) -> &'static str {
    page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap()
}

fn as_json(text: &str) -> serde_json::Value {
    let mut found = callboard_documents::Found::default();
    let item = |document: &callboard_documents::toml::DeTable<'_>, found: &mut callboard_documents::Found| {
        let fields = document.iter().map(|(key, item)| {
            (key.get_ref().to_string(), callboard_documents::toml::json(item, found).unwrap_or_default())
        });
        Some(serde_json::Value::Object(fields.collect()))
    };
    let read = callboard_documents::toml::read(text, "", &mut found, item);
    found.or(read).unwrap().unwrap()
}

#[test]
fn the_page_has_every_setting_and_the_schema_accepts_them() {
    let example = whole_example(include_str!("../../../../../docs/agents.md"));
    let tools = ["FileRead", "FileSearch"].map(|name| Named(name, Effect::Reads));
    let tools = tools.into_iter().fold(Tools::new(), |tools, tool| tools.with(tool).unwrap());
    let tools =
        tools.with(Named("FileWrite", Effect::Writes)).unwrap().with(Named("ShellExec", Effect::Executes)).unwrap();
    Definition::reader().tools(&tools).read("docs/agents.md", example).unwrap_or_else(|defects| panic!("{defects}"));
    let schema = Definition::schema();
    let validator = jsonschema::validator_for(schema.value()).unwrap();
    validator.validate(&as_json(example)).unwrap_or_else(|error| panic!("{error} at {}", error.instance_path()));
    // For each table, a key that it does not have: the advice lists the keys that it has.
    for (table, pointer) in [
        ("agent.process", "/properties/agent/properties/process"),
        ("agent", "/properties/agent"),
        ("agent.model", "/properties/agent/properties/model"),
        ("agent.capabilities", "/properties/agent/properties/capabilities"),
        ("agent.announces", "/properties/agent/properties/announces"),
        ("agent.limits", "/properties/agent/properties/limits"),
        ("agent.context", "/properties/agent/properties/context"),
        ("agent.delegation", "/properties/agent/properties/delegation"),
        ("agent.output", "/properties/agent/properties/output"),
        ("[agent.sections]", "/properties/agent/properties/sections/items"),
        ("agent.limits.restarts", "/properties/agent/properties/limits/properties/restarts"),
    ] {
        let text = format!("agent.name = \"a\"\n[{table}]\nqqqqqqqqqqqqqqq = 1\n")
            .replace("agent.name = \"a\"\n[agent]", "[agent]");
        let defects = Definition::from_toml("a", &text).unwrap_err();
        let advice =
            defects.list().iter().find_map(|defect| defect.advice.as_deref()?.strip_prefix("its keys are ")).unwrap();
        let known: std::collections::BTreeSet<&str> = advice.split(", ").map(|key| key.trim_matches('`')).collect();
        let properties = schema.pointer(&format!("{pointer}/properties")).and_then(|found| found.as_object()).unwrap();
        assert_eq!(known, properties.keys().map(String::as_str).collect(), "{table}");
    }
    let mut of_thinkers = schema.value().clone();
    of_thinkers.pointer_mut("/properties/agent/properties").unwrap().as_object_mut().unwrap().remove("process");
    each_key(&of_thinkers, &as_json(example), "");
    for wrong in ["[agent]", "[agent]\nname = \"a\"\nmod = \"plan\"", "[agent]\nname = \"a\"\nmode = \"plann\""] {
        assert!(!validator.is_valid(&as_json(wrong)), "{wrong}");
    }
}

#[test]
fn the_page_of_programs_has_every_setting_of_one_and_nothing_else() {
    let example = whole_example(include_str!("../../../../../docs/process-agents.md"));
    let read = Definition::from_toml("docs/process-agents.md", example).unwrap_or_else(|defects| panic!("{defects}"));
    let process = read.process.as_ref().unwrap();
    assert_eq!(process.command, ["python3", "word_counter.py"]);
    assert_eq!(
        (&process.env[..], &process.env_from[..]),
        (&[("LANG".into(), "C.UTF-8".into())][..], &["HOME".into()][..])
    );
    assert_eq!((process.folder.as_deref(), process.ready_within), (Some(Path::new(".")), Duration::from_secs(10)));
    assert_eq!((read.concurrency, read.timeout, read.tokens), (2, Duration::from_secs(60), Some(20_000)));
    assert_eq!((read.tier(), read.authority), (Tier::UserDefined, Authority::of([Effect::Reads, Effect::Notes])));
    let schema = Definition::schema();
    let validator = jsonschema::validator_for(schema.value()).unwrap();
    validator.validate(&as_json(example)).unwrap_or_else(|error| panic!("{error} at {}", error.instance_path()));
    // Keys for agents that use a model are refused, by editors too.
    let mut of_programs = schema.value().clone();
    let agent = of_programs.pointer_mut("/properties/agent/properties").unwrap().as_object_mut().unwrap();
    let refused = schema.pointer("/properties/agent/dependentSchemas/process/properties").unwrap().as_object().unwrap();
    for (key, inner) in refused {
        let tools = inner.pointer("/properties").and_then(serde_json::Value::as_object);
        for tool in tools.into_iter().flat_map(|tools| tools.keys()) {
            agent["capabilities"]["properties"].as_object_mut().unwrap().remove(tool);
        }
        if tools.is_none() {
            agent.remove(key);
        }
        for key in tools.map_or_else(|| vec![key], |tools| tools.keys().collect()) {
            let (before, after) = if tools.is_some() { ("capabilities = { ", " }") } else { ("", "") };
            let text = format!("[agent]\nname = \"a\"\nprocess = {{ command = [\"a\"] }}\n{before}{key} = 1{after}");
            let reported = defects(&text);
            assert!(reported.contains(&format!("`{key}` is for agents that think")), "{reported}");
            assert!(!validator.is_valid(&as_json(&text)), "{text}");
        }
    }
    let limits = of_programs.pointer_mut("/properties/agent/properties/limits/properties").unwrap();
    for key in ["cost_per_day", "cost_per_run"] {
        limits.as_object_mut().unwrap().remove(key);
        let text = format!("[agent]\nname = \"a\"\nprocess = {{ command = [\"a\"] }}\nlimits = {{ {key} = \"1.00\" }}");
        assert!(defects(&text).contains(&format!("`{key}` is for agents that think")), "{}", defects(&text));
    }
    each_key(&of_programs, &as_json(example), "");
}

#[test]
fn limits_of_a_day_and_of_a_run_are_exact() {
    let limits = |text: &str| Definition::from_toml("a", &format!("[agent]\nname = \"a\"\n[agent.limits]\n{text}"));
    let read = limits("tokens_per_day = 7\ncost_per_day = \"2.000000001\"").unwrap();
    assert_eq!(read.per_day, PerDay { tokens: Some(7), cost: Some(Cost(2_000_000_001)) });
    let read = limits("tokens_per_run = 7\ncost_per_run = \"2.000000001\"").unwrap();
    assert_eq!((read.tokens_per_run, read.cost_per_run), (Some(7), Some(Cost(2_000_000_001))));
    for key in ["cost_per_day", "cost_per_run"] {
        for wrong in ["2.5", "\"two\"", "\"0\"", "\"1.0000000001\""] {
            let defects = limits(&format!("{key} = {wrong}")).unwrap_err().to_string();
            assert!(defects.contains(&format!("`{key}` must be an amount of US dollars above zero")), "{defects}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_program_is_reported_at_its_place_and_no_secret_is_shown() {
    let reported = defects(
        r#"[agent]
name = "a"
mode = "plan"
system_prompt = "{{ taks }}"
[[agent.sections]]
name = "x"
[agent.model]
preferred = "bigg"
[agent.process]
comand = ["a"]
env = { API_TOKEN = "sk-1", N = 3 }
env_from = ["sk-2"]
ready_within = "soon"
[agent.capabilities]
allowed_tools = ["FileReed"]
authority = ["reeds"]
trust_tier = "built_in"
"#,
    );
    assert!(!reported.contains("sk-"), "{reported}");
    insta::assert_snapshot!("process_defects", reported);
    for (command, problem) in [
        ("[]", "`command` names no program"),
        ("[\" \"]", "`command` names no program"),
        ("\"python3 a.py\"", "`command` must be an array, not a string"),
        ("[\"a\", 3]", "a word of `command` must be a string, not an integer"),
        ("[\"a\\u0000\"]", "`command` has a NUL"),
    ] {
        let reported = defects(&format!("[agent]\nname = \"a\"\n[agent.process]\ncommand = {command}\n"));
        assert!(reported.starts_with("a.toml:4:") && reported.contains(problem), "{reported}");
    }
}

#[cfg(all(unix, feature = "process"))]
#[test]
fn a_program_that_is_not_there_is_reported_where_it_is_named() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    std::fs::write(root.path().join("bin/plain.sh"), "#!/bin/sh").unwrap();
    let reader = Definition::reader().root(root.path());
    let reported =
        |process: &str| match reader.read("a.toml", &format!("[agent]\nname = \"a\"\n[agent.process]\n{process}")) {
            Ok(_) => String::new(),
            Err(defects) => defects.to_string().replace(&root.path().display().to_string(), "ROOT"),
        };
    let wrong = [
        "command = [\"no-such-program\", \"x\"]",
        "command = [\"./a.sh\"]",
        "command = [\"bin/plain.sh\"]",
        "command = [\"sh\"]\nfolder = \"bim\"",
        "command = [\"sh\"]\nenv_from = [\"NO_SUCH_VARIABLE_HERE\"]\n[agent.announces]\nrole = \"admin\"",
        "command = [\"sh\"]\nenv = { PATH = \"bin\" }",
    ];
    insta::assert_snapshot!("programs_not_there", wrong.map(reported).join("\n"));
    let file = root.path().join("bin/plain.sh");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let absolute = format!("command = [{:?}]", file.display().to_string());
    for right in [
        "command = [\"bin/plain.sh\"]",
        "command = [\"./plain.sh\"]\nfolder = \"bin\"",
        "command = [\"plain.sh\"]\nenv = { PATH = \"bin\" }",
        "command = [\"sh\"]\nenv_from = [\"PATH\"]",
        &absolute,
    ] {
        assert_eq!(reported(right), "", "{right}");
    }
    // By itself a text is only read.
    assert!(Definition::from_toml("a", &format!("[agent]\nname = \"a\"\n[agent.process]\n{}", wrong[0])).is_ok());
}

/// Each key of a schema occurs in the example, at every level.
fn each_key(schema: &serde_json::Value, example: &serde_json::Value, at: &str) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}/{key}");
        let stands = example.get(key).unwrap_or_else(|| panic!("{at} does not stand in the example"));
        each_key(inner, stands, &at);
        if let Some(item) = inner.get("items") {
            each_key(item, &stands[0], &at);
        }
    }
}

#[test]
fn a_time_may_be_in_days() {
    let text = "[agent]\nname = \"a\"\n[agent.capabilities]\nquestion_ttl = \"7d\"\n";
    let read = Definition::from_toml("a.toml", text).unwrap();
    assert_eq!(read.question_ttl, Some(Duration::from_secs(7 * 24 * 3_600)));
}
