//! What people were asked to allow in a run, with what came of it.

use callboard::Callboard;
use callboard::actors::approvals::Card;
use callboard::messages::{ApprovalId, Deciders, Decision, Envelope, RunEvent, Terms, Verdict, Vote};
use maud::{Markup, html};

use super::texts::{cut_lines, line, shown_time};
use crate::problem::Problem;

/// The most questions of a page, and the most characters of the arguments and of what was said.
const MAX_ASKED: usize = 20;
const MAX_ARGUMENTS: usize = 4_000;
const MAX_SAID: usize = 400;
const MAX_NAME: usize = 80;

/// Questions about actions, the last of them, and how many there were before.
#[derive(Debug, Default)]
pub(super) struct Consents<'h> {
    asked: Vec<Asked<'h>>,
    left_out: usize,
}

/// A question about an action.
#[derive(Debug)]
struct Asked<'h> {
    id: ApprovalId,
    envelope: &'h Envelope,
    /// As the journal has it.
    decision: Option<&'h Decision>,
    /// Whether a later question has taken its place.
    is_replaced: bool,
    /// What is stored beside the journal: the decision with where it was made, and who has approved so far.
    stored: Option<Decision>,
    votes: Vec<Vote>,
}

impl<'h> Consents<'h> {
    /// Those that these events are about.
    pub(super) fn of(history: &'h [RunEvent]) -> Self {
        let mut asked: Vec<Asked<'h>> = Vec::new();
        for event in history {
            match event {
                RunEvent::ApprovalAsked { envelope, .. } => ask(&mut asked, envelope),
                RunEvent::TurnEnded { verdict: Verdict::Parked(envelope), .. } => ask(&mut asked, envelope),
                RunEvent::Decided { approval, decision, .. } => {
                    let found = asked.iter_mut().rev().find(|asked| asked.id == *approval);
                    found.into_iter().for_each(|asked| asked.decision = Some(decision));
                }
                _ => {}
            }
        }
        let left_out = asked.len().saturating_sub(MAX_ASKED);
        Self { asked: asked.split_off(left_out), left_out }
    }

    /// Adds what is stored beside the journal.
    pub(super) async fn complete(&mut self, board: &Callboard) -> Result<(), Problem> {
        for asked in &mut self.asked {
            let people = board.people();
            let stored = people.decision(asked.id).await.map_err(|error| Problem::of_store(&error))?;
            asked.stored = stored;
            if asked.decision.is_none() && asked.envelope.deciders != Deciders::default() {
                asked.votes = people.votes(asked.id).await.map_err(|error| Problem::of_store(&error))?.approved;
            }
        }
        Ok(())
    }

    pub(super) fn shown(&self) -> Markup {
        html! {
            @if !self.asked.is_empty() {
                h2 { "What was asked of people" }
                @if self.left_out > 0 { p.dim { (self.left_out) " earlier ones are among the events." } }
                ol.consents { @for asked in &self.asked { (asked.row()) } }
            }
        }
    }
}

fn ask<'h>(asked: &mut Vec<Asked<'h>>, envelope: &'h Envelope) {
    let earlier = asked.iter_mut().rev().find(|earlier| earlier.envelope.request == envelope.request);
    if let Some(earlier) = earlier.filter(|_| envelope.edited_by.is_some()) {
        earlier.is_replaced = true;
    }
    let (id, votes) = (envelope.id(), Vec::new());
    asked.push(Asked { id, envelope, decision: None, is_replaced: false, stored: None, votes });
}

impl Asked<'_> {
    fn decision(&self) -> Option<&Decision> {
        self.stored.as_ref().or(self.decision)
    }

    /// The words for what came of it, and the class of their colour.
    fn outcome(&self) -> (&'static str, &'static str) {
        match self.decision() {
            _ if self.is_replaced => ("changed", "dim"),
            Some(decision) if !decision.approved => ("denied", "bad"),
            Some(Decision { terms: Terms::Run { .. }, .. }) => ("approved for the run", "good"),
            Some(_) => ("approved", "good"),
            None => ("open", "warn"),
        }
    }

    fn row(&self) -> Markup {
        let Envelope { agent, action, deciders, edited_by, rationale, .. } = self.envelope;
        let (words, tone) = self.outcome();
        let id = self.id.to_string();
        let votes = self.decision().map_or(&self.votes, |decision| &decision.votes);
        html! {
            li {
                div.head {
                    b { bdi { (line(agent.as_str(), MAX_NAME)) } }
                    code { bdi { (line(&action.action, MAX_NAME)) } }
                    code { bdi { (line(&action.target, 2 * MAX_NAME)) } }
                    span.kind.(tone) { (words) }
                    @if let Some(decision) = self.decision() { (shown_time(decision.at)) }
                }
                @if let Some(decision) = self.decision() {
                    p.dim {
                        "By " bdi { (line(&decision.by, MAX_NAME)) }
                        @if !decision.via.is_empty() { " (" (line(&decision.via, MAX_NAME)) ")" }
                        @if !decision.reason.is_empty() { ": " bdi { (line(&decision.reason, MAX_SAID)) } }
                    }
                }
                @if *deciders != Deciders::default() {
                    p.dim {
                        "Decided by " (line(&deciders.to_string(), 2 * MAX_NAME))
                        @for vote in votes { " · approved by " bdi { (line(&vote.by, MAX_NAME)) } " " (shown_time(vote.at)) }
                    }
                }
                @if let Some(editor) = edited_by { p.dim { "Changed to this by " bdi { (line(&editor.by, MAX_NAME)) } } }
                @if let Some(reason) = &rationale.reason { p.dim { "It says: " bdi { (line(reason, MAX_SAID)) } } }
                details data-key={ "consent-" (id) } {
                    summary { "Arguments" }
                    pre.text dir="auto" { (cut_lines(&arguments(self.envelope), MAX_ARGUMENTS)) }
                    p.dim { "Approval " code { (id) } }
                }
            }
        }
    }
}

/// The arguments as people saw them, each line without the bar of the card.
fn arguments(envelope: &Envelope) -> String {
    let shown = Card::of(envelope).arguments();
    shown.lines().map(|line| line.strip_prefix("  │ ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}
