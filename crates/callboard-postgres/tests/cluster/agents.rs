//! What the agents do, by the first word of their input, and what they record of it. The second word is the run that was submitted, and
//! the third the part of it: a turn that another board takes is a run of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use callboard::actors::ContextError;
use callboard::messages::ContextEntry;
use callboard::prelude::{AgentSpec, Command as Then, Json, Turn, TurnError};

use super::record::Recorder;

/// The kinds of runs, and the agent that each is submitted to.
pub(crate) const KINDS: [(&str, &str); 10] = [
    ("effect", "worker"),
    ("steps", "worker"),
    ("context", "asker"),
    ("delegate", "lead"),
    ("hand", "lead"),
    ("effect", "worker"),
    ("context", "worker"),
    ("fan", "lead"),
    ("ask", "asker"),
    ("context", "lead"),
];

pub(crate) const STEPS: usize = 3;
pub(crate) const NAMESPACE: &str = "shared";
pub(crate) const KEYS: u64 = 3;
/// How often a turn of the kind `context` reads and writes.
const ROUNDS: usize = 3;

/// How long a step or an effect takes, so that faults meet them.
const WORK: Duration = Duration::from_millis(15);

/// The agents that a board hosts.
pub(crate) fn of_board(name: &str) -> &'static [&'static str] {
    match name {
        "a" => &["lead", "asker"],
        "b" => &["lead", "worker"],
        "c" => &["worker", "asker"],
        other => panic!("there is no board {other}"),
    }
}

pub(crate) fn agent(name: &str, recorder: &Recorder) -> AgentSpec {
    let recorder = recorder.clone();
    let spec = AgentSpec::new(name, move |turn: Turn| {
        let recorder = recorder.clone();
        async move { work(turn, recorder).await }
    });
    spec.concurrency(100).namespaces([NAMESPACE])
}

async fn work(turn: Turn, recorder: Recorder) -> Result<Then, TurnError> {
    let input: String = turn.input()?;
    let [kind, run, part] = input.split(' ').collect::<Vec<_>>()[..] else {
        return Err(TurnError::terminal(format!("the input {input:?} has no three words")));
    };
    let done = match kind {
        "steps" => steps(&turn, &recorder, run, part).await?,
        "effect" => effect(&turn, &recorder, run).await?,
        "ask" => turn.people().ask(format!("continue {run}")).await?.to_string(),
        "context" => context(&turn, &recorder).await?,
        "delegate" => {
            let asked = turn.delegate("worker", "steps").input(format!("steps {run} delegated"));
            asked.await?.to_string()
        }
        "hand" => {
            steps(&turn, &recorder, run, part).await?;
            return Ok(Then::output(format!("steps {run} handed")).goto("worker"));
        }
        "fan" => {
            let to = [("worker", format!("steps {run} first")), ("asker", format!("steps {run} second"))];
            return Ok(Then::new().goto_many(to));
        }
        other => return Err(TurnError::terminal(format!("nobody does {other:?}"))),
    };
    // A turn that ended twice would have two outputs.
    Ok(Then::output(format!("{part} {} {done}", recorder.number())))
}

/// Each step records what the earlier ones returned: that is the same in all attempts.
async fn steps(turn: &Turn, recorder: &Recorder, run: &str, part: &str) -> Result<String, TurnError> {
    let mut returned: Vec<String> = Vec::new();
    for step in 0..STEPS {
        let earlier = returned.join(",");
        let work = async {
            let token = recorder.number();
            recorder.write(format_args!("step {} {run} {part} {step} {token} {earlier}", recorder.who()));
            tokio::time::sleep(WORK).await;
            Ok::<_, TurnError>(token)
        };
        returned.push(turn.step(&format!("step {step}"), work).await?.to_string());
    }
    Ok(returned.join(","))
}

async fn effect(turn: &Turn, recorder: &Recorder, run: &str) -> Result<String, TurnError> {
    let work = async {
        recorder.write(format_args!("effect {} {run}", recorder.who()));
        // It takes its time to answer: here most faults meet it.
        tokio::time::sleep(WORK * 4).await;
        Ok::<_, TurnError>("done".to_owned())
    };
    turn.effect("charge").target(run).run(work).await
}

/// Reads a shared value and writes it if it is as it was read, or in any case.
async fn context(turn: &Turn, recorder: &Recorder) -> Result<String, TurnError> {
    let context = turn.context();
    let mut written = 0;
    for _ in 0..ROUNDS {
        let (read, write) = (recorder.number(), recorder.number());
        let (who, key) = (recorder.who(), key(read / 2));
        recorder.write(format_args!("invoked {read} {who} {key} read"));
        let there = context.get(NAMESPACE, &key).await?;
        recorder.write(format_args!("answered {read} {key} read {}", shown(there.as_ref())));
        // A board that is stopped here writes when it continues, unless it is refused; and a write in any case is not refused because
        // the value has changed meanwhile.
        tokio::time::sleep(WORK * 2).await;
        let answer = if write % 4 < 2 {
            recorder.write(format_args!("invoked {write} {who} {key} set"));
            context.set(NAMESPACE, &key, &write.to_string(), None).await
        } else {
            recorder.write(format_args!("invoked {write} {who} {key} compare {}", shown(there.as_ref())));
            let revision = there.map(|entry| entry.revision);
            context.compare_and_set(NAMESPACE, &key, revision, &write.to_string(), None).await
        };
        match answer {
            Ok(_) => {
                written += 1;
                recorder.write(format_args!("answered {write} {key} written"));
            }
            Err(ContextError::Changed { .. }) => recorder.write(format_args!("answered {write} {key} changed")),
            // It may have been written or not.
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written.to_string())
}

/// One of the shared keys.
pub(crate) fn key(number: u64) -> String {
    format!("key-{}", number % KEYS)
}

fn shown(entry: Option<&ContextEntry>) -> &str {
    entry.map_or("-", |entry| &entry.value)
}

/// What a person answers who reads the record: whether an effect was done that nobody has the result of.
pub(crate) fn answer(question: &str, record: &str) -> Json {
    match question.strip_prefix("continue ") {
        Some(run) => format!("yes {run}").into(),
        None => {
            let mut effects = record.lines().filter_map(|line| line.strip_prefix("effect ")?.split_once(' '));
            let was_seen = effects.any(|(_, run)| question.contains(run));
            Json::of(BTreeMap::from([("done", if was_seen { "seen" } else { "unseen" })])).unwrap()
        }
    }
}
