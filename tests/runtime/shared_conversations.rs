//! Conversations that several runs share (SEMANTICS 15).

use crate::common::{World, assert_nothing_left, builder, finish, models, people, quiet, secs};
use callboard::SubmitError;
use callboard::messages::{ConversationId, Message, RunEvent};
use callboard::prelude::*;
use callboard::runtime::{Builder, ConversationError, RunHandle};
use callboard::storage::{Key, Storage};
use callboard::supervision::runs::Fork;
use callboard::testing::{Seeds, Sim};
use callboard::workflow::Workflow;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{BuiltIn, Tools};
use serde_json::json;

fn id(id: &str) -> ConversationId {
    ConversationId::new(id).unwrap()
}

fn talk(body: &str) -> Task {
    Task::new(body).conversation(&id("ann"))
}

/// What a turn sees of the runs before, in a line: `user: …; assistant: …`.
fn seen(turn: &Turn) -> Result<String, TurnError> {
    Ok(lines(&turn.conversation()?))
}

fn lines(messages: &[Message]) -> String {
    let line = |message: &Message| match message {
        Message::User { text } => format!("user: {text}"),
        Message::Assistant { text, .. } => format!("assistant: {text}"),
        Message::Tool { text, .. } => format!("tool: {text}"),
    };
    messages.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// An agent that answers with how many messages it has seen.
fn counting(builder: Builder) -> Builder {
    builder.agent("host", |turn: Turn| async move { Ok(Command::output(turn.conversation()?.len())) })
}

/// An agent that asks people what to answer.
fn asking(builder: Builder) -> Builder {
    builder.agent("host", |turn: Turn| async move {
        let before = seen(&turn)?;
        let answer = turn.people().ask("What now?").await?;
        Ok(Command::output(json!({ "saw": before, "messages": turn.conversation()?.len(), "answer": answer })))
    })
}

async fn answer(board: &Callboard, run: &RunHandle, text: &str) -> Json {
    let question = people::question(run).await;
    board.people().answer(question.id, text, "ann").await.unwrap();
    run.result().await.unwrap().output
}

/// What is stored of a conversation: the messages of the runs, and how many have failed.
async fn stored(board: &Callboard, id: &ConversationId) -> (Vec<String>, usize) {
    let runs = board.conversations().read(id).await.unwrap();
    (runs.iter().map(|run| lines(&run.messages)).collect(), runs.iter().filter(|run| run.failure.is_some()).count())
}

#[tokio::test(start_paused = true)]
async fn a_run_sees_the_messages_of_the_runs_before_it_in_its_conversation() {
    let board = builder()
        .agent("host", |turn: Turn| async move { Ok(Command::output(format!("saw [{}]", seen(&turn)?))) })
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, talk("one")).await.output, "saw []");
    assert_eq!(finish(&board, talk("two")).await.output, "saw [user: one; assistant: saw []]");
    let other = Task::new("three").conversation(&id("bob"));
    assert_eq!(finish(&board, other).await.output, "saw []", "another conversation");
    assert_eq!(finish(&board, Task::new("four")).await.output, "saw []", "none");
    let (said, failed) = stored(&board, &id("ann")).await;
    assert_eq!(said[1], "user: two; assistant: saw [user: one; assistant: saw []]");
    assert_eq!((said.len(), failed), (2, 0));
    let infos = board.conversations().list().await.unwrap();
    let shown: Vec<_> = infos.iter().map(|info| (info.id.as_str(), &*info.owner, info.runs, info.messages)).collect();
    assert_eq!(shown, [("ann", "host", 2, 4), ("bob", "host", 1, 2)]);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_language_model_receives_the_conversation_before_its_task_and_a_delegated_agent_does_not() {
    let model = ScriptedModel::new()
        .says("Hello.")
        .calls("Task", json!({ "agent": "helper", "task": "Look it up." }))
        .says("Still here.");
    let helps = ScriptedModel::new().says("found");
    let agent = |toml: &str, model: &ScriptedModel| models::agent(toml, model.clone(), &Tools::new());
    let lead = "[agent]\nname = \"lead\"\n[agent.capabilities]\nallowed_tools = [\"Task\"]\n";
    let helper = "[agent]\nname = \"helper\"\n";
    let board = builder().with(agent(lead, &model)).with(agent(helper, &helps)).start().await.unwrap();
    finish(&board, talk("Good morning.").to("lead")).await;
    assert_eq!(finish(&board, talk("Are you there?").to("lead")).await.output, "Still here.");
    let requests = model.requests();
    assert_eq!(lines(&requests[0].messages), "user: Good morning.");
    assert_eq!(lines(&requests[1].messages), "user: Good morning.; assistant: Hello.; user: Are you there?");
    assert_eq!(lines(&helps.requests()[0].messages), "user: Look it up.");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_conversation_is_compacted_before_the_model_is_asked() {
    let file = "[agent]\nname = \"host\"\n[agent.model]\ncompact_at = 400\nmax_tokens = 100";
    let long = "Nothing of note. ".repeat(200);
    let model = ScriptedModel::new().says(&long).says("Short.");
    let host = models::agent(file, model.clone(), &Tools::new());
    let sums_up = ScriptedModel::new().says("Much was said.");
    let compactor = models::agent_of(&BuiltIn::Compactor.definition(), sums_up, &Tools::new(), &[]);
    let board = builder().with(host).with(compactor).start().await.unwrap();
    finish(&board, talk("Tell me everything.").to("host")).await;
    assert_eq!(finish(&board, talk("And now?").to("host")).await.output, "Short.");
    let requests = model.requests();
    let [Message::User { text }] = &requests[1].messages[..] else { panic!("{:?}", requests[1].messages) };
    assert!(text.starts_with("And now?") && text.ends_with("Much was said."), "{text}");
    let (said, _) = stored(&board, &id("ann")).await;
    assert!(said[0].len() > long.len(), "what is stored stays whole");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn runs_submitted_at_once_begin_one_after_the_other_and_hold_nothing_while_they_wait() {
    let board = asking(builder()).pool(1).start().await.unwrap();
    let (one, two, three) = tokio::join!(board.submit(talk("1")), board.submit(talk("2")), board.submit(talk("3")));
    let mut runs = [one.unwrap(), two.unwrap(), three.unwrap()];
    quiet().await;
    let places = board.conversations().read(&id("ann")).await.unwrap();
    runs.sort_by_key(|run| places.iter().position(|place| place.run == run.id()));
    let load = board.load();
    assert_eq!((load.runs, load.turns_at_work, load.waiting_turns), (3, 0, 1), "{load:?}");
    assert!(people::questions(&runs[1]).await.is_empty(), "it has not begun");
    let first = answer(&board, &runs[0], "a").await;
    let second = answer(&board, &runs[1], "b").await;
    let third = answer(&board, &runs[2], "c").await;
    let seen = [first, second, third].map(|output| output["messages"].as_u64().unwrap());
    assert_eq!(seen, [0, 2, 4]);
    assert_nothing_left(&board, 1).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_order_of_runs_outlives_a_restart() {
    let world = World::new();
    let start = || asking(world.builder()).start();
    let first = start().await.unwrap();
    let mut ids = Vec::new();
    for body in ["1", "2", "3"] {
        ids.push(first.submit(talk(body)).await.unwrap().id());
    }
    people::next_question(&first.run(ids[0])).await.unwrap();
    first.shutdown().await;
    let second = start().await.unwrap();
    second.recovered().await;
    let late = second.submit(talk("4")).await.unwrap();
    let mut outputs = Vec::new();
    for run in ids.iter().map(|run| second.run(*run)).chain([late]) {
        outputs.push(answer(&second, &run, "yes").await);
    }
    let counts: Vec<_> = outputs.iter().map(|output| output["messages"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 2, 4, 6]);
    let begun = second.run(ids[2]).history().await.unwrap();
    assert!(matches!(begun[1], RunEvent::ConversationEntered { .. }), "{begun:?}");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_one_on_another_board_begins_when_that_has_ended() {
    let world = World::new();
    let start = || asking(world.builder()).start();
    let (one, other) = (start().await.unwrap(), start().await.unwrap());
    let first = one.submit(talk("1")).await.unwrap();
    let second = other.submit(talk("2")).await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert!(people::questions(&second).await.is_empty(), "it has not begun");
    answer(&one, &first, "a").await;
    let output = tokio::time::timeout(secs(31), answer(&other, &second, "b")).await.unwrap();
    assert!(output["saw"].as_str().unwrap().starts_with("user: 1; assistant: "), "{output}");
    one.shutdown().await;
    other.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_leaves_its_messages_marked_as_failed() {
    let board = builder()
        .agent("host", |turn: Turn| async move {
            match turn.task().body.as_ref() {
                "break" => Err(TurnError::terminal("the service is down")),
                _ => Ok(Command::output(seen(&turn)?)),
            }
        })
        .start()
        .await
        .unwrap();
    finish(&board, talk("break")).await;
    let output = finish(&board, talk("go on")).await.output;
    assert_eq!(output, "user: break; assistant: [There is no answer: the run failed.]");
    let runs = board.conversations().read(&id("ann")).await.unwrap();
    assert!(runs[0].failure.as_ref().unwrap().contains("the service is down"), "{runs:?}");
    assert_eq!((runs[0].messages.len(), &runs[1].failure), (1, &None));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_retried_run_leaves_its_answer_after_what_is_there() {
    let down = crate::common::Counter::default();
    let board = builder()
        .agent("host", move |turn: Turn| {
            let down = down.clone();
            async move {
                if turn.task().body.as_ref() == "break" && down.count() == 0 {
                    return Err(TurnError::terminal("the service is down"));
                }
                Ok(Command::output(turn.conversation()?.len()))
            }
        })
        .start()
        .await
        .unwrap();
    finish(&board, talk("hello")).await;
    finish(&board, talk("break")).await;
    let letter = board.dead_letters().list().await.unwrap().remove(0);
    let retry = board.dead_letters().retry(letter.turn).await.unwrap();
    assert_eq!(retry.result().await.unwrap().output, 2, "what the failed run had read");
    quiet().await;
    let (said, failed) = stored(&board, &id("ann")).await;
    assert_eq!((&said[2][..], said.len(), failed), ("user: break; assistant: 2", 3, 1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_can_be_cancelled_and_its_deadline_holds() {
    let board = asking(builder()).start().await.unwrap();
    let first = board.submit(talk("1")).await.unwrap();
    let cancelled = board.submit(talk("2")).await.unwrap();
    let late = board.submit(talk("3").deadline(secs(60))).await.unwrap();
    let last = board.submit(talk("4")).await.unwrap();
    assert!(cancelled.cancel("not needed").await.unwrap());
    assert!(matches!(cancelled.result().await.unwrap().outcome, Outcome::Cancelled { .. }));
    assert!(!late.result().await.unwrap().outcome.is_finished());
    quiet().await;
    assert!(people::questions(&last).await.is_empty(), "the first one is still there");
    answer(&board, &first, "a").await;
    let output = answer(&board, &last, "b").await;
    assert_eq!(output["saw"].as_str().unwrap().matches("There is no answer").count(), 2, "{output}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_conversation_removes_its_messages_and_is_refused_while_a_run_is_open() {
    let board = asking(builder()).start().await.unwrap();
    let conversations = board.conversations();
    assert!(!conversations.delete(&id("ann")).await.unwrap(), "there is none");
    let run = board.submit(talk("1")).await.unwrap();
    let refused = conversations.delete(&id("ann")).await.unwrap_err();
    assert_eq!(refused, ConversationError::RunIsOpen { conversation: id("ann"), run: run.id() });
    answer(&board, &run, "a").await;
    quiet().await;
    assert!(conversations.delete(&id("ann")).await.unwrap());
    assert!(conversations.read(&id("ann")).await.unwrap().is_empty());
    let again = board.submit(talk("2")).await.unwrap();
    assert_eq!(answer(&board, &again, "b").await["saw"], "");
    let before = run.history().await.unwrap();
    assert!(!before.is_empty(), "the run itself stays");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_kept_for_its_retention_after_its_last_run() {
    const DAY: u64 = 24 * 3_600;
    for (days, builder) in
        [(3, builder().retention(|retention| retention.conversations(secs(3 * DAY)))), (90, builder())]
    {
        let board = counting(builder).start().await.unwrap();
        let all_but_one = secs((days - 1) * DAY);
        finish(&board, talk("1")).await;
        tokio::time::advance(all_but_one).await;
        assert_eq!(finish(&board, talk("2")).await.output, 2);
        tokio::time::advance(all_but_one).await;
        tokio::time::sleep(secs(120)).await;
        assert_eq!(stored(&board, &id("ann")).await.0.len(), 2, "the last run was {} days ago", days - 1);
        tokio::time::advance(secs(DAY)).await;
        tokio::time::sleep(secs(120)).await;
        assert_eq!(finish(&board, talk("3")).await.output, 0, "kept for {days} days");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_conversation_is_a_copy_up_to_a_run() {
    let board = counting(builder()).start().await.unwrap();
    let first = board.submit(talk("1")).await.unwrap();
    finish(&board, talk("2")).await;
    let conversations = board.conversations();
    conversations.fork(&id("ann"), first.id(), &id("copy")).await.unwrap();
    assert_eq!(finish(&board, Task::new("2'").conversation(&id("copy"))).await.output, 2);
    assert_eq!(finish(&board, talk("3")).await.output, 4, "the old one goes on as it was");
    let exists = conversations.fork(&id("ann"), first.id(), &id("copy")).await.unwrap_err();
    assert_eq!(exists, ConversationError::Exists(id("copy")));
    let unknown = conversations.fork(&id("bob"), first.id(), &id("carl")).await.unwrap_err();
    assert_eq!(unknown, ConversationError::Unknown(id("bob")));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_run_sees_what_the_run_had_read_and_leaves_no_messages() {
    let board = counting(builder()).start().await.unwrap();
    finish(&board, talk("1")).await;
    let run = board.submit(talk("2")).await.unwrap();
    run.result().await.unwrap();
    finish(&board, talk("3")).await;
    let fork = board.fork(run.id(), 1, Fork::new()).await.unwrap();
    assert_eq!(fork.result().await.unwrap().output, 2);
    quiet().await;
    assert_eq!(stored(&board, &id("ann")).await.0.len(), 3);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_stays_in_the_conversation_leaves_its_messages_last() {
    let board = counting(builder()).start().await.unwrap();
    finish(&board, talk("1")).await;
    let run = board.submit(talk("2")).await.unwrap();
    run.result().await.unwrap();
    finish(&board, talk("3")).await;
    let fork = board.fork(run.id(), 1, Fork::new().in_conversation()).await.unwrap();
    assert_eq!(fork.result().await.unwrap().output, 2, "it sees what the run had read");
    quiet().await;
    let left = board.conversations().read(&id("ann")).await.unwrap();
    assert_eq!((left.len(), left[3].run), (4, fork.id()));
    assert_eq!(lines(&left[3].messages), "user: 2; assistant: 2");
    assert_eq!(finish(&board, talk("4")).await.output, 8);
    // A run outside of any conversation has none to stay in.
    let alone = board.submit(Task::new("x")).await.unwrap();
    alone.result().await.unwrap();
    let fork = board.fork(alone.id(), 1, Fork::new().in_conversation()).await.unwrap();
    assert_eq!(fork.result().await.unwrap().output, 0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_belongs_to_one_agent_or_workflow() {
    let board =
        counting(builder()).agent("other", |_: Turn| async { Ok(Command::output("other")) }).start().await.unwrap();
    finish(&board, talk("1").to("host")).await;
    let refused = board.submit(talk("2").to("other")).await.unwrap_err();
    assert!(matches!(&refused, SubmitError::OtherConversation { .. }), "{refused}");
    assert!(
        refused.to_string().starts_with("conversation ann belongs to host, and the task is for other"),
        "{refused}"
    );
    let workflow = Workflow::from_line("greet", "host -> other").unwrap();
    let task = || workflow.task(json!("hello")).conversation(&id("greetings"));
    finish(&board, task()).await;
    finish(&board, task()).await;
    let runs = board.conversations().list().await.unwrap();
    assert_eq!(runs.iter().map(|info| &*info.owner).collect::<Vec<_>>(), ["host", "workflow workflow"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_from_untrusted_input_taints_the_runs_that_read_it() {
    let board = counting(builder()).start().await.unwrap();
    finish(&board, talk("1").untrusted()).await;
    assert!(finish(&board, talk("2")).await.is_tainted);
    assert!(!finish(&board, Task::new("3").conversation(&id("bob"))).await.is_tainted);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_submitted_again_under_its_id_has_one_place() {
    let board = counting(builder()).start().await.unwrap();
    let task = talk("1").id(RunId(uuid::Uuid::from_u128(7)));
    finish(&board, task.clone()).await;
    board.submit(task.clone()).await.unwrap();
    assert_eq!(stored(&board, &id("ann")).await.0.len(), 1);
    board.conversations().delete(&id("ann")).await.unwrap();
    board.submit(task).await.unwrap();
    quiet().await;
    assert!(stored(&board, &id("ann")).await.0.is_empty(), "the run had ended before");
    board.shutdown().await;
}

#[test]
fn a_crash_anywhere_loses_no_message_and_doubles_none() {
    Seeds::new(200).simulate(async |sim: Sim| {
        let start = || counting(sim.board()).start();
        let point = ["storage.append", "storage.put", "storage.delete"][sim.below(3) as usize];
        sim.faults().at(point).crash().on_pass(1 + sim.below(14));
        let mut acknowledged = Vec::new();
        let crashed = sim
            .until_crash(async {
                let board = start().await?;
                for body in ["1", "2", "3"] {
                    acknowledged.push(board.submit(talk(body)).await?.id());
                }
                for run in &acknowledged {
                    board.run(*run).result().await?;
                }
                Ok::<_, callboard::Error>(())
            })
            .await;
        if let Some(done) = crashed {
            return Ok(done?);
        }
        let board = start().await?;
        board.recovered().await;
        let last = board.submit(talk("4")).await?;
        let count = last.result().await?.output;
        for run in board.runs().await? {
            run.result().await?;
        }
        let runs = board.conversations().read(&id("ann")).await?;
        // One that was journaled and not acknowledged may come after it.
        let place = runs.iter().position(|run| run.run == last.id());
        assert_eq!(Some(count), place.map(|place| Json::from(2 * place)), "one task and one answer of each: {runs:?}");
        for (before, run) in runs.iter().enumerate() {
            assert_eq!(lines(&run.messages[1..]), format!("assistant: {}", 2 * before), "{runs:?}");
        }
        let places: Vec<_> = runs.iter().map(|run| run.run).filter(|run| acknowledged.contains(run)).collect();
        assert_eq!(places, acknowledged, "acknowledged runs are there in their order");
        sim.assert_nothing_left().await;
        Ok(())
    });
}

/// A board, and the last of three runs in a conversation on it.
async fn three_runs(sim: &Sim) -> Result<(Callboard, RunId), callboard::Error> {
    let board = counting(sim.board()).start().await?;
    let mut last = None;
    for body in ["1", "2", "3"] {
        let run = board.submit(talk(body)).await?;
        run.result().await?;
        last = Some(run.id());
    }
    Ok((board, last.unwrap()))
}

/// The values that a store has of a conversation.
async fn values_of(storage: &dyn Storage, conversation: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    for kind in ["conversation", "conversation-messages"] {
        let values = storage.scan(&Key::new([kind, conversation]).children(), None, 100).await.unwrap();
        keys.extend(values.into_iter().map(|(key, _)| key));
    }
    keys
}

#[test]
fn a_copy_is_whole_or_not_there_wherever_a_crash_comes() {
    Seeds::new(100).simulate(async |sim: Sim| {
        let (board, last) = three_runs(&sim).await?;
        let conversations = board.conversations();
        tokio::time::sleep(secs(1)).await;
        sim.faults().at("storage.put").crash().on_pass(1 + sim.below(6)).at_rest();
        let crashed = sim.until_crash(conversations.fork(&id("ann"), last, &id("copy"))).await;
        sim.faults().forget();
        let board = match crashed {
            Some(copied) => {
                copied?;
                board
            }
            None => counting(sim.board()).start().await?,
        };
        let conversations = board.conversations();
        let runs = async |conversation| Ok::<_, callboard::Error>(conversations.read(&id(conversation)).await?);
        let listed: Vec<_> = conversations.list().await?.into_iter().map(|info| (info.id, info.runs)).collect();
        if runs("copy").await?.is_empty() {
            assert_eq!(listed, [(id("ann"), 3)]);
            if sim.below(2) == 0 {
                conversations.fork(&id("ann"), last, &id("copy")).await?;
            } else {
                // The id is free.
                assert_eq!(finish(&board, Task::new("1").conversation(&id("copy"))).await.output, 0);
                assert_eq!(finish(&board, Task::new("2").conversation(&id("copy"))).await.output, 2);
                assert_eq!(runs("copy").await?.len(), 2);
                assert_eq!(values_of(&*sim.storage(), "copy").await.len(), 4, "nothing of the copy is left");
                return Ok(());
            }
        }
        assert_eq!(runs("copy").await?, runs("ann").await?);
        assert_eq!(finish(&board, Task::new("4").conversation(&id("copy"))).await.output, 6);
        Ok(())
    });
}

#[test]
fn a_deletion_is_whole_or_has_not_begun_wherever_a_crash_comes() {
    Seeds::new(100).simulate(async |sim: Sim| {
        let (board, last) = three_runs(&sim).await?;
        let conversations = board.conversations();
        conversations.fork(&id("ann"), last, &id("copy")).await?;
        finish(&board, Task::new("4").conversation(&id("copy"))).await;
        let conversation = ["ann", "copy"][sim.below(2) as usize];
        let before = conversations.read(&id(conversation)).await?;
        let point = ["storage.put", "storage.delete"][sim.below(2) as usize];
        tokio::time::sleep(secs(1)).await;
        sim.faults().at(point).crash().on_pass(1 + sim.below(7)).at_rest();
        let crashed = sim.until_crash(conversations.delete(&id(conversation))).await;
        sim.faults().forget();
        let board = match crashed {
            Some(deleted) => {
                assert!(deleted?);
                board
            }
            None => counting(sim.board()).start().await?,
        };
        let conversations = board.conversations();
        let after = conversations.read(&id(conversation)).await?;
        assert!(after.is_empty() || after == before, "{after:?}");
        let storage = sim.storage();
        let has_rest = !values_of(&*storage, conversation).await.is_empty();
        if !after.is_empty() || sim.below(2) == 0 {
            assert_eq!(conversations.delete(&id(conversation)).await?, has_rest);
        } else {
            tokio::time::sleep(secs(200)).await; // What is left is swept.
        }
        assert_eq!(values_of(&*storage, conversation).await, []);
        assert_eq!(conversations.list().await?.len(), 1, "the other one is there");
        Ok(())
    });
}

#[test]
fn copies_deletions_and_runs_at_once_leave_every_conversation_whole() {
    Seeds::new(100).simulate(async |sim: Sim| {
        let (board, last) = three_runs(&sim).await?;
        let conversations = board.conversations();
        let (ann, copy) = (id("ann"), id("copy"));
        let fork = async || conversations.fork(&ann, last, &copy).await.map(|()| 6);
        let submit = async |to: &ConversationId| {
            let run = board.submit(Task::new("4").conversation(to)).await.unwrap();
            Ok(run.result().await.unwrap().output.as_u64().unwrap())
        };
        let first = async {
            tokio::time::sleep(std::time::Duration::from_millis(sim.below(40))).await;
            fork().await
        };
        let with = sim.below(4);
        let second = async {
            tokio::time::sleep(std::time::Duration::from_millis(sim.below(40))).await;
            match with {
                0 => fork().await,
                1 => submit(&copy).await,
                2 => conversations.delete(&ann).await.map(u64::from),
                _ => conversations.delete(&copy).await.map(u64::from),
            }
        };
        let (forked, other) = tokio::join!(first, second);
        tokio::time::sleep(secs(1)).await;
        let runs = conversations.read(&copy).await?;
        let numbers: Vec<_> = runs.iter().map(|run| lines(&run.messages)).collect();
        let says = |number: u64| format!("user: {}; assistant: {}", number / 2 + 1, number);
        match (&forked, with) {
            (Ok(_), 3) if runs.is_empty() => assert_eq!(other, Ok(1)),
            (Ok(_), _) => {
                assert_eq!(numbers[..3], [says(0), says(2), says(4)], "{other:?}");
                if with == 1 {
                    assert_eq!((numbers.len(), &other), (4, &Ok(6)));
                }
            }
            (Err(ConversationError::Exists(_)), 0) => assert_eq!((numbers.len(), other), (3, Ok(6))),
            (Err(ConversationError::Exists(_)), 1) => assert_eq!((numbers.len(), other), (1, Ok(0))),
            (Err(ConversationError::Unknown(_)), 2) => assert_eq!((numbers.len(), other), (0, Ok(1))),
            (Err(ConversationError::Exists(_)), 3) => assert_eq!((numbers.len(), other), (0, Ok(1))),
            unexpected => panic!("{unexpected:?}: {numbers:?}"),
        }
        for conversation in ["ann", "copy"] {
            let values = values_of(&*sim.storage(), conversation).await;
            let (tickets, messages) = values.iter().partition::<Vec<_>, _>(|key| key.segments()[0] == "conversation");
            let runs = conversations.read(&id(conversation)).await?;
            assert_eq!(messages.len(), runs.len(), "{tickets:?} {messages:?}");
        }
        Ok(())
    });
}

#[test]
fn a_run_that_enters_while_its_conversation_is_deleted_has_a_place_or_comes_after() {
    Seeds::new(100).simulate(async |sim: Sim| {
        let board = counting(sim.board()).start().await?;
        finish(&board, talk("1")).await;
        tokio::time::sleep(secs(1)).await;
        let conversations = board.conversations();
        let ann = id("ann");
        let wait = |sim: &Sim| tokio::time::sleep(std::time::Duration::from_millis(sim.below(20)));
        let delete = async {
            wait(&sim).await;
            conversations.delete(&ann).await
        };
        let submit = async {
            wait(&sim).await;
            finish(&board, talk("2")).await.output
        };
        let (deleted, output) = tokio::join!(delete, submit);
        tokio::time::sleep(secs(1)).await;
        let runs = conversations.read(&ann).await?;
        let is_read = output == 2;
        match deleted {
            // What it leaves after a deletion that it has not noticed is a conversation of its own.
            Ok(deleted) => assert!(deleted && runs.len() <= 1 && (is_read || runs.len() == 1), "{runs:?}"),
            Err(ConversationError::RunIsOpen { .. }) => assert_eq!((runs.len(), is_read), (2, true)),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(finish(&board, talk("3")).await.output, 2 * runs.len());
        Ok(())
    });
}

#[tokio::test(start_paused = true)]
async fn a_copy_past_a_run_that_has_not_ended_is_refused() {
    let board = asking(builder()).start().await.unwrap();
    let open = board.submit(talk("1")).await.unwrap();
    let later = board.submit(talk("2")).await.unwrap();
    later.cancel("not needed").await.unwrap();
    later.result().await.unwrap();
    quiet().await;
    let conversations = board.conversations();
    let refused = conversations.fork(&id("ann"), later.id(), &id("copy")).await.unwrap_err();
    assert_eq!(refused, ConversationError::RunIsOpen { conversation: id("ann"), run: open.id() });
    answer(&board, &open, "a").await;
    quiet().await;
    conversations.fork(&id("ann"), later.id(), &id("copy")).await.unwrap();
    assert_eq!(stored(&board, &id("copy")).await.0.len(), 2);
    board.shutdown().await;
}
