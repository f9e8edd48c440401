//! Agents that do what a test wrote down for them.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::actors::{AgentSpec, IntoAgent, Turn, TurnError};
use crate::messages::{Action, AgentName, Command, Json, MAX_JSON_DEPTH, TurnId, Usage};

use super::gate::Gate;
use super::log::Log;

/// An agent that does what is written down for each of its turns, and remembers them. It goes wherever an agent goes:
/// `board.agent("coder", script)`, `AgentSpec::new("coder", script)`.
///
/// [`Script::on_turn`] and [`Script::otherwise`] choose the turns that what follows is for; before the first of them it is
/// for all turns. The acts of a turn are performed in order, and the turn returns their joined command. Turns are
/// counted as they begin, for each agent over all runs: all attempts of a turn, and its replay after a restart, are the
/// same turn. A clone is the same script with the same count, so a clone in every life of a simulated node continues
/// where the last one was; add acts before cloning, not after. A turn that a fault plan strikes down before its agent
/// sees it does not count.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::testing::Script;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), callboard::Error> {
/// let coder = Script::new().spend(1_200).update("note", "patched").hand_off("reviewer");
/// let reviewer = Script::new().on_turn(1).panic("my glasses!").once().reply("fine").otherwise().fail_for_good("no");
/// let board = Callboard::builder().agent("coder", coder.clone()).agent("reviewer", reviewer.clone()).start().await?;
///
/// let run = board.submit(Task::new("fix the bug").to("coder")).await?;
/// assert_eq!(run.result().await?.output, "fine");
/// assert_eq!(reviewer.turns()[0].attempts, 2);
/// assert_eq!(coder.turns()[0].input, "fix the bug");
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a script does nothing until a board has it as an agent"]
pub struct Script {
    turns: BTreeMap<u32, Vec<Line>>,
    otherwise: Option<Vec<Line>>,
    /// What the next act is for; none is for all other turns.
    writing: Option<u32>,
    begun: Arc<Log<Begun>>,
}

/// A turn that a scripted agent has begun, returned by [`Script::turns`] and [`Script::expect_turns`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScriptedTurn {
    /// The agent that took the turn.
    pub agent: AgentName,
    /// The position of the turn among the agent's turns over all runs, from 1, as [`Script::on_turn`] counts them.
    pub number: u32,
    /// The id of the turn: its run, and its number in that run.
    pub id: TurnId,
    /// The input of the turn.
    pub input: Json,
    /// How often the turn was begun: once for each attempt, and once for each replay after a restart.
    pub attempts: u32,
    /// What its latest attempt was answered, in order: delegations, questions, and the results of steps.
    pub answers: Vec<Json>,
}

struct Begun {
    turn: ScriptedTurn,
    /// How often each of its acts was reached.
    passes: Vec<u32>,
}

#[derive(Clone)]
struct Line {
    act: Act,
    /// How many times it is performed in one turn; by default always.
    times: Option<u32>,
}

#[derive(Clone)]
enum Act {
    Reply(Json),
    ReplyWithAnswers,
    Update { channel: Arc<str>, value: Json },
    HandOff(Arc<str>),
    SendToMany(Vec<crate::messages::SendTo>),
    End,
    Delegate { to: Arc<str>, body: Arc<str> },
    Ask(Json),
    Approve(Action),
    Step { name: Arc<str>, result: Json },
    Spend(u64),
    Wait(Duration),
    Fail(Arc<str>),
    FailForGood(Arc<str>),
    Panic(Arc<str>),
    Hang,
    Block(Gate),
    ReturnMalformed,
}

impl Act {
    /// Values that a turn has consumed.
    fn only_once(&self) -> Option<&'static str> {
        match self {
            Self::Reply(_) | Self::ReplyWithAnswers => Some("an output"),
            Self::HandOff(_) | Self::SendToMany(_) | Self::End => Some("where control goes"),
            Self::Update { .. }
            | Self::Delegate { .. }
            | Self::Ask(_)
            | Self::Approve(_)
            | Self::Step { .. }
            | Self::Spend(_)
            | Self::Wait(_)
            | Self::Fail(_)
            | Self::FailForGood(_)
            | Self::Panic(_)
            | Self::Hang
            | Self::Block(_)
            | Self::ReturnMalformed => None,
        }
    }
}

impl Script {
    /// Creates an empty script: a turn that the script has no acts for fails for good.
    pub fn new() -> Self {
        Self::default()
    }

    /// What follows is for the agent's turn of this number, from 1.
    ///
    /// # Panics
    /// When the number is 0.
    #[track_caller]
    pub fn on_turn(mut self, number: u32) -> Self {
        assert!(number > 0, "turns are counted from 1");
        self.turns.entry(number).or_default();
        self.writing = Some(number);
        self
    }

    /// What follows is for all turns that have no acts of their own.
    pub fn otherwise(mut self) -> Self {
        self.otherwise.get_or_insert_default();
        self.writing = None;
        self
    }

    /// The last act is performed the first time that a turn reaches it, and left out in later attempts.
    ///
    /// # Panics
    /// When there is no last act, or its number of times is set already.
    #[track_caller]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// The last act is performed the first few times that a turn reaches it, and left out in later attempts.
    ///
    /// # Panics
    /// When there is no last act, or its number of times is set already.
    #[track_caller]
    pub fn times(mut self, times: u32) -> Self {
        let last = self.lines().last_mut().expect("an act comes before how often it is performed");
        assert!(last.times.is_none(), "the number of times of the last act is set already");
        last.times = Some(times);
        self
    }

    /// The turn's output.
    ///
    /// # Panics
    /// When the turn has an output.
    #[track_caller]
    pub fn reply(self, output: impl Into<Json>) -> Self {
        self.act(Act::Reply(output.into()))
    }

    /// The turn's output is what it was answered so far (delegations, questions, results of steps): an array, or the
    /// answer itself if there is one.
    ///
    /// # Panics
    /// When the turn has an output.
    #[track_caller]
    pub fn reply_with_answers(self) -> Self {
        self.act(Act::ReplyWithAnswers)
    }

    /// Writes to a channel of the run's state, through its reducer.
    pub fn update(self, channel: &str, value: impl Into<Json>) -> Self {
        self.act(Act::Update { channel: channel.into(), value: value.into() })
    }

    /// Hands control to an agent.
    ///
    /// # Panics
    /// When the turn hands control on, or ends the run, as it is.
    #[track_caller]
    pub fn hand_off(self, agent: &str) -> Self {
        self.act(Act::HandOff(agent.into()))
    }

    /// Hands control to several agents at once, each with its input.
    ///
    /// # Panics
    /// As [`Script::hand_off`].
    #[track_caller]
    pub fn send_to_many<'a, T: Into<Json>>(self, sends: impl IntoIterator<Item = (&'a str, T)>) -> Self {
        let sends = sends.into_iter().map(|(to, input)| crate::messages::SendTo::new(to, input)).collect();
        self.act(Act::SendToMany(sends))
    }

    /// Ends the run, or the delegation, with its other branches.
    ///
    /// # Panics
    /// As [`Script::hand_off`].
    #[track_caller]
    pub fn end(self) -> Self {
        self.act(Act::End)
    }

    /// Delegates to an agent and waits for the answer, which is kept in [`ScriptedTurn::answers`]. A refusal, or an
    /// answer that does not come, fails the attempt as `?` does.
    pub fn delegate(self, to: &str, body: &str) -> Self {
        self.act(Act::Delegate { to: to.into(), body: body.into() })
    }

    /// Asks people and waits for the answer, which is kept in [`ScriptedTurn::answers`].
    pub fn ask(self, question: impl Into<Json>) -> Self {
        self.act(Act::Ask(question.into()))
    }

    /// Asks for consent to an action and waits for it. A denial fails the attempt as `?` does.
    pub fn approve(self, action: Action) -> Self {
        self.act(Act::Approve(action))
    }

    /// Runs a step of this name with this result, which is kept in [`ScriptedTurn::answers`]. An error of the step
    /// fails the attempt as `?` does.
    pub fn step(self, name: &str, result: impl Into<Json>) -> Self {
        self.act(Act::Step { name: name.into(), result: result.into() })
    }

    /// Reserves that many tokens and settles them as read by a model. A refusal fails the attempt as `?` does.
    pub fn spend(self, tokens: u64) -> Self {
        self.act(Act::Spend(tokens))
    }

    /// Lets time pass, virtual time where it is.
    pub fn wait(self, time: Duration) -> Self {
        self.act(Act::Wait(time))
    }

    /// Fails the attempt with an error that may pass.
    pub fn fail(self, text: &str) -> Self {
        self.act(Act::Fail(text.into()))
    }

    /// Fails the turn with an error that will not pass.
    pub fn fail_for_good(self, text: &str) -> Self {
        self.act(Act::FailForGood(text.into()))
    }

    /// Panics: the attempt fails, and the agent is rebuilt. The panic hook is not called.
    pub fn panic(self, text: &str) -> Self {
        self.act(Act::Panic(text.into()))
    }

    /// Never continues by itself, until it is stopped: by its agent's timeout, or because the turn was cancelled.
    pub fn hang(self) -> Self {
        self.act(Act::Hang)
    }

    /// Blocks the thread until the test opens the gate. That takes a thread that is not the test's: a multi-threaded
    /// runtime, or an agent with [`AgentSpec::blocking`](crate::AgentSpec::blocking). On the test's own, as in every
    /// simulation, it panics; so it does after 30 s of real time at the gate.
    pub fn block(self, gate: &Gate) -> Self {
        self.act(Act::Block(gate.clone()))
    }

    /// The turn returns a command that its run cannot apply, whatever its schema: a write that is nested too deeply to
    /// be stored.
    pub fn return_malformed(self) -> Self {
        self.act(Act::ReturnMalformed)
    }

    /// The turns that were begun, in order, of all agents that play this script.
    #[must_use]
    pub fn turns(&self) -> Vec<ScriptedTurn> {
        self.begun.read(|begun| begun.iter().map(|begun| begun.turn.clone()).collect())
    }

    /// Waits until this many turns have been begun, and returns the last of them.
    ///
    /// # Panics
    /// When they have not been begun in time.
    #[track_caller]
    pub fn expect_turns(&self, count: usize, within: Duration) -> impl Future<Output = ScriptedTurn> + Send {
        let (caller, begun) = (Location::caller(), Arc::clone(&self.begun));
        async move {
            let last = |begun: &mut Vec<Begun>| Some(begun.get(count.checked_sub(1)?)?.turn.clone());
            let turn = begun.wait(within, last).await;
            turn.unwrap_or_else(|| {
                panic!("{caller}: expected {count} turns within {within:?}; {} were begun", begun.read(<[Begun]>::len))
            })
        }
    }

    #[track_caller]
    fn act(mut self, act: Act) -> Self {
        if let Some(what) = act.only_once() {
            let has_it = self.lines().iter().any(|line| line.act.only_once() == Some(what));
            assert!(!has_it, "{what} twice in one turn: the last would count alone");
        }
        self.lines().push(Line { act, times: None });
        self
    }

    fn lines(&mut self) -> &mut Vec<Line> {
        match self.writing {
            Some(number) => self.turns.entry(number).or_default(),
            None => self.otherwise.get_or_insert_default(),
        }
    }

    async fn play(self: Arc<Self>, turn: Turn) -> Result<Command, TurnError> {
        let (position, number) = self.begin(&turn);
        let Some(lines) = self.turns.get(&number).or(self.otherwise.as_ref()) else {
            return Err(TurnError::terminal(self.no_such_turn(turn.agent(), number)));
        };
        let mut command = Command::new();
        for (index, line) in lines.iter().enumerate() {
            if self.is_due(position, index, line.times) {
                command = self.perform(&line.act, &turn, position, command).await?;
            }
        }
        Ok(command)
    }

    /// Enters a turn, and returns its position in the log and its number. Another attempt of a turn starts from the beginning.
    fn begin(&self, turn: &Turn) -> (usize, u32) {
        let (id, agent) = (turn.id(), turn.agent());
        self.begun.change(|begun| {
            let known = begun.iter().position(|begun| begun.turn.id == id && begun.turn.agent == *agent);
            let position = known.unwrap_or_else(|| {
                let number = 1 + begun.iter().filter(|begun| begun.turn.agent == *agent).count() as u32;
                let (agent, input) = (agent.clone(), turn.input_json().clone());
                let turn = ScriptedTurn { agent, number, id, input, attempts: 0, answers: Vec::new() };
                begun.push(Begun { turn, passes: Vec::new() });
                begun.len() - 1
            });
            let turn = &mut begun[position].turn;
            turn.attempts += 1;
            turn.answers.clear();
            (position, turn.number)
        })
    }

    /// Counts that a turn has reached one of its acts.
    fn is_due(&self, position: usize, index: usize, times: Option<u32>) -> bool {
        self.begun.change(|begun| {
            let passes = &mut begun[position].passes;
            passes.resize(passes.len().max(index + 1), 0);
            passes[index] += 1;
            times.is_none_or(|times| passes[index] <= times)
        })
    }

    async fn perform(&self, act: &Act, turn: &Turn, position: usize, command: Command) -> Result<Command, TurnError> {
        let answered = |answer: Json| self.begun.change(|begun| begun[position].turn.answers.push(answer));
        match act {
            Act::Reply(output) => return Ok(command.with_output(output.clone())),
            Act::ReplyWithAnswers => {
                let mut answers = self.begun.read(|begun| begun[position].turn.answers.clone());
                let output = if answers.len() == 1 { answers.remove(0) } else { answers.into_iter().collect() };
                return Ok(command.with_output(output));
            }
            Act::Update { channel, value } => return Ok(command.with(channel, value.clone())),
            Act::HandOff(agent) => return Ok(command.goto(agent)),
            Act::SendToMany(sends) => return Ok(command.goto_many(sends.iter().cloned())),
            Act::End => return Ok(command.end()),
            Act::ReturnMalformed => return Ok(command.with("malformed", too_deep())),
            Act::Delegate { to, body } => answered(turn.delegate(to, body).await?),
            Act::Ask(question) => answered(turn.people().ask(question.clone()).await?),
            Act::Approve(action) => drop(turn.people().approve(action.clone()).await?),
            Act::Step { name, result } => {
                answered(turn.step(name, async { Ok::<_, TurnError>(result.clone()) }).await?);
            }
            Act::Spend(tokens) => {
                let usage = Usage::of(*tokens, 0);
                turn.reserve(*tokens).await?.settle(usage).await?;
            }
            Act::Wait(time) => tokio::time::sleep(*time).await,
            Act::Fail(text) => return Err(TurnError::transient(&**text)),
            Act::FailForGood(text) => return Err(TurnError::terminal(&**text)),
            Act::Panic(text) => resume_unwind(Box::new(text.to_string())),
            Act::Hang => pending().await,
            Act::Block(gate) => {
                if let Err(error) = gate.block() {
                    let number = self.begun.read(|begun| begun[position].turn.number);
                    panic!("turn {number} of {}: {error}", turn.agent());
                }
            }
        }
        Ok(command)
    }

    fn no_such_turn(&self, agent: &AgentName, number: u32) -> String {
        let known: Vec<String> = self.turns.keys().map(u32::to_string).collect();
        let known = if known.is_empty() { "no turn".to_owned() } else { format!("turn {}", known.join(", ")) };
        format!("the script of {agent} has nothing for its turn {number}; it has {known} and no otherwise()")
    }
}

fn too_deep() -> Json {
    let nested = (0..=MAX_JSON_DEPTH).fold(serde_json::Value::Null, |inner, _| serde_json::Value::Array(vec![inner]));
    nested.into()
}

#[doc(hidden)]
#[derive(Debug)]
pub enum FromScript {}

impl IntoAgent<FromScript> for Script {
    fn into_spec(self, name: &str) -> AgentSpec {
        let script = Arc::new(self);
        (move |turn: Turn| Arc::clone(&script).play(turn)).into_spec(name)
    }
}
