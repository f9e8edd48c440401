//! What needs a person, as one kind of item: who, what for, what happens if nobody does anything, and what can be done. Pure.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use callboard::messages::{
    AgentName, Deciders, Envelope, Interrupt, OpenFailure, Pending, PendingId, RunId, Timestamp, TurnId, Vote, visible,
};
use callboard_text::shell_word;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::time;
use crate::tokens::Scope;

/// The longest text of an item, in characters: what is longer is counted, and the item by itself has all of it.
const MAX_TEXT: usize = 300;

/// What kind of thing needs a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// An action that needs consent.
    Approval,
    /// A question of an agent.
    Question,
    /// An effect of which it is not known whether it happened.
    UnknownOutcome,
    /// A node of a workflow that a person starts.
    Node,
    /// A turn that cannot continue by itself.
    Attention,
    /// An agent that has failed too often.
    FailedAgent,
    /// A file of an agent that is not used as it is.
    RefusedFile,
    /// A run that cannot be read.
    Quarantined,
    /// A run that ended because branches wrote one place concurrently.
    Conflict,
    /// A turn that failed for good.
    DeadLetter,
}

impl ItemKind {
    /// All kinds, in the order of the inbox.
    pub const ALL: [Self; 10] = [
        Self::Approval,
        Self::Question,
        Self::UnknownOutcome,
        Self::Node,
        Self::Attention,
        Self::FailedAgent,
        Self::RefusedFile,
        Self::Quarantined,
        Self::Conflict,
        Self::DeadLetter,
    ];

    /// Its name in requests and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::UnknownOutcome => "unknown_outcome",
            Self::Node => "node",
            Self::Attention => "attention",
            Self::FailedAgent => "failed_agent",
            Self::RefusedFile => "refused_file",
            Self::Quarantined => "quarantined",
            Self::Conflict => "conflict",
            Self::DeadLetter => "dead_letter",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What people call it, for one and for several.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Approval => ("approval", "approvals"),
            Self::Question => ("question", "questions"),
            Self::UnknownOutcome => ("unknown outcome", "unknown outcomes"),
            Self::Node => ("node", "nodes"),
            Self::Attention => ("turn to look at", "turns to look at"),
            Self::FailedAgent => ("failed agent", "failed agents"),
            Self::RefusedFile => ("refused file", "refused files"),
            Self::Quarantined => ("run in quarantine", "runs in quarantine"),
            Self::Conflict => ("conflict", "conflicts"),
            Self::DeadLetter => ("dead letter", "dead letters"),
        }
    }
}

/// Names an item. Its text is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemId {
    /// What a run waits for a person with; as text as [`PendingId`] has it.
    Pending(PendingId),
    /// An agent: `agent:NAME`.
    Agent(String),
    /// A file of an agent: `file:NAME`.
    File(String),
    /// A run in quarantine: `quarantine:RUN`.
    Quarantined(RunId),
    /// A conflict that ended a run: `conflict:RUN`.
    Conflict(RunId),
    /// A turn that failed for good: `letter:RUN/TURN`.
    DeadLetter(TurnId),
}

impl ItemId {
    /// Reads the text of an id; `None` if it is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "agent" if !rest.is_empty() => Some(Self::Agent(rest.to_owned())),
            "file" if !rest.is_empty() => Some(Self::File(rest.to_owned())),
            "quarantine" => rest.parse().ok().map(Self::Quarantined),
            "conflict" => rest.parse().ok().map(Self::Conflict),
            "letter" => {
                let (run, number) = rest.split_once('/')?;
                Some(Self::DeadLetter(TurnId { run: run.parse().ok()?, number: number.parse().ok()? }))
            }
            _ => text.parse().ok().map(Self::Pending),
        }
    }

    /// The scope that decides about it; `None` if nothing can be decided.
    pub(crate) const fn scope(&self) -> Option<Scope> {
        match self {
            Self::Pending(_) | Self::Conflict(_) => Some(Scope::Approve),
            Self::DeadLetter(_) => Some(Scope::Delegate),
            Self::Agent(_) | Self::Quarantined(_) => Some(Scope::Admin),
            Self::File(_) => None,
        }
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(id) => id.fmt(f),
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::File(name) => write!(f, "file:{name}"),
            Self::Quarantined(run) => write!(f, "quarantine:{run}"),
            Self::Conflict(run) => write!(f, "conflict:{run}"),
            Self::DeadLetter(turn) => write!(f, "letter:{turn}"),
        }
    }
}

/// Something that a person can do about an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemAction {
    /// The `response` of the decision.
    pub response: &'static str,
    /// The arguments of the command line `callboard` that does the same.
    pub command: String,
}

/// What the run of an item is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// What the run was given to do.
    pub task: String,
    /// Who gave it.
    pub from_agent: Option<String>,
    /// Since when the run waits for this.
    pub since: Option<Timestamp>,
    /// The agents that have delegated to each other until the run was begun, such as `lead → coder`; empty without.
    pub chain: String,
    /// The tokens that the run has used by then.
    pub tokens: u64,
    /// What they have cost, in US dollars.
    pub cost: f64,
}

/// Who decides about an approval, and who has approved, where not any one person decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deciding {
    /// How many people of which group, such as `2 of ops, not the requester (laptop)`.
    pub deciders: String,
    /// From when on people of which other group may decide as well.
    pub escalates: Option<(Timestamp, Arc<str>)>,
    /// Those who have approved.
    pub approved: Vec<Vote>,
    /// How many more people have to approve.
    pub missing: u32,
    /// Who has changed what is asked to this.
    pub edited_by: Option<Arc<str>>,
}

impl Deciding {
    /// `None` if any one person decides.
    fn of(envelope: &Envelope) -> Option<Self> {
        let Envelope { deciders, requester, escalates_at, edited_by, .. } = envelope;
        let is_usual = *deciders == Deciders::default() && edited_by.is_none();
        let requester = requester.as_ref().filter(|_| deciders.excludes_requester);
        let requester = requester.map_or_else(String::new, |requester| format!(" ({})", visible(requester)));
        let group = deciders.escalation.as_ref().map(|escalation| Arc::clone(&escalation.group));
        (!is_usual).then(|| Self {
            deciders: format!("{deciders}{requester}"),
            escalates: escalates_at.zip(group),
            approved: Vec::new(),
            missing: deciders.at_least.max(1),
            edited_by: edited_by.as_ref().map(|vote| Arc::clone(&vote.by)),
        })
    }

    fn json(&self) -> Value {
        let Self { deciders, escalates, approved, missing, edited_by } = self;
        let approved = approved.iter().map(|vote| json!({ "by": vote.by, "at": time(vote.at) }));
        json!({
            "deciders": deciders,
            "approved_by": approved.collect::<Vec<_>>(),
            "missing": missing,
            "escalates_at": escalates.as_ref().map(|(at, _)| time(*at)),
            "escalates_to": escalates.as_ref().map(|(_, group)| group),
            "edited_by": edited_by,
        })
    }
}

/// Something that needs a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// Its kind.
    pub kind: ItemKind,
    /// Its run, if it has one.
    pub run: Option<RunId>,
    /// The agent that asks, or that has failed.
    pub agent: Option<String>,
    /// What it is, in a line without control characters, after the name of the agent.
    pub what: String,
    /// How many characters of that are left out.
    pub left_out: usize,
    /// Since when it waits, if that is known.
    pub since: Option<Timestamp>,
    /// When it no longer waits; `None` if it waits as long as it takes.
    pub expires_at: Option<Timestamp>,
    /// What happens then, or meanwhile.
    pub otherwise: &'static str,
    /// What can be done; the first unblocks it. Empty if nothing can be done from here.
    pub actions: Vec<ItemAction>,
    /// What its run is about, once that was read.
    pub about: Option<About>,
    /// Who decides about an approval; `None` if any one person does, or if it is none.
    pub deciding: Option<Deciding>,
    /// Why whoever reads this may not decide about it.
    pub may_not: Option<String>,
}

impl Item {
    /// Something that a run waits for.
    #[must_use]
    pub fn of_pending(pending: &Pending) -> Self {
        let (id, run) = (pending.id(), pending.run());
        let action = |response, command: String| ItemAction { response, command };
        let (kind, agent, what, since, otherwise, actions) = match pending {
            Pending::Approval(envelope) => (
                ItemKind::Approval,
                Some(envelope.agent.as_str()),
                format!("wants to {} {}", envelope.action.action, envelope.action.target),
                None,
                "it is denied",
                vec![action("approve", format!("approve {id}")), action("deny", format!("deny {id}"))],
            ),
            Pending::Question(question) => {
                let is_unknown = question.question.get("outcome_unknown").is_some();
                let otherwise = match (is_unknown, question.expires_at) {
                    (true, _) => "the turn gives up",
                    (false, Some(_)) => "the turn continues without an answer",
                    (false, None) => "the turn waits",
                };
                let kind = if is_unknown { ItemKind::UnknownOutcome } else { ItemKind::Question };
                let answer = if is_unknown { "--as-json '{\"done\": RESULT}'" } else { "TEXT" };
                let actions = vec![action("answer", format!("answer {id} {answer}"))];
                let agent = Some(question.agent.as_str());
                (kind, agent, format!("asks: {}", question.text()), Some(question.asked_at), otherwise, actions)
            }
            Pending::Node(Interrupt { node, agent, .. }) => (
                ItemKind::Node,
                Some(agent.as_str()),
                format!("waits before the node {node} for a person to start it"),
                None,
                "the run waits",
                vec![action("resume", format!("answer {id}"))],
            ),
            Pending::Attention { turn, why, .. } => (
                ItemKind::Attention,
                None,
                format!("turn {} cannot continue: {why}", turn.number),
                None,
                "the run waits",
                vec![action("restart", format!("approve {id}"))],
            ),
        };
        let deciding = match pending {
            Pending::Approval(envelope) => Deciding::of(envelope),
            Pending::Question(_) | Pending::Node(_) | Pending::Attention { .. } => None,
        };
        let item = Self::new(ItemId::Pending(id), kind, (agent, &what), otherwise);
        Self { run: Some(run), since, expires_at: pending.expires_at(), actions, deciding, ..item }
    }

    /// A turn that failed for good, or a conflict.
    #[must_use]
    pub fn of_failure(failure: &OpenFailure) -> Self {
        let OpenFailure { turn, agent, attempts, failure, at, is_conflict } = failure;
        let run = turn.run;
        let (id, kind) = if *is_conflict {
            (ItemId::Conflict(run), ItemKind::Conflict)
        } else {
            (ItemId::DeadLetter(*turn), ItemKind::DeadLetter)
        };
        let decide = |response| ItemAction { response, command: format!("inbox {id} --do {response}") };
        let (what, otherwise, actions) = if *is_conflict {
            let overwrite = ItemAction {
                command: format!("inbox {id} --do overwrite --value '{{\"CHANNEL\": VALUE}}'"),
                ..decide("overwrite")
            };
            (failure.text.clone(), "the run stays failed", vec![overwrite, decide("drop")])
        } else {
            let tries = if *attempts == 1 { String::new() } else { format!(", {attempts} times") };
            let retry = ItemAction { response: "retry", command: format!("retry {run} --turn {}", turn.number) };
            let what = format!("turn {} failed{tries}: {}", turn.number, failure.text);
            (what, "its branch stays failed", vec![retry, decide("drop")])
        };
        let item = Self::new(id, kind, (Some(agent.as_str()), &what), otherwise);
        Self { run: Some(run), since: Some(*at), actions, ..item }
    }

    /// A run that cannot be read.
    #[must_use]
    pub fn of_quarantined(run: RunId, why: &str) -> Self {
        let id = ItemId::Quarantined(run);
        let again = ItemAction { response: "read_again", command: format!("inbox {id} --do read_again") };
        let item = Self::new(id, ItemKind::Quarantined, (None, why), "the run does not continue");
        Self { run: Some(run), actions: vec![again], ..item }
    }

    /// An agent that has failed too often, with its last error.
    #[must_use]
    pub fn of_failed_agent(agent: &AgentName, error: &str) -> Self {
        let id = ItemId::Agent(agent.to_string());
        let restart = ItemAction {
            response: "restart",
            command: format!("inbox {} --do restart", shell_word(id.to_string().as_bytes())),
        };
        let what = format!("has failed too often: {error}");
        let item = Self::new(id, ItemKind::FailedAgent, (Some(agent.as_str()), &what), "it takes no tasks");
        Self { actions: vec![restart], ..item }
    }

    /// A file of an agent that is not used as it is.
    #[must_use]
    pub fn of_refused_file(name: &str, why: &str) -> Self {
        let id = ItemId::File(name.to_owned());
        Self::new(id, ItemKind::RefusedFile, (Some(name), why), "the agent is as before, or is not there")
    }

    fn new(id: ItemId, kind: ItemKind, (agent, what): (Option<&str>, &str), otherwise: &'static str) -> Self {
        let (what, left_out) = line(what);
        Self {
            id,
            kind,
            run: None,
            agent: agent.map(str::to_owned),
            what,
            left_out,
            since: None,
            expires_at: None,
            otherwise,
            actions: Vec::new(),
            about: None,
            deciding: None,
            may_not: None,
        }
    }

    /// The same with what its run is about.
    #[must_use]
    pub fn about(self, about: About) -> Self {
        Self { since: self.since.or(about.since), about: Some(about), ..self }
    }

    /// The item as programs read it.
    #[must_use]
    pub fn json(&self) -> Value {
        let Self { id, kind, run, agent, what, left_out, since, expires_at, otherwise, actions, about, .. } = self;
        let Self { deciding, may_not, .. } = self;
        let actions = actions.iter().map(|ItemAction { response, command }| {
            json!({ "response": response, "command": format!("callboard {command}") })
        });
        json!({
            "id": id.to_string(),
            "kind": kind.name(),
            "request_id": run,
            "agent": agent,
            "what": what,
            "left_out": left_out,
            "task": about.as_ref().map(|about| line(&about.task).0),
            "from_agent": about.as_ref().and_then(|about| about.from_agent.as_deref()),
            "chain": about.as_ref().map(|about| &about.chain).filter(|chain| !chain.is_empty()),
            "tokens": about.as_ref().map(|about| about.tokens),
            "cost_usd": about.as_ref().map(|about| about.cost),
            "since": since.map(time),
            "expires_at": expires_at.map(time),
            "otherwise": otherwise,
            "actions": actions.collect::<Vec<_>>(),
            "deciding": deciding.as_ref().map(Deciding::json),
            "may_not": may_not,
        })
    }
}

/// The order of the inbox: by kind; what a run waits for as the board lists it, failures by time, the latest first.
pub(super) fn in_order(items: &mut [Item]) {
    items.sort_by_key(|item| {
        let is_failure = matches!(item.kind, ItemKind::Conflict | ItemKind::DeadLetter);
        (item.kind, is_failure.then_some(Reverse(item.since)))
    });
}

/// A text in one line without control characters, and how many characters of it are left out.
fn line(text: &str) -> (String, usize) {
    let text = text.split('\n').map(str::trim_end).collect::<Vec<_>>().join(" ⏎ ");
    let left_out = text.chars().count().saturating_sub(MAX_TEXT);
    (visible(&text.chars().take(MAX_TEXT).collect::<String>()), left_out)
}
