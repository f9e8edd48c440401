//! The flow of a run, as Mermaid and as plain text.

use callboard::actors::DelegationError;
use callboard::messages::{Action, Consent, Flow, Refusal, RunEvent, SendTo};
use callboard::prelude::*;
use serde_json::json;

use crate::common::{broken, builder, finish, people, until};

/// A scout that fails once, has facts checked and hands on to a planner, which has two writers work at once; one of them
/// wants to hand on where nobody may go any more.
async fn story() -> (Callboard, Flow) {
    let board = builder()
        .agent("scout", |turn: Turn| async move {
            if turn.attempt() == 1 {
                return Err(broken().into());
            }
            let checked = turn.delegate("checker", "check the numbers").input(json!([1, 2])).await?;
            let refused = turn.delegate("scout", "do my own work").await;
            assert!(matches!(refused, Err(DelegationError::Refused(Refusal::AlreadyInChain { .. }))), "{refused:?}");
            let artifacts = json!({ "notes.md": checked, "sources": ["a", "b"], "draft": null });
            Ok(Command::output("plan").with("artifacts", artifacts).with("reason", "enough is known").goto("planner"))
        })
        .agent("checker", |_: Turn| async { Ok(Command::output("checked")) })
        .agent("planner", |_: Turn| async {
            Ok(Command::update("reason", "two <parts> | \"at once\"")
                .goto_many([SendTo::new("writer", "one"), SendTo::new("writer", "two")]))
        })
        .agent("writer", |turn: Turn| async move {
            let part: String = turn.input()?;
            let written = Command::output(part.as_str()).with("artifacts", json!({ (part.as_str()): "text" }));
            Ok(if part == "two" { written.with("reason", "needs another look").goto("checker") } else { written })
        })
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 4, ..Limits::default() };
    let run = board.submit(Task::new("a text").to("scout").limits(limits)).await.unwrap();
    assert!(matches!(run.result().await.unwrap().outcome, Outcome::Refused(_)));
    let flow = run.flow().await.unwrap();
    (board, flow)
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_a_chart_with_artifacts_and_reasons() {
    let (board, flow) = story().await;
    insta::assert_snapshot!(flow.to_mermaid(), @r#"
    flowchart TD
        t1["scout (1 retry)"]
        t2["checker"]
        t3["planner"]
        t4["writer"]
        t5["writer"]
        t1 -.->|"check the numbers"| t2
        t1 -.->|"do my own work: AlreadyInChain"| refused1{{"refused"}}
        t1 -->|"enough is known, notes.md, sources"| t3
        t3 -->|"two &lt;parts&gt; &#124; &quot;at once&quot;"| t4
        t3 -->|"two &lt;parts&gt; &#124; &quot;at once&quot;"| t5
        t5 -->|"needs another look, two: HandoffLimit"| refused5{{"refused"}}
    "#);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_a_text_with_artifacts_and_reasons() {
    let (board, flow) = story().await;
    insta::assert_snapshot!(flow, @r#"
    [scout (1 retry)] ··check the numbers··> [checker]
    [scout (1 retry)] ··do my own work: AlreadyInChain··> [refused]
    [scout (1 retry)] --enough is known, notes.md, sources--> [planner]
    [checker] ends: finished
    [planner] --two <parts> | "at once"--> [writer]
    [planner] --two <parts> | "at once"--> [writer]
    [writer] ends: finished
    [writer] --needs another look, two: HandoffLimit--> [refused]
    [writer] ends: refused (HandoffLimit)
    "#);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_handoff_that_waited_for_a_person_goes_where_it_was_let() {
    let board = builder()
        .agent("lead", |_: Turn| async {
            Ok(Command::output(1).with("artifacts", json!({ "plan": 1 })).goto("writer"))
        })
        .agent("writer", |_: Turn| async { Ok(Command::output("done")) })
        .approval_policy(|_| Consent::Ask)
        .start()
        .await
        .unwrap();
    let mut reported = String::new();
    for decision in ["approve", "deny", "cancel"] {
        let run = board.submit(Task::new("x").to("lead")).await.unwrap();
        until(&run, |event| matches!(event, RunEvent::TurnEnded { .. })).await;
        let id = people::approvals(&board).await[0].id();
        match decision {
            "approve" => drop(board.people().approve(id, "ann").await.unwrap()),
            "deny" => drop(board.people().deny(id, "ann", "no").await.unwrap()),
            _ => assert!(run.cancel("enough").await.unwrap()),
        }
        run.result().await.unwrap();
        reported = format!("{reported}{decision}\n{}", run.flow().await.unwrap());
    }
    insta::assert_snapshot!(reported, @r"
    approve
    [lead] --plan--> [writer]
    [writer] ends: finished
    deny
    [lead] --plan: Denied--> [refused]
    [lead] ends: refused (Denied)
    cancel
    [lead] ends: cancelled: enough
    ");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_a_person_has_not_ended_and_one_that_has_handed_on_is_not_cancelled() {
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::new().goto("writer")) })
        .agent("writer", |turn: Turn| async move {
            turn.people().ask(if turn.attempt() == 2 { "that?" } else { "this?" }).await?;
            Err::<Command, _>(std::io::Error::other("broken").into())
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let question = people::question(&run).await;
    board.people().answer(question.id, "yes", "ann").await.unwrap();
    until(&run, |event| matches!(event, RunEvent::NeedsAttention { .. })).await;
    let mut reported = run.flow().await.unwrap().to_string();
    assert_eq!(people::restart_turns(&board, &run).await, 1);
    reported += &format!("restarted\n{}", run.flow().await.unwrap());
    assert!(run.cancel("enough").await.unwrap());
    reported += &format!("cancelled\n{}", run.flow().await.unwrap());
    insta::assert_snapshot!(reported, @r#"
    [lead] --> [writer]
    [writer (1 retry)] needs attention: an earlier attempt asked for the question "this?" in this p…
    restarted
    [lead] --> [writer]
    cancelled
    [lead] --> [writer]
    [writer (1 retry)] ends: cancelled: enough
    "#);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_could_not_do_without_consent_ends_denied_with_one_entry() {
    let clerk = |turn: Turn| async move {
        let approved = turn.people().approve(Action::new("delete", "/etc", ())).await?;
        Ok(Command::output(approved.arguments))
    };
    let board = builder().agent("clerk", clerk).approval_policy(|_| Consent::Deny).start().await.unwrap();
    let result = finish(&board, Task::new("x")).await;
    assert_eq!(result.to_string(), "denied: delete /etc was denied by policy");
    let flow = board.run(result.run).flow().await.unwrap();
    assert_eq!(flow.to_string(), "[clerk] ends: denied: delete /etc was denied by policy\n");
    board.shutdown().await;
}

/// The turn that takes a late answer is in nobody's command, and is one of the run's turns all the same.
#[tokio::test(start_paused = true)]
async fn the_turn_that_takes_a_late_answer_is_in_the_flow() {
    let board = builder()
        .agent("admin", |turn: Turn| async move {
            if turn.previous_agent().is_none() {
                turn.delegate("developer", "which version runs?").detach().await?;
                return Ok(Command::output("asked"));
            }
            Ok(Command::output("known").with("reason", "the version is known").goto("writer"))
        })
        .agent("developer", |_: Turn| async { Ok(Command::output("1.2")) })
        .agent("writer", |_: Turn| async { Ok(Command::output("done")) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("admin")).await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    insta::assert_snapshot!(run.flow().await.unwrap(), @r"
    [admin] ··which version runs?··> [developer]
    [admin] ends: finished
    [developer] ends: finished
    [admin] --the version is known--> [writer]
    [writer] ends: finished
    ");
    board.shutdown().await;
}

/// Agents choose the words on the edges; a terminal that shows them obeys nothing.
#[tokio::test(start_paused = true)]
async fn words_of_agents_give_terminals_no_orders() {
    let board = builder()
        .agent("lead", |_: Turn| async {
            Ok(Command::output(1)
                .with("reason", "\u{1b}[2J\u{1b}]0;title\u{7}cleared\rover")
                .with("artifacts", json!({ "a\nb": 1, "c\u{202e}d": 2 }))
                .goto("writer"))
        })
        .agent("writer", |_: Turn| async { Err(TurnError::terminal("\u{1b}[31mred")) })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    let flow = board.run(result.run).flow().await.unwrap();
    for shown in [flow.to_string(), flow.to_mermaid()] {
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{shown:?}");
        assert!(shown.contains("cleared"), "{shown:?}");
    }
    board.shutdown().await;
}
