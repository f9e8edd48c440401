//! The socket of a turn: programs that a turn has started delegate in the name of its agent, within all that limits the turn, and can do
//! nothing else by it.

#![cfg(all(unix, feature = "process"))]

use std::sync::Arc;

use callboard::actors::{StreamMode, Turn, Watched};
use callboard::messages::{Limits, RunEvent};
use callboard::prelude::*;
use callboard::supervision::runs::BreakerPolicy;
use callboard_agents::ProcessAgent;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::builder;
use crate::outside::{AT_MOST, Wire};

const SOCKET: &str = include_str!("turn_socket.py");
const PRELUDE: &str = concat!(include_str!("prelude.py"), "import subprocess\n", include_str!("wire.py"));

/// A worker whose program takes turns with this source. `child(SOURCE)` runs it in a program that uses the socket, and returns the value
/// that it leaves in `done`.
fn worker(source: &str, wire: Option<&Wire>) -> AgentSpec {
    let program = format!(
        "{PRELUDE}SOCKET = {SOCKET:?}\n\
         def child(source):\n\
         \x20   source = SOCKET + source + '\\nprint(json.dumps(done))'\n\
         \x20   # In a session of its own, by a shell.\n\
         \x20   line = ['sh', '-c', 'exec setsid python3 -c \"$0\"', source]\n\
         \x20   return json.loads(subprocess.run(line, close_fds=False, check=True, stdout=subprocess.PIPE).stdout)\n\
         begin()\n{source}"
    );
    let wire = wire.map(Wire::path);
    AgentSpec::new("worker", move || {
        let agent = ProcessAgent::new("python3").args(["-c", &program]);
        wire.iter().fold(agent, |agent, wire| agent.env("WIRE", wire))
    })
}

/// A worker whose program runs this source in a program for each turn.
fn child(source: &str) -> AgentSpec {
    let source = format!("turn = json.loads(%s)\n{source}");
    worker(
        &format!("while True:\n    turn = hear()\n    end(turn, child({source:?} % repr(json.dumps(turn))))\n"),
        None,
    )
}

/// Reports who asks for what.
fn coder() -> AgentSpec {
    AgentSpec::new("coder", |turn: Turn| async move {
        let from = turn.chain().newest_first().next().map(|step| step.from.clone());
        let did = turn.input_json().clone();
        Ok(Command::output(json!({ "from": from, "did": did, "reference": turn.reference() })))
    })
}

async fn output(board: &Callboard, task: Task) -> Value {
    let run = board.submit(task).await.unwrap();
    let result = timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap();
    assert_eq!(result.outcome, Outcome::Finished, "{:#?}", run.history().await);
    result.output.value().clone()
}

fn task() -> Task {
    Task::new("x").to("worker")
}

#[tokio::test]
async fn a_program_that_a_turn_has_started_delegates_in_the_name_of_its_agent() {
    let source = r#"
hello = request(type="hello", protocol=1)
done = [hello, delegated("coder", input={"n": 1}, reference="issue 7")]
"#;
    // With one permit: a turn that waits holds none.
    let board = builder().pool(1).with(child(source)).with(coder()).start().await.unwrap();
    let run = board.submit(task()).await.unwrap();
    let result = timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap();
    let [hello, answer] = result.output.as_array().unwrap().as_slice() else { panic!("{result:?}") };
    assert_eq!(*hello, json!({ "type": "turn", "protocol": 1, "run": run.id(), "turn": 1, "agent": "worker" }));
    let did = json!({ "from": "worker", "did": { "n": 1 }, "reference": "issue 7" });
    assert_eq!((&answer["status"], &answer["body"]), (&json!("complete"), &did));
    let delegated =
        run.history().await.unwrap().into_iter().any(
            |event| matches!(event, RunEvent::Delegated { order, .. } if &*order.to == "coder" && !order.is_detached),
        );
    assert!(delegated, "it is a delegation of the turn like any other");
    board.shutdown().await;
}

#[tokio::test]
async fn what_is_given_away_is_answered_with_a_turn_and_can_be_asked_about_meanwhile() {
    let source = r#"
if turn["input"] == "x":
    given = request(type="delegate", to="coder", body="work")
    answer = given
    while answer.get("status", "ack") == "ack":
        answer = request(type="wait", request=given["request"])
    done = [given["type"], request(type="status", request=given["request"]) == answer, answer["body"]["did"]]
else:
    done = turn["input"]["answer"]["output"]["did"]
"#;
    let board = builder().with(child(source)).with(coder()).start().await.unwrap();
    let run = board.submit(task()).await.unwrap();
    let result = timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap();
    assert_eq!(result.output, "work");
    let ends = run.history().await.unwrap().into_iter().filter_map(|event| match event {
        RunEvent::TurnEnded { turn: 1, command, .. } => command.output.clone(),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [Json::from(json!(["delegated", true, "work"]))]);
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_delegates_by_a_program_meets_the_refusals_of_one_that_delegates_itself() {
    let usual = Limits::default;
    let cases = [
        ("worker", usual()),
        ("nobody", usual()),
        ("codr", usual()),
        ("coder", Limits { handoffs: 0, ..usual() }),
        ("coder", Limits { agents: 1, ..usual() }),
        ("coder", Limits { depth: 0, ..usual() }),
        ("coder", Limits { tokens: 0, ..usual() }),
        ("broken", usual()),
    ];
    let broken = |_: Turn| async { Err::<Command, _>(TurnError::transient("it is down")) };
    let open_at_once = BreakerPolicy { threshold: 1, ..BreakerPolicy::default() };
    let by_itself = AgentSpec::new("worker", |turn: Turn| async move {
        let to = turn.input_json().as_str().unwrap().to_owned();
        let refused = turn.delegate(&to, "work").await.unwrap_err();
        Ok(Command::output(refused.to_string()))
    });
    let by_program = child("answer = delegated(turn['input'])\ndone = answer['error']");
    let mut refusals = Vec::new();
    for spec in [by_itself, by_program] {
        let board = builder().breaker(open_at_once).with(spec).with(coder()).agent("broken", broken);
        let board = board.start().await.unwrap();
        let fails = Task::new("x").to("broken").limits(Limits { attempts: 1, ..usual() });
        board.submit(fails).await.unwrap().result().await.unwrap();
        let mut texts = Vec::new();
        for (to, limits) in &cases {
            let text = output(&board, task().input(*to).limits(limits.clone())).await.as_str().unwrap().to_owned();
            // How long the breaker stays open is another time each time.
            texts.push(text.replace(|c: char| c.is_ascii_digit(), ""));
        }
        board.shutdown().await;
        refusals.push(texts);
    }
    assert_eq!(refusals[0], refusals[1]);
    let different: std::collections::BTreeSet<_> = refusals[0].iter().collect();
    assert_eq!(different.len(), cases.len(), "{different:?}");
}

#[tokio::test]
async fn a_program_whose_wait_would_close_a_circle_is_refused() {
    let by_itself = |gives_away: bool| {
        AgentSpec::new("worker", move |turn: Turn| async move {
            if turn.input_json() != "x" {
                return Ok(Command::output("fine"));
            }
            turn.delegate("gate", "wait").await?;
            let asked = turn.delegate("other", "work");
            let refused = match gives_away {
                true => turn.answer(asked.detach().await?).await.unwrap_err(),
                false => asked.await.unwrap_err(),
            };
            Ok(Command::output(refused.to_string()))
        })
    };
    let by_program = |asks: &str| {
        child(&format!(
            "done = 'fine'\nif turn['input'] == 'x':\n    delegated('gate')\n{asks}\n    done = answer['error']"
        ))
    };
    let delegates = by_program("    answer = delegated('other')");
    let gives_away = by_program(
        "    given = answer = request(type='delegate', to='other', body='work')\n    \
         while 'error' not in answer:\n        answer = request(type='wait', request=given['request'])",
    );
    let mut refusals = Vec::new();
    for worker in [by_itself(false), delegates, by_itself(true), gives_away] {
        let [holds, waits] = [(); 2].map(|()| Arc::new(Notify::new()));
        let (held, waited) = (Arc::clone(&holds), Arc::clone(&waits));
        let gate = move |_: Turn| {
            let (holds, waits) = (Arc::clone(&held), Arc::clone(&waited));
            async move {
                holds.notify_one();
                waits.notified().await;
                Ok(Command::output("go on"))
            }
        };
        let other = |turn: Turn| async move {
            match turn.input_json() == "x" {
                true => Ok(Command::output(turn.delegate("worker", "help").await?)),
                false => Ok(Command::output("worked")),
            }
        };
        let board = builder()
            .with(worker.non_reentrant())
            .with(AgentSpec::new("other", other).non_reentrant())
            .agent("gate", gate)
            .start()
            .await
            .unwrap();
        let first = board.submit(task()).await.unwrap();
        timeout(AT_MOST, holds.notified()).await.unwrap();
        // It has its slot, and waits for that of the worker.
        let second = board.submit(Task::new("x").to("other")).await.unwrap();
        let events = second.events(1, &[StreamMode::Debug]).await.unwrap();
        let mut delegations = events.filter(|watched| {
            let is = matches!(watched, Watched::Event { event, .. } if matches!(**event, RunEvent::Delegated { .. }));
            std::future::ready(is)
        });
        timeout(AT_MOST, delegations.next()).await.unwrap().unwrap();
        waits.notify_one();
        timeout(AT_MOST, first.result()).await.expect("the run does not end").unwrap();
        let outputs = first.history().await.unwrap().into_iter().find_map(|event| match event {
            RunEvent::TurnEnded { turn: 1, command, .. } => command.output.clone(),
            _ => None,
        });
        // Without the turns and requests, whose ids differ.
        let output = outputs.unwrap();
        let text = output.as_str().unwrap();
        let agents = text.split(" waits for ").map(|wait| wait.split(" (").next().unwrap().to_owned());
        refusals.push(agents.collect::<Vec<_>>());
        assert_eq!(timeout(AT_MOST, second.result()).await.unwrap().unwrap().output, "fine");
        board.shutdown().await;
    }
    assert!(refusals[0].len() > 2 && refusals[0][0].starts_with("waiting would never end: "), "{refusals:?}");
    assert_eq!(refusals[0], refusals[1]);
    assert!(refusals[2].len() > 2 && refusals[2][0].starts_with("waiting would never end: "), "{refusals:?}");
    assert_eq!(refusals[2], refusals[3]);
}

#[tokio::test]
async fn the_programs_of_a_turn_may_make_64_requests() {
    let source = r#"
answers = [request(type="delegate", to="nobody", body="work") for _ in range(65)]
done = [answers[63]["kind"], answers[64]["kind"], answers[64]["error"]]
"#;
    let board = builder().with(child(source)).start().await.unwrap();
    let why = "terminal error: the programs of one step may make 64 requests, and have made them";
    assert_eq!(output(&board, task()).await, json!(["refused", "turn", why]));
    board.shutdown().await;
}

#[tokio::test]
async fn between_turns_nothing_is_answered_and_the_next_turn_has_the_socket_again() {
    let wire = Wire::new();
    // It lives longer than the turn that has started it.
    let later = r#"
print(json.dumps(request(type="hello", protocol=1)["run"]), flush=True)
while (answer := request(type="hello", protocol=1))["type"] == "turn":
    pass
wire = socket.socket(socket.AF_UNIX)
wire.connect(os.environ["WIRE"])
wire.sendall((answer["kind"] + ": " + answer["error"] + "\n").encode())
"#;
    let program = format!(
        "LATER = {later:?}\nwhile True:\n    turn = hear()\n    \
         child = subprocess.Popen(['python3', '-c', SOCKET + LATER], close_fds=False, stdout=subprocess.PIPE)\n    \
         end(turn, json.loads(child.stdout.readline()))\n"
    );
    let board = builder().with(worker(&program, Some(&wire))).start().await.unwrap();
    for _ in 0..2 {
        let run = board.submit(task()).await.unwrap();
        let result = timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap();
        assert_eq!(result.output, run.id().to_string());
        let line = wire.taken().await.line().await;
        assert_eq!(line, "closed: no turn of the agent is open, so nothing can be delegated");
    }
    board.shutdown().await;
}

/// Lines that no program of good will sends; what each is answered with.
const HOSTILE: &[(&str, &str)] = &[
    (r"b'x'", "unfit"),
    (r"b'[]'", "unfit"),
    (r"b'null'", "unfit"),
    (r"b'\xff\xfe'", "unfit"),
    (r"b'\0' * 100", "unfit"),
    (r"b'{' * 100000", "unfit"),
    (r"b'[' * 100000", "unfit"),
    (r"b'a' * 3000000", "unfit"),
    (r#"b'{"id":1,"id":2,"type":"hello","protocol":1}'"#, "unfit"),
    (r#"b'{"id":-1,"type":"hello","protocol":1}'"#, "unfit"),
    (r#"b'{"id":"1","type":"hello","protocol":1}'"#, "unfit"),
    (r#"b'{"id":1,"type":"hello","protocol":2}'"#, "unfit"),
    (r#"b'{"id":1,"type":"hello"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"approve","action":"x","target":"y","arguments":1}'"#, "unfit"),
    (r#"b'{"id":1,"type":"ask","question":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"step","name":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"reserve","tokens":1}'"#, "unfit"),
    (r#"b'{"id":1,"type":"taint","source":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"context_get","key":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"command","turn":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"cancel","request":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"delegate","to":"coder"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"delegate","to":"coder","body":"x","from":"other"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"delegate","to":"coder","body":"x","tokens":-1}'"#, "unfit"),
    (r#"b'{"id":1,"type":"delegate","to":7,"body":"x"}'"#, "unfit"),
    (r#"b'{"id":1,"type":"delegate","to":"","body":"x"}'"#, "refused"),
    (r#"b'{"id":1,"type":"delegate","to":"../../etc","body":"x"}'"#, "refused"),
    (r#"b'{"id":1,"type":"delegate","to":"nobody","body":"x","input":' + b'[' * 200 + b']' * 200 + b'}'"#, "unfit"),
    (r#"b'{"id":1,"type":"status","request":""}'"#, "turn"),
    (r#"b'{"id":1,"type":"status","request":"../1"}'"#, "turn"),
    (r#"b'{"id":1,"type":"wait","request":"00000000-0000-0000-0000-000000000000/1.0"}'"#, "turn"),
    (r#"b'{"id":1,"type":"wait","request":"' + own + b'.0"}'"#, "turn"),
    (r#"b'{"id":1,"type":"wait","request":"' + own + b'.4294967295"}'"#, "turn"),
    (r#"b'{"id":1,"type":"wait","request":"' + own + b'.99999999999"}'"#, "turn"),
    (r#"b'{"id":1,"type":"wait","request":"' + own + b'.+1"}'"#, "turn"),
    (r#"b'{"id":1,"type":"wait","request":"' + own + b'.00"}'"#, "turn"),
];

#[tokio::test]
async fn hostile_lines_are_refused_and_the_socket_still_answers() {
    let lines: Vec<&str> = HOSTILE.iter().map(|(line, _)| *line).collect();
    let source = format!(
        r#"
own = turn["id"].encode()
kinds = []
for written in [{}]:
    line.sendall(written + b"\n")
    kinds.append(heard().get("kind"))
# A part of a line, as of a program that was killed while it wrote.
line.sendall(b'{{"id":1,"type":"del')
done = [kinds, delegated("coder")["status"]]
"#,
        lines.join(", ")
    );
    let board = builder().with(child(&source)).with(coder()).start().await.unwrap();
    let [kinds, status] = <[Value; 2]>::try_from(output(&board, task()).await.as_array().unwrap().clone()).unwrap();
    for (kind, (line, expected)) in kinds.as_array().unwrap().iter().zip(HOSTILE) {
        assert_eq!(kind, expected, "{line}");
    }
    assert_eq!(status, "complete");
    board.shutdown().await;
}

#[tokio::test]
async fn descriptors_that_a_program_passes_are_dropped() {
    let source = r#"
read, write = os.pipe()
socket.send_fds(line, [b'{"id":1,"type":"hello","protocol":1}\n'], [write])
answer = heard()
os.close(write)
# It ends at once, if nobody has the other end.
done = [answer["type"], os.read(read, 1).decode()]
"#;
    let board = builder().with(child(source)).start().await.unwrap();
    assert_eq!(output(&board, task()).await, json!(["turn", ""]));
    board.shutdown().await;
}

#[cfg(feature = "shell")]
mod shell {
    use super::*;
    use callboard_agents::tools::{Root, ShellExec};
    use callboard_agents::{Tool, ToolScope};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Each command has a key of its own, also beside other runs of these tests: the next try of a command ends the processes with the same key.
    fn scope(turn: &Turn, command: &str) -> ToolScope {
        let (context, programs) = (Some(turn.context().clone()), Some(turn.for_programs()));
        let key = format!("{}/{command}", std::process::id()).into();
        ToolScope { key, context, turn: programs, variables: None, trace_parent: None, asker: None }
    }

    #[tokio::test]
    async fn commands_that_run_at_the_same_time_make_requests_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let client = format!("{SOCKET}import sys\nprint(delegated('coder', input=sys.argv[1])['body']['did'])");
        std::fs::write(folder.path().join("client.py"), client).unwrap();
        let shell = ShellExec::new(&Root::open(folder.path()).unwrap());
        let lead = AgentSpec::new("lead", move |turn: Turn| {
            let shell = shell.clone();
            async move {
                let commands = ["one", "two"].map(|part| {
                    let command = json!({ "command": format!("python3 client.py {part} 2>&1") });
                    let used = shell.call(command.into(), scope(&turn, part));
                    // Both intents are journaled before either of the commands begins.
                    turn.effect("shell").run(async move { used.await.map(|output| output.text) })
                });
                Ok(Command::output(Json::of(futures::future::try_join_all(commands).await?)?))
            }
        });
        let board = builder().with(lead).with(coder()).start().await.unwrap();
        let printed = output(&board, Task::new("x").to("lead")).await;
        assert_eq!(printed, json!(["exit code 0\none\n", "exit code 0\ntwo\n"]));
        board.shutdown().await;
    }

    #[tokio::test]
    async fn a_command_of_the_shell_delegates_and_a_repeated_turn_makes_the_same_requests() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("client.py"), format!("{SOCKET}print(delegated('coder')['body']['from'])"))
            .unwrap();
        let shell = ShellExec::new(&Root::open(folder.path()).unwrap());
        let attempts = Arc::new(AtomicU32::new(0));
        let lead = AgentSpec::new("lead", move |turn: Turn| {
            let (shell, attempts) = (shell.clone(), Arc::clone(&attempts));
            async move {
                let used = shell.call(json!({ "command": "python3 client.py 2>&1" }).into(), scope(&turn, "client"));
                let printed = turn.step("shell", async move { used.await.map(|output| output.text) }).await?;
                let answer = turn.delegate("coder", "more").await?;
                if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err(TurnError::transient("once more"));
                }
                Ok(Command::output(json!([printed, answer["did"]])))
            }
        });
        let board = builder().pool(1).with(lead).with(coder()).start().await.unwrap();
        let run = board.submit(Task::new("x").to("lead")).await.unwrap();
        let result = timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap();
        assert_eq!(result.output, json!(["exit code 0\nlead\n", "more"]), "{:#?}", run.history().await);
        let asked =
            run.history().await.unwrap().into_iter().filter(|event| matches!(event, RunEvent::Delegated { .. }));
        assert_eq!(asked.count(), 2, "what the first attempt has asked for is not asked for again");
        assert!(result.is_tainted, "what a command delegates may be what it has read elsewhere");
        board.shutdown().await;
    }
}
