#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard::messages::{Authority, Effect, Json};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;

use super::*;
use crate::{Definition, FakeModel, LlmAgent, MetaTool, Tool, ToolFailure, ToolOutput, ToolScope, ToolSpec, Tools};

struct Named(&'static str, Effect);

impl Tool for Named {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.0, "", json!({ "type": "object" }), self.1)
    }

    fn call(&self, _: Json, _: ToolScope) -> futures::future::BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        Box::pin(async { Ok("".into()) })
    }
}

/// Tools of each effect; one is named as an effect, and is none.
const TOOLS: [(&str, Effect); 8] = [
    ("FileRead", Effect::Reads),
    ("ContextSet", Effect::Notes),
    ("HttpGet", Effect::Sends),
    ("FileWrite", Effect::Writes),
    ("ShellExec", Effect::Executes),
    ("mcp__db__query", Effect::Reads),
    ("mcp__db__drop", Effect::Writes),
    ("reads", Effect::Executes),
];

fn tools() -> Tools {
    TOOLS.iter().fold(Tools::new(), |tools, (name, effect)| tools.with(Named(name, *effect)).unwrap())
}

/// The grants of the roles that are built in, as docs/agents.md has them.
#[test]
fn each_role_has_its_row_in_the_docs() {
    let docs = include_str!("../../../../docs/agents.md");
    let yes = |is_so: bool| if is_so { "yes, for programs" } else { "no" };
    for role in BUILT_IN {
        let grant = built_in(role);
        let text = grant.to_string();
        let [tools, authority, namespaces, variables, _] = text.split("; ").collect::<Vec<_>>()[..] else { panic!() };
        let of = |cell: &str| {
            let words = cell.split_once(": ").unwrap().1;
            let is_word = |word: &str| word == "all" || word == "none";
            let word = |word: &str| if is_word(word) { word.to_owned() } else { format!("`{word}`") };
            words.split(", ").map(word).collect::<Vec<_>>().join(", ")
        };
        let cells = [of(tools), of(authority), of(namespaces), of(variables), yes(grant.docker_socket).to_owned()];
        let row = format!("| `{role}` | {} |", cells.join(" | "));
        assert!(docs.contains(&row), "docs/agents.md lacks\n{row}");
    }
}

#[test]
fn a_role_that_is_built_in_grants_less_than_the_one_before_it() {
    for pair in BUILT_IN.windows(2) {
        assert!(built_in(pair[1]).is_within(&built_in(pair[0])), "{pair:?}");
        assert!(!built_in(pair[0]).is_within(&built_in(pair[1])), "{pair:?}");
    }
}

/// Each thing that may be asked for, and the roles that grant it; `-` is an agent without a role, `auditor` one that is not declared.
#[test]
fn each_role_grants_what_the_table_has() {
    use Asked::{DockerSocket, Namespace, Tool, Variable};
    let tool = |name, effect| Tool(name, Some(effect));
    let table = [
        (tool("FileRead", Effect::Reads), "admin developer specialist cli auditor -"),
        (tool("FileWrite", Effect::Writes), "admin developer specialist auditor -"),
        (tool("HttpGet", Effect::Sends), "admin developer specialist auditor -"),
        (tool("ShellExec", Effect::Executes), "admin developer -"),
        (tool("ContextSet", Effect::Notes), "admin developer specialist auditor -"),
        (MetaTool::Task.asked(), "admin developer specialist cli auditor -"),
        (MetaTool::AskUser.asked(), "admin developer specialist cli auditor -"),
        (MetaTool::AcceptHandoff.asked(), "admin developer specialist cli auditor -"),
        (MetaTool::HandoffToAgent.asked(), "admin developer specialist auditor -"),
        (MetaTool::AgentCreate.asked(), "admin developer specialist auditor -"),
        (Asked::Effect(Effect::Reads), "admin developer specialist cli auditor -"),
        (Asked::Effect(Effect::Notes), "admin developer specialist cli auditor -"),
        (Asked::Effect(Effect::Sends), "admin developer specialist auditor -"),
        (Asked::Effect(Effect::Writes), "admin developer specialist auditor -"),
        (Asked::Effect(Effect::Executes), "admin developer -"),
        (Namespace("run"), "admin developer specialist cli auditor -"),
        (Namespace("codebase"), "admin developer specialist auditor -"),
        (Variable("HOME"), "admin developer specialist cli auditor -"),
        (Variable("LC_ALL"), "admin developer specialist cli auditor -"),
        (Variable("GITLAB_TOKEN"), "admin developer"),
        (Variable("DEPLOY_KEY"), "admin"),
        (DockerSocket, "admin"),
    ];
    let roles = Roles::default();
    for (asked, expected) in table {
        let all = ["admin", "developer", "specialist", "cli", "auditor", "-"];
        let grants = |role: &&str| roles.of(Some(*role).filter(|role| *role != "-")).has(asked);
        assert_eq!(all.into_iter().filter(grants).collect::<Vec<_>>().join(" "), expected, "{asked:?}");
    }
}

#[test]
fn roles_are_read_with_the_keys_that_they_have_and_the_rest_is_as_that_of_a_specialist() {
    let text = "[roles.auditor]\ntools = [\"reads\", \"Task\", \"mcp__db__*\"]\nauthority = [\"reads\", \"notes\"]\nnamespaces = \
                [\"audit\"]\nvariables = [\"AUDIT_*\"]\ndocker_socket = true\n[roles.small]\n[other]\nkey = 1\n";
    let roles = Roles::from_toml("callboard.toml", text).unwrap();
    assert_eq!(
        roles.of(Some("auditor")).text().unwrap(),
        "role auditor grants tools: reads, Task, mcp__db__*; authority: reads, notes; namespaces: audit; variables: AUDIT_*; \
         Docker's socket: yes"
    );
    assert_eq!(
        roles.of(Some("small")).text().unwrap(),
        "role small grants tools: all; authority: reads, notes, sends, writes; namespaces: all; variables: none; Docker's socket: no"
    );
    assert!(
        roles
            .of(Some("large"))
            .text()
            .unwrap()
            .starts_with("role large is not declared and grants what specialist does")
    );
    assert_eq!(Roles::from_toml("callboard.toml", "").unwrap().of(None).text(), None);
}

#[test]
fn everything_that_is_wrong_with_declared_roles_is_reported_at_its_place() {
    let text = "[roles.cli]\n[roles.auditor]\ntool = [\"FileRead\"]\nauthority = [\"reeds\"]\nvariables = \"A\"\nnamespaces = \
                [\"a*b\"]\ndocker_socket = \"yes\"\n[roles.\"\\u202e\"]\n[roles]\nflat = 1\n";
    let wrong = Roles::from_toml("callboard.toml", text).unwrap_err().to_string();
    insta::assert_snapshot!(wrong);
}

#[test]
fn a_file_that_asks_for_more_than_its_role_grants_is_refused_at_the_place() {
    let text = r#"[agent]
name = "watcher"
[agent.announces]
role = "cli"
[agent.capabilities]
allowed_tools = ["FileRead", "ShellExec", "handoff_to_agent"]
authority = ["reads", "writes"]
[agent.context]
namespaces = ["run", "codebase"]
"#;
    let reader = Definition::reader().tools(&tools());
    let undeclared = text.replace("\"cli\"", "\"developr\"");
    let program = r#"[agent]
name = "deployer"
[agent.announces]
role = "developer"
[agent.process]
command = ["sh"]
env = { DOCKER_HOST = "unix:///run/docker.sock" }
env_from = ["GITLAB_TOKEN", "DEPLOY_KEY"]
"#;
    let without_role = program.replace("[agent.announces]\nrole = \"developer\"\n", "");
    let refused = |text: &str| reader.read("a.toml", text).unwrap_err().to_string();
    let all = [refused(text), refused(&undeclared), refused(program), refused(&without_role)];
    insta::assert_snapshot!(all.join("\n\n----\n\n"));
    assert!(reader.read("a.toml", &text.replace("cli", "admin")).is_ok());
    assert!(reader.read("a.toml", &program.replace("developer", "admin")).is_ok());
}

#[test]
fn a_tool_that_a_role_does_not_grant_is_refused_also_where_the_reader_did_not_know_it() {
    let text = "[agent]\nname = \"a\"\n[agent.announces]\nrole = \"cli\"\n[agent.capabilities]\nallowed_tools = [\"FileWrite\"]";
    let read = Definition::from_toml("a.toml", text).unwrap();
    let error = LlmAgent::new(&read, Arc::new(FakeModel), &tools(), &[]).unwrap_err().to_string();
    assert!(
        error
            .starts_with("agent a: the role \"cli\" does not grant the tool \"FileWrite\", whose effect is \"writes\""),
        "{error}"
    );
}

#[test]
fn an_agent_that_is_compiled_in_has_what_its_code_says() {
    let text = "[agent]\nname = \"a\"\n[agent.announces]\nrole = \"cli\"\n[agent.process]\ncommand = [\"sh\"]\nenv_from = [\"SECRET\"]";
    let read = Definition::reader().built_in().read("a.toml", text).unwrap();
    assert_eq!((read.authority, read.granted()), (Authority::ALL, None));
}

/// Words for lists of roles and files.
const WORDS: [&str; 12] = [
    "*",
    "reads",
    "notes",
    "writes",
    "mcp__db__*",
    "FileRead",
    "FileWrite",
    "ShellExec",
    "ContextSet",
    "Task",
    "AskUser",
    "agent_create",
];
const SPACES: [&str; 4] = ["run", "audit", "security", "sec"];
const VARIABLES: [&str; 4] = ["AUDIT_TOKEN", "AUDIT", "GITLAB_TOKEN", "HOME"];
const EFFECTS: [&str; 5] = ["reads", "notes", "sends", "writes", "executes"];

/// What a document lists, or nothing.
type List = Option<Vec<&'static str>>;

fn list(words: &'static [&'static str]) -> impl Strategy<Value = List> {
    proptest::option::of(subsequence(words, 0..=words.len()))
}

fn line(key: &str, list: &List) -> String {
    list.as_ref().map(|words| format!("{key} = {words:?}\n")).unwrap_or_default()
}

/// The declared role and the files of the property.
#[derive(Debug)]
struct Case {
    role: &'static str,
    declared: [List; 4],
    docker: bool,
    file: [List; 4],
    names_docker: bool,
}

prop_compose! {
    fn case()(
        role in select(&["admin", "developer", "specialist", "cli", "declared", "unknown", ""][..]),
        declared in [list(&WORDS), list(&EFFECTS)],
        declared_names in [list(&["*", "run", "sec*"]), list(&["*", "AUDIT_*", "AUDIT"])],
        docker in any::<bool>(),
        file in [list(&["FileRead", "FileWrite", "ShellExec", "ContextSet", "mcp__db__drop", "reads", "Task", "agent_create"]), list(&EFFECTS)],
        file_names in [list(&SPACES), list(&VARIABLES)],
        names_docker in any::<bool>(),
    ) -> Case {
        let [tools, authority] = declared;
        let [namespaces, variables] = declared_names;
        let declared = [tools, authority, namespaces, variables];
        let [tools, authority] = file;
        let [namespaces, variables] = file_names;
        Case { role, declared, docker, file: [tools, authority, namespaces, variables], names_docker }
    }
}

/// All tools with their effects, those of the loop included.
fn all_tools() -> BTreeMap<&'static str, &'static str> {
    let own = TOOLS.iter().map(|(name, effect)| (*name, effect.name()));
    own.chain(MetaTool::ALL.map(|tool| (tool.name(), tool.spec().effect.name()))).collect()
}

impl Case {
    /// What the role grants, as plain sets: tools, effects, namespaces, variables, and Docker's socket.
    fn granted(&self) -> ([BTreeSet<&'static str>; 4], bool) {
        let some = |words: &[&'static str]| Some(words.to_vec());
        let specialist = [some(&["*"]), some(&["reads", "notes", "sends", "writes"]), some(&["*"]), some(&[])];
        let or_specialist = |number: usize| self.declared[number].clone().or(specialist[number].clone());
        let (lists, docker) = match self.role {
            "admin" => ([some(&["*"]), some(&EFFECTS), some(&["*"]), some(&["*"])], true),
            "developer" => ([some(&["*"]), some(&EFFECTS), some(&["*"]), some(&["GITLAB_TOKEN"])], false),
            "cli" => {
                ([some(&["reads", "Task", "AskUser"]), some(&["reads", "notes"]), some(&["run"]), some(&[])], false)
            }
            "declared" => ([0, 1, 2, 3].map(or_specialist), self.docker),
            "" => ([some(&["*"]), some(&EFFECTS), some(&["*"]), some(&[])], false),
            _ => (specialist, false),
        };
        let [tools, effects, spaces, variables] = lists.map(Option::unwrap);
        let names = |words: &[&str], all: &[&'static str]| -> BTreeSet<&'static str> {
            let of = |word: &str| match word {
                "*" => all.to_vec(),
                "sec*" => vec!["security", "sec"],
                "AUDIT_*" => vec!["AUDIT_TOKEN"],
                _ => all.iter().filter(|name| **name == word).copied().collect(),
            };
            words.iter().flat_map(|word| of(word)).collect()
        };
        let is_of = |name: &str, effect: &str| {
            tools.iter().any(|word| match *word {
                "*" => true,
                "mcp__db__*" => name.starts_with("mcp__db__"),
                word if EFFECTS.contains(&word) => word == effect,
                word => word == name,
            })
        };
        let tools = all_tools().into_iter().filter(|(name, effect)| effects.contains(effect) && is_of(name, effect));
        let tools = tools.map(|(name, _)| name).collect();
        let mut variables = names(&variables, &VARIABLES);
        variables.insert("HOME");
        ([tools, effects.into_iter().collect(), names(&spaces, &SPACES), variables], docker)
    }

    fn roles(&self) -> Roles {
        let [tools, authority, namespaces, variables] = &self.declared;
        let text = [
            line("tools", tools),
            line("authority", authority),
            line("namespaces", namespaces),
            line("variables", variables),
        ];
        let docker = format!("docker_socket = {}", self.docker);
        Roles::from_toml("callboard.toml", &format!("[roles.declared]\n{}{docker}", text.concat())).unwrap()
    }

    fn file(&self, is_program: bool) -> String {
        let [tools, authority, namespaces, variables] = &self.file;
        let role =
            if self.role.is_empty() { String::new() } else { format!("[agent.announces]\nrole = {:?}\n", self.role) };
        let (tools, program) = match is_program {
            true => {
                let env = if self.names_docker { "env = { A = \"unix:///run/docker.sock\" }\n" } else { "" };
                (String::new(), format!("[agent.process]\ncommand = [\"sh\"]\n{env}{}", line("env_from", variables)))
            }
            false => (line("allowed_tools", tools), String::new()),
        };
        let [authority, namespaces] = [line("authority", authority), line("namespaces", namespaces)];
        format!(
            "[agent]\nname = \"a\"\n{role}{program}[agent.capabilities]\n{tools}{authority}[agent.context]\n{namespaces}"
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A file is accepted if all that it asks for is granted, and its agent has nothing else, whatever it leaves out.
    #[test]
    fn no_combination_of_file_and_role_has_more_than_the_grant(case in case(), is_program in any::<bool>()) {
        let ([tools, effects, spaces, variables], docker) = case.granted();
        let asks = |number: usize, granted: &BTreeSet<&str>| {
            case.file[number].iter().flatten().all(|word| granted.contains(word))
        };
        let own = if is_program { asks(3, &variables) && (docker || !case.names_docker) } else { asks(0, &tools) };
        let is_within = own && asks(1, &effects) && asks(2, &spaces);
        let board = self::tools();
        let read = Definition::reader().tools(&board).roles(&case.roles()).read("a.toml", &case.file(is_program));
        prop_assert_eq!(read.is_ok(), is_within, "{:?}", read);
        if let Ok(read) = read {
            prop_assert!(read.authority.effects().all(|effect| effects.contains(effect.name())));
            let namespaces = read.namespaces.clone().unwrap_or_else(|| vec!["run".into()]);
            prop_assert!(namespaces.iter().all(|name| spaces.contains(&**name)), "{:?}", namespaces);
            if let Some(process) = &read.process {
                prop_assert!(process.env_from.iter().all(|name| variables.contains(name.as_str())));
                prop_assert_eq!(read.grant.has(Asked::DockerSocket), docker);
            } else {
                let agent = LlmAgent::new(&read, Arc::new(FakeModel), &board, &[]).unwrap();
                let has: Vec<String> = agent.tool_names();
                prop_assert!(has.iter().all(|name| tools.contains(name.as_str())), "{:?}", has);
            }
        }
    }
}
