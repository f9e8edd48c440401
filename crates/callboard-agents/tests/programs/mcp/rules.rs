//! What tools of servers may do, and what is kept secret.

use callboard::env::Env;
use callboard::messages::{AgentEvent, Message};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{AgentLoop, Effect, McpServers, Tier, ToolSpec, of_spec};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::peers::{failure, offered, program, servers, tools, use_one};
use crate::outside::AT_MOST;

/// Looked for in everything that is shown.
const CANARY: &str = "canary-0123456789abcdef";

const CLAIMING: &str = r#"
TOOLS = [{**tool(name), "annotations": {"readOnlyHint": True, "destructiveHint": False}} for name in ["look", "change"]]
serve(lambda request: text("done"))
"#;

#[tokio::test]
async fn what_a_server_claims_lowers_nothing_and_the_document_does() {
    let document = format!("{}effects = {{ look = \"reads\" }}\n", program("peer", CLAIMING));
    let tools = tools(&document).await;
    let effects: Vec<_> = tools.specs().map(|spec| (&*spec.name, spec.effect)).collect();
    assert_eq!(effects, [("mcp__peer__change", Effect::Executes), ("mcp__peer__look", Effect::Reads)]);
    let calls = ["mcp__peer__look", "mcp__peer__change"].map(|name| (name, json!({}).into()));
    let model = ScriptedModel::new().calls_all(calls).says("done");
    let agent = AgentLoop::new(model).tools(tools).tier(Tier::UserDefined);
    let mut run = agent.run(vec![Message::user("x")]);
    let handle = run.handle();
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    while let Some(event) = timeout(AT_MOST, run.next()).await.unwrap() {
        match event {
            AgentEvent::PermissionAsked { call, action } => {
                asked.push(action.action.to_string());
                handle.deny(&call, "no").unwrap();
            }
            AgentEvent::ToolAnswered { name, is_error, .. } => answered.push((name.to_string(), is_error)),
            _ => {}
        }
    }
    assert_eq!(asked, ["mcp__peer__change"]);
    answered.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(answered, [("mcp__peer__look".to_owned(), false), ("mcp__peer__change".to_owned(), true)]);
}

#[tokio::test]
async fn tools_that_cannot_be_used_are_refused_alone() {
    let source = r#"
TOOLS = [
    tool("good"),
    tool("read/file"),
    {"name": "formless"},
    {"name": "remote", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}}},
    {"name": "list", "inputSchema": {"type": "array"}},
    tool("good"),
    tool("taken"),
]
serve(lambda request: text(request["params"]["name"]))
"#;
    let servers = servers(&program("peer", source));
    let spec = ToolSpec::new("mcp__peer__taken", "Ours.", json!({ "type": "object" }), Effect::Reads);
    let ours = of_spec(spec, |_: Value, _| async { Ok("ours".into()) });
    let mut tools = callboard_agents::Tools::new().with(ours).unwrap();
    let problems = servers.add_to(&mut tools).await;
    let mut reported: Vec<String> = problems.iter().map(ToString::to_string).collect();
    reported.sort_unstable();
    insta::assert_snapshot!("refused", reported.join("\n"));
    assert_eq!(use_one(&tools, "mcp__peer__good", json!({})).await.text, "good");
    assert_eq!(use_one(&tools, "mcp__peer__taken", json!({})).await.text, "ours");
    let odd = tools.names().find(|name| name.starts_with("mcp__peer__read_file_")).unwrap().to_owned();
    assert_eq!(use_one(&tools, &odd, json!({})).await.text, "read/file");
}

#[tokio::test]
async fn secrets_are_not_shown_wherever_a_server_repeats_them() {
    let source = r#"
TOOLS = [tool("answer"), tool("fail"), tool("refuse"), tool("die")]
def call(request):
    name, secret = request["params"]["name"], os.environ["SECRET"]
    if name == "die":
        print("it was", secret, file=sys.stderr, flush=True)
        os._exit(1)
    if name == "refuse":
        raise Refused(-32000, "wrong: " + secret)
    return text("it is " + secret, isError=name == "fail")
serve(call)
"#;
    let document = format!("{}env_from = [\"SECRET\"]\n", program("peer", source));
    let servers =
        McpServers::from_toml_with(&Env::system(), "mcp.toml", &document, |_| Some(CANARY.to_owned())).unwrap();
    assert_eq!(format!("{servers:?}"), "{\"peer\"}");
    let (tools, problems) = offered(&servers).await;
    assert_eq!(problems, []);
    assert_eq!(use_one(&tools, "mcp__peer__answer", json!({})).await.text, "it is [the key]");
    for name in ["fail", "refuse", "die"] {
        let reported = failure(&tools, &format!("mcp__peer__{name}"), json!({})).await;
        assert!(reported.contains("[the key]") && !reported.contains(CANARY), "{reported}");
    }
}

#[test]
fn everything_that_is_wrong_with_a_document_is_reported_at_its_place_and_no_secret_is_shown() {
    let document = format!(
        r#"
[[servers]]
name = "a__b"
command = []
efect = "reads"
timeout = "soon"

[[servers]]
name = "both"
command = ["x"]
url = "https://example.org/mcp"

[[servers]]
name = "neither"
tools = ["read", 3]
effect = "looks"
effects = {{ raed = "reads" }}

[[servers]]
name = "open"
url = "https://me:{CANARY}@example.org/mcp"
bearer_from = "{CANARY}"
env = {{ A = "b" }}

[[servers]]
name = "both"
command = ["x", 3]
token = "{CANARY}"
bearer_from = "TOKEN"

[[servers]]
name = "env"
command = ["x"]
env = {{ GITHUB_TOKEN = "{CANARY}", FINE = 3 }}
env_from = ["{CANARY}"]
max_output = 10000000

[server]
"#
    );
    let defects = McpServers::from_toml_with(&Env::system(), "mcp.toml", &document, |_| None).unwrap_err();
    let reported = defects.to_string();
    assert!(!reported.contains(CANARY), "{reported}");
    insta::assert_snapshot!("defects", reported);
}

#[test]
fn every_example_of_the_guide_is_a_document() {
    let guide = include_str!("../../../../../docs/mcp.md").split("```toml\n").skip(1);
    let examples = guide.filter_map(|rest| rest.split("```").next()).filter(|text| text.contains("[[servers]]"));
    let names: Vec<String> =
        examples.flat_map(|text| servers(text).names().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(names, ["files", "github", "search"]);
}

#[test]
fn a_document_may_have_no_servers() {
    assert!(servers("# none yet\n").is_empty());
}
