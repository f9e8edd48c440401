//! The handoff flow of a run, drawn from its events: as Mermaid, and as plain text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use callboard_text::visible;
use serde_json::Value;

use super::{AgentName, Command, RunEvent, Verdict};

/// Who handed what to whom in a run.
///
/// ```
/// use callboard::prelude::*;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let board = Callboard::builder()
///     .agent("scout", |_: Turn| async { Ok(Command::update("artifacts", serde_json::json!({ "notes": "n.md" })).goto("writer")) })
///     .agent("writer", |_: Turn| async { Ok(Command::output("done")) })
///     .start()
///     .await?;
/// let run = board.submit(Task::new("write").to("scout")).await?;
/// run.result().await?;
/// assert_eq!(run.flow().await?.to_string(), "[scout] --notes--> [writer]\n[writer] ends: finished\n");
/// # board.shutdown().await;
/// # Ok::<(), callboard::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Turns without an event of their own at their beginning, which are not among the nodes yet.
    late: BTreeMap<u32, AgentName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    agent: AgentName,
    retries: u32,
    /// The reason why the turn waits for a person.
    attention: Option<String>,
    /// The end of the turn, if control did not pass on from it.
    end: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    /// Positions among the nodes.
    from: usize,
    to: Option<usize>,
    is_delegation: bool,
    label: String,
}

/// The longest label, in characters.
const MAX_LABEL: usize = 60;

impl Flow {
    /// The flow of a run whose events these are, from the first on. `late` are the turns that took late answers
    /// ([`LateAnswer`](super::LateAnswer)): events do not name them when they begin.
    #[must_use]
    pub fn of<'a>(events: impl IntoIterator<Item = &'a RunEvent>, late: BTreeMap<u32, AgentName>) -> Self {
        let mut flow = Self { late, ..Self::default() };
        // The commands of turns whose handoffs are decided later.
        let mut undecided: Vec<(u32, Arc<Command>)> = Vec::new();
        for event in events {
            match event {
                // The turns of a plan are among those that no event names.
                RunEvent::Submitted(submission) if submission.task.plan.is_some() => {}
                RunEvent::Submitted(submission) => flow.add_node(&submission.agent),
                RunEvent::Delegated { turn, order, verdict, .. } => match verdict {
                    Verdict::Admitted(agents) => flow.pass(*turn, agents, true, &cut(&order.body)),
                    Verdict::Refused(refusal) => flow.refuse(*turn, true, &cut(&order.body), refusal.name()),
                    Verdict::Nothing | Verdict::Parked(_) => {}
                },
                RunEvent::AttemptFailed { turn, .. } => {
                    if let Some(node) = flow.node(*turn) {
                        node.retries += 1;
                    }
                }
                RunEvent::TurnEnded { turn, command, verdict, .. } => {
                    if matches!(verdict, Verdict::Parked(_) | Verdict::Nothing)
                        && command.goto.targets().next().is_some()
                    {
                        undecided.push((*turn, Arc::clone(command)));
                    }
                    flow.go(*turn, command, verdict);
                }
                RunEvent::Decided { turn, verdict, .. } | RunEvent::Overwritten { turn, verdict, .. } => {
                    if let Some((_, command)) = undecided.iter().find(|(number, _)| number == turn) {
                        flow.go(*turn, command, verdict);
                    }
                }
                RunEvent::TurnFailed { turn, failure, .. } => flow.end(*turn, &failure.outcome().to_string()),
                RunEvent::NeedsAttention { turn, why, .. } => flow.need_attention(*turn, Some(cut(why))),
                RunEvent::TurnRestarted { turn, .. } => flow.need_attention(*turn, None),
                RunEvent::Stopped { outcome, .. } => {
                    let handoffs = flow.edges.iter().filter(|edge| !edge.is_delegation);
                    let handed_on: BTreeSet<usize> = handoffs.map(|edge| edge.from).collect();
                    let nodes = flow.nodes.iter_mut().enumerate();
                    for (_, node) in nodes.filter(|(position, _)| !handed_on.contains(position)) {
                        node.end.get_or_insert_with(|| cut(&outcome.to_string()));
                    }
                }
                RunEvent::StepStarted { .. }
                | RunEvent::StepFinished { .. }
                | RunEvent::IntentRecorded { .. }
                | RunEvent::StepFailed { .. }
                | RunEvent::OutcomeUnknown { .. }
                | RunEvent::OutcomeResolved { .. }
                | RunEvent::DelegationExpired { .. }
                | RunEvent::Reserved { .. }
                | RunEvent::Settled { .. }
                | RunEvent::Asked { .. }
                | RunEvent::AskedUntil { .. }
                | RunEvent::QuestionExpired { .. }
                | RunEvent::Answered { .. }
                | RunEvent::ApprovalAsked { .. }
                | RunEvent::HandoffChecked { .. }
                | RunEvent::AgentMade { .. }
                | RunEvent::Tainted { .. }
                | RunEvent::Noticed { .. }
                | RunEvent::Summarized { .. }
                | RunEvent::Recovered { .. }
                | RunEvent::Resumed { .. }
                | RunEvent::ConversationEntered { .. }
                | RunEvent::ConversationRead { .. }
                | RunEvent::ReferenceChanged { .. }
                | RunEvent::Forked { .. } => {}
            }
            flow.add_late_nodes();
        }
        flow
    }

    /// As a Mermaid flowchart: turns are boxes, handoffs arrows, delegations dotted arrows.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        let mut chart = "flowchart TD\n".to_owned();
        for (position, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(chart, "    t{}[\"{}\"]", position + 1, mermaid_text(&node.title()));
        }
        for edge in &self.edges {
            let (line, from) = (if edge.is_delegation { "-.->" } else { "-->" }, edge.from + 1);
            let label = mermaid_text(&edge.label);
            let label = if label.is_empty() { String::new() } else { format!("|\"{label}\"|") };
            match edge.to {
                Some(to) => drop(writeln!(chart, "    t{from} {line}{label} t{}", to + 1)),
                None => drop(writeln!(chart, "    t{from} {line}{label} refused{from}{{{{\"refused\"}}}}")),
            }
        }
        chart
    }

    fn add_node(&mut self, agent: &AgentName) {
        self.nodes.push(Node { agent: agent.clone(), retries: 0, attention: None, end: None });
    }

    /// Adds the late turns with the next numbers.
    fn add_late_nodes(&mut self) {
        while let Some(agent) = u32::try_from(self.nodes.len() + 1).ok().and_then(|next| self.late.remove(&next)) {
            self.add_node(&agent);
        }
    }

    /// The index of a turn's node; a damaged journal may name turns that were not admitted.
    fn position(&self, turn: u32) -> Option<usize> {
        (turn as usize).checked_sub(1).filter(|position| *position < self.nodes.len())
    }

    fn node(&mut self, turn: u32) -> Option<&mut Node> {
        self.position(turn).map(|position| &mut self.nodes[position])
    }

    /// Turns are numbered in the order of their admission, so the new nodes are theirs.
    fn pass(&mut self, turn: u32, agents: &[AgentName], is_delegation: bool, label: &str) {
        let Some(from) = self.position(turn) else { return };
        for agent in agents {
            let to = Some(self.nodes.len());
            self.edges.push(Edge { from, to, is_delegation, label: label.to_owned() });
            self.add_node(agent);
        }
    }

    fn refuse(&mut self, turn: u32, is_delegation: bool, label: &str, refusal: &str) {
        let Some(from) = self.position(turn) else { return };
        let label = if label.is_empty() { refusal.to_owned() } else { format!("{label}: {refusal}") };
        self.edges.push(Edge { from, to: None, is_delegation, label });
    }

    fn go(&mut self, turn: u32, command: &Command, verdict: &Verdict) {
        match verdict {
            Verdict::Admitted(agents) => self.pass(turn, agents, false, &label(command)),
            Verdict::Refused(refusal) => {
                self.refuse(turn, false, &label(command), refusal.name());
                self.end(turn, &format!("refused ({})", refusal.name()));
            }
            Verdict::Nothing => self.end(turn, "finished"),
            Verdict::Parked(_) => {}
        }
    }

    fn need_attention(&mut self, turn: u32, why: Option<String>) {
        if let Some(node) = self.node(turn) {
            node.attention = why;
        }
    }

    fn end(&mut self, turn: u32, how: &str) {
        if let Some(node) = self.node(turn) {
            node.end = Some(cut(how));
        }
    }
}

impl Node {
    fn title(&self) -> String {
        match self.retries {
            0 => self.agent.to_string(),
            1 => format!("{} (1 retry)", self.agent),
            retries => format!("{} ({retries} retries)", self.agent),
        }
    }
}

/// The label of an edge: the reason and the artifacts of the command.
fn label(command: &Command) -> String {
    let mut parts = Vec::new();
    for write in command.update.writes() {
        match (&*write.channel, write.value.value()) {
            ("reason", Value::String(reason)) => parts.insert(0, reason.clone()),
            ("artifacts", Value::Object(artifacts)) => {
                parts
                    .extend(artifacts.iter().filter(|(_, artifact)| !artifact.is_null()).map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }
    cut(&parts.join(", "))
}

fn cut(text: &str) -> String {
    let line = visible(text.lines().next().unwrap_or_default());
    if line.chars().count() <= MAX_LABEL {
        return line;
    }
    line.chars().take(MAX_LABEL - 1).chain(['…']).collect()
}

fn mermaid_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;").replace('|', "&#124;")
}

/// One line for each edge and each end: `[scout] --notes--> [writer]`; delegations have a dotted arrow.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut edges: Vec<&Edge> = self.edges.iter().collect();
        edges.sort_by_key(|edge| edge.from);
        let mut edges = edges.into_iter().peekable();
        for (position, node) in self.nodes.iter().enumerate() {
            while let Some(edge) = edges.next_if(|edge| edge.from == position) {
                let (start, arrow) = if edge.is_delegation { ("··", "··>") } else { ("--", "-->") };
                let to = edge.to.and_then(|to| self.nodes.get(to)).map_or("refused", |node| node.agent.as_str());
                let label = &edge.label;
                if label.is_empty() {
                    writeln!(f, "[{}] {arrow} [{to}]", node.title())?;
                } else {
                    writeln!(f, "[{}] {start}{label}{arrow} [{to}]", node.title())?;
                }
            }
            match (&node.end, &node.attention) {
                (Some(end), _) => writeln!(f, "[{}] ends: {end}", node.title())?,
                (None, Some(why)) => writeln!(f, "[{}] needs attention: {why}", node.title())?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}
