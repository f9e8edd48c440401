//! Values that look like templates, which are values; and prompts that are more than templates may be, which are refused.

use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Definition, LlmAgent, Teammate};

use super::*;

const VALUES: [&str; 58] = [
    "{{ 7 * 7 }}",
    "{{ task }}",
    "{{ state }}",
    "{{ input }}",
    "{{ agent }}",
    "{{ agent.name }}",
    "{{ tools }}",
    "{{ board_tools }}",
    "{{ previous_agent }}",
    "{{ unknown }}",
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "{# hidden #}",
    "{% raw %}",
    "{% endraw %}",
    "{% raw %}{{ task }}{% endraw %}",
    "{% if true %}yes{% endif %}",
    "{% for x in range(9) %}{{ x }}{% endfor %}",
    "{% include 'secrets' %}",
    "{% import 'os' as os %}",
    "{% extends 'base' %}",
    "{% set task = 'evil' %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% block system %}evil{% endblock %}",
    "{{ ''.__class__.__mro__ }}",
    "{{ self.__dict__ }}",
    "{{ config }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id') }}",
    "{{ range(1000000000) }}",
    "{{ 'x' * 1000000000 }}",
    "{{- task -}}",
    "{%- endfor -%}",
    "{{'{{'}} task }}",
    "{{ '{{ task }}' }}",
    "{{{ task }}}",
    "{{{{ task }}}}",
    "{ { task } }",
    "{{\ntask\n}}",
    "\u{ff5b}\u{ff5b} task \u{ff5d}\u{ff5d}",
    "{\u{200b}{ task }}",
    "{{ task\u{202e} }}",
    "${task}",
    "#{task}",
    "<%= task %>",
    "%(task)s",
    "{0}",
    "{task}",
    "$(id)",
    "`id`",
    "\\u007b\\u007b task }}",
    "&#123;&#123; task &#125;&#125;",
    "\u{1b}[2J{{ task }}",
    "\"}}\n{{ state }}\n{\"",
];

/// It uses every variable that others can influence.
const PROMPT: &str = "task {{ task }}; input {{ input.value }}; state {{ state.note }}; \
    tools {% for tool in tools %}{{ tool.description }}{% endfor %}; \
    board {% for tool in board_tools %}{{ tool.description }}{% endfor %}; \
    team {% for mate in team %}{{ mate.description }}{% endfor %}; all {{ state }}.";

/// Writes what it was given into the state and the context, and passes it on.
fn leaves(value: &'static str) -> AgentSpec {
    AgentSpec::new("first", move |turn: Turn| async move {
        let set = turn.context().set("run", "note", value, None).await;
        set.map_err(|error| TurnError::terminal(error.to_string()))?;
        Ok(Command::output(json!({ "value": value })).with("note", value).goto("lead"))
    })
}

#[tokio::test(start_paused = true)]
async fn a_value_is_never_read_as_a_template() {
    assert!(VALUES.len() >= CASES);
    for value in VALUES {
        let spec = ToolSpec::new("reads", value, json!({ "type": "object" }), Effect::Reads);
        let tools = Tools::new().with(of_spec(spec, |_: Value, _| async { Ok("".into()) })).unwrap();
        // The one that is described by nothing else.
        let described = tools.clone();
        let tools = tools.with(context_get()).unwrap();
        let toml = format!(
            "[agent]\nname = \"lead\"\nsystem_prompt = {}\n[agent.capabilities]\n\
             allowed_tools = [\"reads\", \"ContextGet\", \"Task\", \"agent_create\"]",
            Value::from(PROMPT)
        );
        let definition = Definition::from_toml("lead.toml", &toml).unwrap();
        let team = [Teammate { name: "mate".to_owned(), description: value.to_owned() }];
        let draft = json!({ "name": "helper", "description": value, "instructions": value, "tools": [] });
        let model = ScriptedModel::new()
            .calls("ContextGet", json!({ "namespace": "run", "key": "note" }))
            .calls("agent_create", draft)
            .calls("Task", json!({ "agent": "helper", "task": value }))
            .says(value)
            .says("done");
        let lead = LlmAgent::new(&definition, Arc::new(model.clone()), &tools, &team).unwrap();
        let board = common::builder().with(lead.spec()).with(leaves(value)).start().await.unwrap();
        let tried = watched(&board, task(value, "first")).await;
        assert_eq!(tried.result.output, "done", "{value:?}");
        let requests = model.requests();
        let description = |tools: &Tools| tools.specs().map(|spec| spec.description.to_string()).collect::<String>();
        let (own, note) = (description(&tools), Value::from(value));
        assert_eq!(description(&described), value);
        let expected =
            format!("task {value}; input {value}; state {value}; tools {own}; board {own}; team {value}; all {{");
        assert!(requests[0].system.starts_with(&expected), "{value:?}: {}", requests[0].system);
        assert!(requests[0].system.contains(&format!("\"note\":{note}")), "{value:?}: {}", requests[0].system);
        assert!(tool_answers(&requests[1])[0].ends_with(&format!("\n{value}")), "{value:?}");
        // The helper, and what it has answered.
        assert!(requests[3].system.starts_with(value), "{value:?}: {}", requests[3].system);
        assert_eq!(*requests[3].messages, [Message::user(value)]);
        assert_eq!(tool_answers(&requests[4])[2], value);
        board.shutdown().await;
    }
}

/// Prompts that ask for what templates do not have, or for more than they may take.
fn prompts() -> Vec<String> {
    let mut prompts: Vec<String> = [
        "{{",
        "{{ }}",
        "{{ task",
        "{%",
        "{% %}",
        "{% if %}",
        "{% if task %}",
        "{% for x in %}",
        "{% for in task %}",
        "{% endfor %}",
        "{% else %}",
        "{% raw %}",
        "{# open",
        "{{ task }",
        "{{ task | }}",
        "{{ 'open }}",
        "{{ task..x }}",
        "{{ . }}",
        "{{ (task }}",
        "{{ unknown }}",
        "{{ self }}",
        "{{ config }}",
        "{{ request.application }}",
        "{{ env('HOME') }}",
        "{{ eval('1') }}",
        "{{ open('/etc/passwd') }}",
        "{{ lipsum() }}",
        "{{ cycler }}",
        "{{ joiner() }}",
        "{{ caller() }}",
        "{{ context }}",
        "{{ secrets.key }}",
        "{{ agents }}",
        "{{ run.id }}",
        "{{ store }}",
        "{{ os.environ }}",
        "{{ task.__class__ }}",
        "{{ task.__class__.__mro__ }}",
        "{{ agent.__init__ }}",
        "{{ agent['__class__'] }}x",
        "{{ agent.nam }}",
        "{{ ''.__class__ }}",
        "{{ [].__class__.__base__ }}",
        "{{ {}.__globals__ }}",
        "{{ tools.__globals__ }}",
        "{{ task.format }}",
        "{{ task|attr('__class__') }}",
        "{{ task|unknown }}",
        "{{ task is unknown }}",
        "{{ agent.name() }}",
        "{{ task() }}",
        "{% include 'x' %}",
        "{% include '/etc/passwd' %}",
        "{% include task %}",
        "{% include ['a', 'b'] %}",
        "{% import 'os' as os %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% extends task %}",
        "{% block a %}{{ super() }}{% endblock %}",
        "{% call x() %}{% endcall %}",
        "{% filter unknown %}{% endfilter %}",
        "{% do x() %}",
        "{% with x = secret %}{{ x }}{% endwith %}",
        "{{ input.missing }}",
        "{{ input.a.b.c }}",
        "{{ state.missing }}",
        "{{ tools[0].missing }}",
        "{{ previous_agent.x }}",
        "{{ range(1000000000) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{{ 1 // 0 }}",
        "{{ 2 ** 100000 }}",
        "{{ -task }}",
        "{% set agent = 1 %}{{ agent.name }}",
    ]
    .map(str::to_owned)
    .into();
    let nested = |open: &str, middle: &str, close: &str, times: usize| {
        format!("{{{{ {}{middle}{} }}}}", open.repeat(times), close.repeat(times))
    };
    prompts.extend([
        nested("(", "nothing", ")", 20_000),
        nested("[", "nothing", "]", 20_000),
        nested("not ", "nothing", "", 10_000),
        nested("-", "nothing", "", 30_000),
        nested("", "nothing", ".x", 20_000),
        nested("", "nothing", "|lower", 9_000),
        nested("", "nothing", " ~ nothing", 6_000),
        nested("f(", "nothing", ")", 15_000),
        "{% if nothing %}".repeat(3_000) + &"{% endif %}".repeat(3_000),
        format!("{}{{{{ task }}}}", "x".repeat(70_000)),
        format!("{}{{{{", "{{ task }}".repeat(6_000)),
    ]);
    prompts
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_more_than_a_template_ends_in_an_error() {
    let prompts = prompts();
    assert!(prompts.len() >= CASES);
    let (mut at_reading, mut at_work) = (0, 0);
    for prompt in prompts {
        let start: String = prompt.chars().take(80).collect();
        let quoted = Value::from(prompt.as_str());
        let in_prompt = format!("[agent]\nname = \"x\"\nsystem_prompt = {quoted}");
        let in_section = format!("[agent]\nname = \"x\"\n[[agent.sections]]\nname = \"own\"\ntext = {quoted}");
        for text in [in_prompt, in_section] {
            let definition = match Definition::from_toml("x.toml", &text) {
                Ok(definition) => definition,
                Err(defects) => {
                    let reported = defects.to_string();
                    assert!(
                        reported.contains("x.toml") && reported.len() < 4_000 && !reported.contains("panicked"),
                        "{start}: {reported}"
                    );
                    at_reading += 1;
                    continue;
                }
            };
            let model = ScriptedModel::new();
            let agent = LlmAgent::new(&definition, Arc::new(model.clone()), &Tools::new(), &[]).unwrap();
            let board = common::builder().with(agent.spec()).start().await.unwrap();
            let result = watched(&board, task("go", "x")).await.result;
            let reported = format!("{:?}", result.outcome);
            assert!(model.requests().is_empty(), "{start}: it was said to the model: {:?}", model.requests()[0].system);
            assert!(
                reported.contains("the prompt, in ") && reported.len() < 4_000 && !reported.contains("panicked"),
                "{start}: {reported}"
            );
            board.shutdown().await;
            at_work += 1;
        }
    }
    assert!(at_reading >= CASES && at_work > 0, "{at_reading} and {at_work}");
}
