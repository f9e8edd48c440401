//! What a channel was asked, what it has sent of it, and what is left to send. Pure.
//!
//! A question is sent to each place once, closed in each place that it was sent to, and then forgotten, the oldest first.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{ApprovalId, Decision};
use serde::{Deserialize, Serialize};

/// The most questions that are kept, open and closed: beyond them the closed ones are forgotten, the oldest first.
pub(crate) const MAX_QUESTIONS: usize = 800;
/// The most that are open. Others follow when there is room.
pub(crate) const MAX_OPEN: usize = 200;
/// The bytes of data that is drawn at random.
const DATA_BYTES: usize = 16;

/// What is known of a message that was sent.
pub(crate) trait Receipt: Clone {
    /// Whether the place has confirmed it. If not, it is sent again.
    fn is_confirmed(&self) -> bool;
}

/// Questions by their approvals. `P` is a place, `S` what is known of a message there, and `D` what a piece of data stands for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "P: Ord + Deserialize<'de>, S: Deserialize<'de>, D: Deserialize<'de>"))]
pub(crate) struct Questions<P: Ord, S, D> {
    pub(crate) questions: BTreeMap<ApprovalId, Question<P, S, D>>,
    /// Counts questions, for their order.
    pub(crate) count: u64,
}

/// A question, from the time that it is asked until it is forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "P: Ord + Deserialize<'de>, S: Deserialize<'de>, D: Deserialize<'de>"))]
pub(crate) struct Question<P: Ord, S, D> {
    number: u64,
    /// What messages show. Empty when none needs it any more.
    pub(crate) card: String,
    /// The random data that is sent with it, by which an answer names it.
    #[serde(alias = "buttons")]
    pub(crate) data: BTreeMap<String, D>,
    /// The messages that show it, by their places.
    pub(crate) sent: BTreeMap<P, S>,
    /// The places that do not take it.
    failed: BTreeSet<P>,
    /// Who has tried to decide here, and whether to approve.
    attempts: BTreeSet<(String, bool)>,
    /// What came of it.
    pub(crate) outcome: Option<String>,
    /// Whether that is final: a decision. What was withdrawn may be asked again, such as when another board has asked meanwhile that is gone.
    is_final: bool,
    /// The places whose message shows what came of it.
    closed: BTreeSet<P>,
    /// Whether this process was asked about it.
    #[serde(skip)]
    is_asked: bool,
    /// The places that are to be reminded.
    #[serde(skip)]
    remind: BTreeSet<P>,
}

/// What is to be sent next, to which place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<P, S> {
    Send { id: ApprovalId, place: P },
    Close { id: ApprovalId, place: P, sent: S },
    Remind { id: ApprovalId, place: P, sent: S },
}

impl<P: Ord, S, D> Default for Questions<P, S, D> {
    fn default() -> Self {
        Self { questions: BTreeMap::new(), count: 0 }
    }
}

impl<P: Ord + Clone, S: Receipt, D> Questions<P, S, D> {
    /// Notes a question that is open; whether there was room for it. `make` makes its card and its data.
    pub(crate) fn ask<E>(
        &mut self,
        id: ApprovalId,
        make: impl FnOnce() -> Result<(String, BTreeMap<String, D>), E>,
    ) -> Result<bool, E> {
        let known = self.questions.get_mut(&id).filter(|known| known.outcome.is_none() || known.is_final);
        if let Some(question) = known {
            question.is_asked = true;
            return Ok(true);
        }
        if !self.has_room() {
            return Ok(false);
        }
        let (card, data) = make()?;
        self.count += 1;
        let question = Question {
            number: self.count,
            card,
            data,
            sent: BTreeMap::new(),
            failed: BTreeSet::new(),
            attempts: BTreeSet::new(),
            outcome: None,
            is_final: false,
            closed: BTreeSet::new(),
            is_asked: true,
            remind: BTreeSet::new(),
        };
        self.questions.insert(id, question);
        self.forget();
        Ok(true)
    }

    /// Adds data to a question.
    #[cfg(feature = "webhooks")]
    pub(crate) fn add_data(&mut self, id: ApprovalId, data: String, of: D) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.data.insert(data, of);
        }
    }

    /// Sets all data of a question.
    #[cfg(feature = "email")]
    pub(crate) fn set_data(&mut self, id: ApprovalId, data: BTreeMap<String, D>) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.data = data;
        }
    }

    pub(crate) fn get(&self, id: ApprovalId) -> Option<&Question<P, S, D>> {
        self.questions.get(&id)
    }

    /// Whether one more question may be open.
    pub(crate) fn has_room(&self) -> bool {
        self.questions.values().filter(|question| question.outcome.is_none()).count() < MAX_OPEN
    }

    /// Forgets closed questions beyond the most that are kept: first those with nothing left to do, and of these the oldest.
    fn forget(&mut self) {
        let excess = self.questions.len().saturating_sub(MAX_QUESTIONS);
        let closed = self.questions.iter().filter(|(_, question)| question.outcome.is_some());
        let mut order: Vec<_> = closed.map(|(id, question)| (!question.is_done(), question.number, *id)).collect();
        order.sort_unstable();
        for (.., id) in order.into_iter().take(excess) {
            self.questions.remove(&id);
        }
    }

    /// Forgets the messages in places that are no more.
    #[cfg(any(feature = "email", feature = "matrix", feature = "webhooks"))]
    pub(crate) fn retain_places(&mut self, is_there: impl Fn(&P) -> bool) {
        for question in self.questions.values_mut() {
            question.sent.retain(|place, _| is_there(place));
            question.clear();
        }
    }

    /// Forgets all messages, and the questions that this process was not asked about.
    #[cfg(any(feature = "matrix", feature = "telegram"))]
    pub(crate) fn forget_sent(&mut self) {
        self.questions.retain(|_, question| question.is_asked);
        for question in self.questions.values_mut() {
            question.sent.clear();
            question.failed.clear();
            question.closed.clear();
        }
    }

    /// The messages of the open questions of a place, each `None` as long as it is not sent.
    #[cfg(feature = "matrix")]
    pub(crate) fn open_in(&self, place: &P) -> Vec<Option<&S>> {
        let open = self.questions.values().filter(|it| it.outcome.is_none() && !it.failed.contains(place));
        open.map(|question| question.sent.get(place)).collect()
    }

    /// Has questions sent to a place again that did not take them.
    #[cfg(feature = "matrix")]
    pub(crate) fn retry(&mut self, place: &P) {
        for question in self.questions.values_mut() {
            question.failed.remove(place);
        }
    }

    /// Has people in a place reminded of its open questions.
    #[cfg(feature = "matrix")]
    pub(crate) fn remind_in(&mut self, place: &P) {
        let open = self.questions.values_mut().filter(|question| question.outcome.is_none());
        for question in open.filter(|question| question.sent.contains_key(place)) {
            question.remind.insert(place.clone());
        }
    }

    /// Notes what came of a question: a decision, or that it was withdrawn. `outcome` gets whether it was decided here.
    pub(crate) fn settle(&mut self, id: ApprovalId, decision: Option<&Decision>, outcome: impl FnOnce(bool) -> String) {
        let Some(question) = self.questions.get_mut(&id).filter(|question| !question.is_final) else { return };
        let is_here = decision.is_some_and(|by| question.attempts.contains(&(by.by.to_string(), by.approved)));
        question.close(outcome(is_here), decision.is_some());
    }

    /// Notes that no board asks about it any more, as far as is known here.
    pub(crate) fn give_up(&mut self, id: ApprovalId, outcome: String) {
        if let Some(question) = self.questions.get_mut(&id).filter(|it| !it.is_asked && it.outcome.is_none()) {
            question.close(outcome, false);
        }
    }

    /// The open questions of earlier processes that this one was not asked about.
    pub(crate) fn left_over(&self) -> Vec<ApprovalId> {
        let left = self.questions.iter().filter(|(_, question)| question.outcome.is_none() && !question.is_asked);
        left.map(|(id, _)| *id).collect()
    }

    /// Has people reminded of a question that is open.
    pub(crate) fn remind(&mut self, id: ApprovalId) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.remind = question.sent.keys().cloned().collect();
        }
    }

    /// What is to be sent next: questions to `places`, and the rest to the places that `is_mine` is for. Of several questions, the oldest.
    pub(crate) fn next(&self, places: &BTreeSet<P>, is_mine: impl Fn(&P) -> bool) -> Option<Step<P, S>> {
        self.next_of(|_| places.iter(), is_mine)
    }

    /// The same, where each question has places of its own.
    pub(crate) fn next_of<'q, I: Iterator<Item = &'q P>>(
        &'q self,
        places: impl Fn(&'q Question<P, S, D>) -> I,
        is_mine: impl Fn(&P) -> bool,
    ) -> Option<Step<P, S>>
    where
        P: 'q,
    {
        let mut questions: Vec<_> = self.questions.iter().collect();
        questions.sort_unstable_by_key(|(_, question)| question.number);
        questions.into_iter().find_map(|(id, question)| question.next(*id, places(question), &is_mine))
    }

    /// Notes a message. `card` is what it shows.
    pub(crate) fn sent(&mut self, id: ApprovalId, place: P, sent: S, card: &str) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.sent.insert(place, sent);
            if question.card.is_empty() {
                // It was closed while this was sent.
                card.clone_into(&mut question.card);
            }
        }
    }

    pub(crate) fn failed(&mut self, id: ApprovalId, place: P) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.failed.insert(place);
        }
    }

    /// Notes that a message has not arrived, and never will.
    #[cfg(feature = "email")]
    pub(crate) fn unsent(&mut self, id: ApprovalId, place: &P) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.sent.remove(place);
            question.clear();
        }
    }

    pub(crate) fn closed(&mut self, id: ApprovalId, place: P) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.closed.insert(place);
            question.clear();
        }
    }

    pub(crate) fn reminded(&mut self, id: ApprovalId, place: &P) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.remind.remove(place);
        }
    }

    /// Notes that somebody is about to decide here.
    pub(crate) fn attempt(&mut self, id: ApprovalId, by: &str, approves: bool) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.attempts.insert((by.to_owned(), approves));
        }
    }
}

impl<P: Ord + Clone, S: Receipt, D> Question<P, S, D> {
    fn close(&mut self, outcome: String, is_final: bool) {
        (self.outcome, self.is_final) = (Some(outcome), is_final);
        self.remind.clear();
        self.clear();
    }

    /// Forgets the card, if no message needs it any more.
    fn clear(&mut self) {
        if self.is_done() {
            self.card.clear();
        }
    }

    /// Whether nothing is left to do.
    fn is_done(&self) -> bool {
        self.outcome.is_some() && self.sent.keys().all(|place| self.closed.contains(place))
    }

    fn next<'q>(
        &'q self,
        id: ApprovalId,
        places: impl Iterator<Item = &'q P>,
        is_mine: impl Fn(&P) -> bool,
    ) -> Option<Step<P, S>> {
        if self.outcome.is_some() {
            let mut left = self.sent.iter().filter(|(place, _)| is_mine(place) && !self.closed.contains(place));
            let (place, sent) = left.next()?;
            return Some(Step::Close { id, place: place.clone(), sent: sent.clone() });
        }
        let is_sent = |place: &P| self.sent.get(place).is_some_and(Receipt::is_confirmed);
        let mut unsent = places.filter(|place| !is_sent(place) && !self.failed.contains(place));
        if let Some(place) = unsent.next().filter(|_| self.is_asked) {
            return Some(Step::Send { id, place: place.clone() });
        }
        let mut remind = self.remind.iter().filter(|place| is_mine(place));
        let (place, sent) = remind.find_map(|place| Some((place.clone(), self.sent.get(place)?.clone())))?;
        Some(Step::Remind { id, place, sent })
    }
}

/// Data that nobody can guess.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; DATA_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
