//! What is denied does not happen, and the run reports it (SEMANTICS 5 and 9).

use callboard::messages::{Action, Consent, RunEvent};
use callboard::prelude::*;

async fn result_under(consent: Consent) -> callboard::messages::RunResult {
    let board = Callboard::builder()
        .agent("writer", |turn: Turn| async move {
            let approved = turn.people().approve(Action::new("write_file", "a.txt", "text")).await?;
            Ok(Command::output(approved.arguments))
        })
        .approval_policy(move |_| consent.clone())
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("write")).await.unwrap();
    let result = run.result().await.unwrap();
    let retried = run.history().await.unwrap().iter().any(|event| matches!(event, RunEvent::AttemptFailed { .. }));
    assert!(!retried, "asking again would not help");
    board.shutdown().await;
    result
}

#[tokio::test(start_paused = true)]
async fn a_run_that_could_not_do_without_a_denied_action_is_denied() {
    let outcome = result_under(Consent::Deny).await.outcome;
    assert_eq!(outcome, Outcome::Denied { reason: "write_file a.txt was denied by policy".to_owned() });
    assert_eq!(result_under(Consent::Auto).await.output.as_str(), Some("text"));
}
