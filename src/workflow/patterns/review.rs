//! A plan, work by it, and a review of the work, until it is accepted.

use serde_json::json;

use super::super::draft::Node;
use super::super::written::Workflow;
use super::{Defects, Participant, defect, group, last_word, with_participants, without_last_line};

/// The most times that a reviewer is asked in one round while its answer has no verdict.
const ASKS: u32 = 2;

const ANSWER_WITH: &str = "Say what is good and what has to change. End with a line that is only ACCEPTED or REJECTED. What you \
                           say before that line is given to whoever does the work.";

const NO_VERDICT: &str = "Your answer before (`last_answer`) had no verdict. Answer again, and end with a line that is only \
                          ACCEPTED or REJECTED.";

/// A planner, an executor and a reviewer. The planner makes a plan of the input of the workflow; the executor works by it; the
/// reviewer accepts the work, or names what is missing, and the executor works again with that, as often as there are rounds.
///
/// The input of each:
///
/// | who | what |
/// |---|---|
/// | planner | the input of the workflow, as it is |
/// | executor | `task`, `plan`, `round` (from 1), `rounds`, and from the second round on `work` (what it made last) and `feedback`; null before |
/// | planner, in later rounds of a review with [`Review::replans`] | `task`, and of the round before `plan`, `work` and `feedback`; `round`, `rounds` |
/// | reviewer | `task`, `plan`, `work`, `round`, `rounds`, `feedback` (its own on the work before), `answer_with`; `problem` and `last_answer` if it is asked again, else null |
///
/// A reviewer accepts with an object that has `accepted` (true or false) and may have `feedback`, or with a text whose last line
/// is `ACCEPTED` or `REJECTED` (small letters, punctuation, and `Verdict:` before it are ignored). Anything else is no
/// verdict: the reviewer is asked once more in that round, with what was wrong; if there is none then either, the work is not
/// accepted, and the reviewer's answer is the feedback. So nothing is accepted without a reviewer's verdict.
///
/// The result is an object: `accepted`, `rounds` (how many there were), `work` and `feedback` of the last round, and
/// `plan`. A review whose rounds are over without acceptance has finished, with `"accepted": false`. A participant that fails
/// for good fails it.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::workflow::patterns::Review;
/// use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let review = Review::new("letter", "planner", "writer", "critic").rounds(3).build()?;
/// let board = Callboard::builder()
///     .agent("planner", |_: Turn| async { Ok(Command::output("greet, then ask")) })
///     .agent("writer", |turn: Turn| async move {
///         let greeting = if turn.input_json()["feedback"].is_null() { "Hey" } else { "Dear Ada" };
///         Ok(Command::output(format!("{greeting}, have you got a minute?")))
///     })
///     .agent("critic", |turn: Turn| async move {
///         let is_polite = turn.input_json()["work"].as_str().unwrap_or_default().starts_with("Dear");
///         Ok(Command::output(if is_polite { "Fine.\nACCEPTED" } else { "Be polite.\nREJECTED" }))
///     })
///     .start()
///     .await?;
/// let run = board.submit(review.task("a letter to Ada")).await?;
/// let result = run.result().await?.output;
/// assert_eq!(result["accepted"], true);
/// assert_eq!(result["rounds"], 2);
/// assert_eq!(result["work"], "Dear Ada, have you got a minute?");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a review is a workflow once it is built"]
pub struct Review {
    name: String,
    planner: Participant,
    executor: Participant,
    reviewer: Participant,
    rounds: u32,
    replans: bool,
}

impl Review {
    /// Creates a review with (3) rounds at most; its workflow has this name.
    pub fn new(
        name: &str,
        planner: impl Into<Participant>,
        executor: impl Into<Participant>,
        reviewer: impl Into<Participant>,
    ) -> Self {
        let (planner, executor, reviewer) = (planner.into(), executor.into(), reviewer.into());
        Self { name: name.to_owned(), planner, executor, reviewer, rounds: 3, replans: false }
    }

    /// Sets how often the executor works at most, from 1.
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Lets the planner make another plan after a rejection, with the feedback, and the executor works by that one. By
    /// default there is one plan, and the feedback goes to the executor alone.
    pub fn replans(mut self) -> Self {
        self.replans = true;
        self
    }

    /// Builds the workflow.
    ///
    /// # Errors
    /// There are no rounds, a name breaks a rule, or two workflows that differ have one name.
    pub fn build(&self) -> Result<Workflow, Defects> {
        if self.rounds == 0 {
            return Err(defect(&self.name, "a review of no rounds", "give it at least one with `rounds`"));
        }
        let participants = [&self.planner, &self.executor, &self.reviewer];
        let builder = with_participants(Workflow::builder(&self.name), (&self.name, None), participants)?;
        let round = json!({
            "accepted": "{{ judge.output.accepted }}",
            "rounds": "{{ iteration }}",
            "work": "{{ execute.output }}",
            "feedback": "{{ judge.output.feedback }}",
            "plan": "{{ plan.output }}",
        });
        // Within the reviewer's loop, the round is only available through this node.
        let so_far = Node::join("so_far").input(json!({
            "round": "{{ iteration }}",
            "work": "{{ previous.work if previous else none }}",
            "feedback": "{{ previous.feedback if previous else none }}",
            "plan": "{{ previous.plan if previous else none }}",
        }));
        let plan = self.planner.node("plan");
        let (outside, inside, before) =
            if self.replans { (None, Some(self.replan(plan)), "plan") } else { (Some(plan), None, "so_far") };
        let nodes =
            [Some(so_far), inside, Some(self.execute(before)), Some(self.judge())].into_iter().flatten().collect();
        let work = group("work", nodes, round).until("judge.output.accepted", self.rounds).or_stop();
        match outside {
            Some(plan) => builder.node(plan).node(work.after("plan")),
            None => builder.node(work),
        }
        .build()
    }

    /// Plans in each round: first for the task, then with the feedback on the work.
    fn replan(&self, plan: Node) -> Node {
        let again = format!(
            "dict(task=input, plan=so_far.output.plan, work=so_far.output.work, feedback=so_far.output.feedback, \
             round=so_far.output.round, rounds={})",
            self.rounds
        );
        plan.after("so_far").input(format!("{{{{ input if so_far.output.round == 1 else {again} }}}}"))
    }

    fn execute(&self, after: &str) -> Node {
        self.executor.node("execute").after(after).input(json!({
            "task": "{{ input }}",
            "plan": "{{ plan.output }}",
            "round": "{{ so_far.output.round }}",
            "rounds": self.rounds,
            "work": "{{ so_far.output.work }}",
            "feedback": "{{ so_far.output.feedback }}",
        }))
    }

    /// Asks the reviewer until there is a verdict. `said` is its answer, of any type.
    fn judge(&self) -> Node {
        let said = "review.output";
        let word = last_word(said);
        let is_object = format!("({said} is mapping and {said}.accepted | default(none) is boolean)");
        let is_text = format!("({said} is string and {word} in ['ACCEPTED', 'REJECTED'])");
        let accepted = format!("({said}.accepted if {is_object} else {word} == 'ACCEPTED' if {is_text} else false)");
        let spoken = without_last_line(said);
        let feedback =
            format!("({said}.feedback | default(none) if {is_object} else {spoken} if {is_text} else {said})");
        let output = json!({
            "accepted": format!("{{{{ {accepted} }}}}"),
            "feedback": format!("{{{{ {feedback} }}}}"),
            "said": format!("{{{{ {said} }}}}"),
        });
        let review = self.reviewer.node("review").input(json!({
            "task": "{{ input }}",
            "plan": "{{ plan.output }}",
            "work": "{{ execute.output }}",
            "round": "{{ so_far.output.round }}",
            "rounds": self.rounds,
            "feedback": "{{ so_far.output.feedback }}",
            "answer_with": ANSWER_WITH,
            "problem": format!("{{{{ '{}' if previous else none }}}}", NO_VERDICT),
            "last_answer": "{{ previous.said if previous else none }}",
        }));
        let judge = group("judge", vec![review], output);
        judge.after("execute").until(&format!("{is_object} or {is_text}"), ASKS).or_stop()
    }
}
