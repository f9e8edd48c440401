//! Concurrently, in rounds, over a channel that all of them read.

use callboard_text::quoted;
use serde_json::json;

use crate::messages::Reducer;

use super::super::draft::Node;
use super::super::written::Workflow;
use super::{
    Defects, Participant, defect, group, identifier, last_word, node_names, with_participants, without_last_line,
};

const ANSWER_WITH: &str = "Say what the others should know; all of them read it in the next round. If you have nothing to add and \
                           agree with where things stand, end with a line that is only DONE.";

/// Peers that work concurrently in rounds, and read what all of them have written to a channel that they share.
///
/// In each round every peer is given `task` (what the workflow is given), `you`, `others`, `round` (from 1), `rounds`, `said` and
/// `answer_with`. `said` is what was written in the rounds before, in the order of the peers: a list of objects with `by`,
/// `round` and `text`. A peer sees what the others write in one round in the next, however quick they are: so the same answers
/// always make the same discussion.
///
/// A peer answers with a text; `DONE` on its last line means that it has nothing to add (small letters and punctuation are
/// ignored, and the others do not get the line). Or it answers with an object: `done` (true or false) and `text`, of any
/// shape. The rounds end when all are done in one round, or with the last one.
///
/// The result is an object: `done` (whether all were done), `rounds` (how many there were), and `said`, of all rounds. The
/// channel is a part of the run's state, so others can read it too; discussions of one name in one run add to one channel, and
/// each reads its own part. A peer that fails for good fails it.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::workflow::patterns::Peers;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let panel = Peers::new("panel").with("ann").with("bob").rounds(5).build()?;
/// let peer = |turn: Turn| async move {
///     let heard = turn.input_json()["said"].as_array().map_or(0, Vec::len);
///     Ok(Command::output(if heard < 4 { format!("I heard {heard}") } else { "That is all.\nDONE".to_owned() }))
/// };
/// let board = Callboard::builder().agent("ann", peer).agent("bob", peer).start().await?;
/// let result = board.submit(panel.task("count")).await?.result().await?.output;
/// assert_eq!(result["done"], true);
/// assert_eq!(result["rounds"], 3);
/// assert_eq!(result["said"][3], serde_json::json!({ "by": "bob", "round": 2, "text": "I heard 2" }));
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "peers are a workflow once they are built"]
pub struct Peers {
    name: String,
    participants: Vec<Participant>,
    channel: Option<String>,
    rounds: u32,
}

impl Peers {
    /// No peers yet, in (3) rounds at most, over a channel of the same name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), participants: Vec::new(), channel: None, rounds: 3 }
    }

    /// Adds a peer: an agent by its name, role or capability, or a workflow.
    pub fn with(mut self, participant: impl Into<Participant>) -> Self {
        self.participants.push(participant.into());
        self
    }

    /// Adds several peers. In each round `said` lists what they wrote in the order in which they were added.
    pub fn all(self, participants: impl IntoIterator<Item = impl Into<Participant>>) -> Self {
        participants.into_iter().fold(self, Self::with)
    }

    /// Sets the channel of the state that they write to: a name of letters, digits and `_`.
    pub fn channel(mut self, channel: &str) -> Self {
        self.channel = Some(channel.to_owned());
        self
    }

    /// Sets how many rounds there are at most (3), from 1. There are fewer if all peers are done in an earlier round.
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Builds the workflow.
    ///
    /// # Errors
    /// There are fewer than two peers, no rounds, a name breaks a rule, or two workflows that differ have one name.
    pub fn build(&self) -> Result<Workflow, Defects> {
        if self.participants.len() < 2 {
            return Err(defect(&self.name, "peers are at least two", "name them with `with`"));
        }
        if self.rounds == 0 {
            return Err(defect(&self.name, "peers without rounds", "give them at least one with `rounds`"));
        }
        let channel = self.channel.clone().unwrap_or_else(|| identifier(&self.name));
        if identifier(&channel) != channel {
            let problem = format!("templates cannot name the channel {}", quoted(&channel));
            return Err(defect(&self.name, problem, "use letters, digits and _"));
        }
        let said = format!("(state.{channel} | default([], true))");
        // Entries of this discussion, without those of an earlier one.
        let own = format!("{said}[begin.output:]");
        let names = node_names(&self.participants, &["begin", "discuss"]);
        let done: Vec<String> = names.iter().map(|name| Answer::of(name).is_done()).collect();
        let done = done.join(" and ");
        let peers = (0..names.len()).map(|position| self.peer(position, &names, &own).saved_to(&channel));
        let round = json!({ "done": format!("{{{{ {done} }}}}"), "rounds": "{{ iteration }}" });
        let rounds = group("discuss", peers.collect(), round);
        with_participants(Workflow::builder(&self.name), (&self.name, Some(&channel)), &self.participants)?
            .channel(&channel, Reducer::Append)
            .node(Node::join("begin").input(format!("{{{{ {said} | length }}}}")))
            .node(rounds.after("begin").until(&done, self.rounds).or_stop())
            .output(json!({
                "done": "{{ discuss.output.done }}",
                "rounds": "{{ discuss.output.rounds }}",
                "said": format!("{{{{ {own} }}}}"),
            }))
            .build()
    }

    /// The node of a peer in a round: its answer, and the channel's entry made of it.
    fn peer(&self, position: usize, names: &[String], own: &str) -> Node {
        let (name, label) = (&names[position], self.label(position, names));
        let others = (0..names.len()).filter(|other| *other != position).map(|other| self.label(other, names));
        let others: Vec<&str> = others.collect();
        let answer = Answer::of(name);
        let says = self.participants[position].node(&answer.node).input(json!({
            "task": "{{ input }}",
            "you": label,
            "others": others,
            "round": "{{ iteration }}",
            "rounds": self.rounds,
            "said": format!("{{{{ {own} }}}}"),
            "answer_with": ANSWER_WITH,
        }));
        let text = format!("{{{{ {} }}}}", answer.text());
        group(name, vec![says], json!({ "by": label, "round": "{{ iteration }}", "text": text }))
    }

    /// The name of a peer for the others: its own name, unless two peers have it.
    fn label<'a>(&'a self, position: usize, names: &'a [String]) -> &'a str {
        let own = self.participants[position].name();
        let has_namesake = self
            .participants
            .iter()
            .enumerate()
            .any(|(other, participant)| other != position && participant.name() == own);
        if has_namesake { &names[position] } else { own }
    }
}

/// The answer of a peer, as expressions.
struct Answer {
    node: String,
    output: String,
}

impl Answer {
    fn of(peer: &str) -> Self {
        let node = format!("{peer}_says");
        Self { output: format!("{node}.output"), node }
    }

    fn is_object(&self) -> String {
        let output = &self.output;
        format!("({output} is mapping and {output}.done | default(none) is boolean)")
    }

    fn ends_with_done(&self) -> String {
        let output = &self.output;
        format!("({output} is string and {} == 'DONE')", last_word(output))
    }

    fn is_done(&self) -> String {
        let (is_object, output, is_text) = (self.is_object(), &self.output, self.ends_with_done());
        format!("({output}.done if {is_object} else {is_text})")
    }

    fn text(&self) -> String {
        let (is_object, output, is_text) = (self.is_object(), &self.output, self.ends_with_done());
        let spoken = without_last_line(output);
        format!("({output}.text | default(none) if {is_object} else {spoken} if {is_text} else {output})")
    }
}
