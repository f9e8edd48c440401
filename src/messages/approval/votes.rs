//! Votes about an approval, and when they decide it (SEMANTICS 9). Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Decision, EXPIRY, Envelope, Groups, Terms};
use crate::messages::Timestamp;

/// The approval of one person, where several people may have to approve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The person who has approved.
    pub by: Arc<str>,
    /// When they approved, by the wall clock.
    pub at: Timestamp,
    /// For how long they have approved the same action in this run; `None`: once.
    pub until: Option<Timestamp>,
}

/// Who has approved so far, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Votes {
    /// Those who have approved, in order; empty where one person decides.
    pub approved: Vec<Vote>,
    /// How many more people have to approve; 0 once it is decided, or no longer open.
    pub missing: u32,
    /// The decision, if there is one.
    pub decision: Option<Decision>,
}

/// Why somebody may not decide about an approval, or not once more. Nothing changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Barred {
    /// They are not in the group, which is named.
    NotInGroup(Arc<str>),
    /// They have asked for the run.
    Requester,
    /// They have approved before, at this time.
    HasApproved(Timestamp),
}

impl Envelope {
    /// Checks that this person may decide at this time.
    fn check_decider(&self, person: &str, at: Timestamp, groups: &Groups) -> Result<(), Barred> {
        let requester = self.requester.as_deref().filter(|_| self.deciders.excludes_requester);
        if requester.is_some_and(|requester| *groups.person_of(requester) == *person) {
            return Err(Barred::Requester);
        }
        let Some(group) = &self.deciders.group else { return Ok(()) };
        let is_escalated = self.escalates_at.is_some_and(|escalates_at| escalates_at <= at);
        let also = self.deciders.escalation.as_ref().filter(|_| is_escalated).map(|escalation| &escalation.group);
        if also.into_iter().chain([group]).any(|group| groups.has(group, person)) {
            return Ok(());
        }
        Err(Barred::NotInGroup(Arc::clone(group)))
    }

    /// Checks that this person may decide now, with these votes stored, and has not approved before.
    pub(crate) fn check_voter(
        &self,
        stored: &[Vote],
        person: &str,
        at: Timestamp,
        groups: &Groups,
    ) -> Result<Votes, Barred> {
        self.check_decider(person, at, groups)?;
        let votes = self.votes(stored, groups);
        match votes.approved.iter().find(|vote| *vote.by == *person) {
            Some(earlier) => Err(Barred::HasApproved(earlier.at)),
            None => Ok(votes),
        }
    }

    /// The votes that count: that of who changed what is asked, and those that were stored.
    fn counted(&self, stored: &[Vote], groups: &Groups) -> Vec<Vote> {
        let is_new = |vote: &&Vote| stored.iter().all(|stored| stored.by != vote.by);
        let may = |vote: &&Vote| self.check_decider(&vote.by, vote.at, groups).is_ok();
        self.edited_by.iter().filter(is_new).filter(may).chain(stored).cloned().collect()
    }

    /// The votes of an approval that is not decided.
    pub(crate) fn votes(&self, stored: &[Vote], groups: &Groups) -> Votes {
        let approved = self.counted(stored, groups);
        let missing = self.deciders.needed().saturating_sub(approved.len());
        Votes { approved, missing: u32::try_from(missing).unwrap_or(u32::MAX), decision: None }
    }

    /// What follows when somebody decides so and these votes are stored: their denial, other arguments from them and expiry decide,
    /// and so does the approval of as many people as there have to be. Any other approval is one more vote.
    pub(crate) fn vote(&self, stored: &[Vote], decision: Decision, groups: &Groups) -> Result<Votes, Barred> {
        let by_person = &*decision.by != EXPIRY;
        if by_person {
            self.check_decider(&decision.by, decision.at, groups)?;
        }
        let mut votes = self.votes(stored, groups);
        let until = match &decision.terms {
            Terms::Once => None,
            Terms::Run { until } => Some(*until),
            Terms::Edited { .. } => return Ok(votes.decided(decision)),
        };
        if !decision.approved {
            return Ok(votes.decided(decision));
        }
        if let Some(earlier) = votes.approved.iter().find(|vote| vote.by == decision.by) {
            return Err(Barred::HasApproved(earlier.at));
        }
        votes.approved.push(Vote { by: Arc::clone(&decision.by), at: decision.at, until });
        votes.missing = votes.missing.saturating_sub(1);
        Ok(self.enough(votes, decision.reason, decision.via))
    }

    /// The decision that follows from the votes alone, if there are enough of them.
    pub(crate) fn enough(&self, votes: Votes, reason: Arc<str>, via: Arc<str>) -> Votes {
        let Some(last) = votes.approved.last().filter(|_| votes.missing == 0) else { return votes };
        // For the run only if all say so, and for as long as all of them do.
        let until = votes.approved.iter().map(|vote| vote.until).collect::<Option<Vec<_>>>();
        let until = until.and_then(|times| times.into_iter().min());
        let terms = until.map_or(Terms::Once, |until| Terms::Run { until });
        let (by, at) = (Arc::clone(&last.by), last.at);
        let mut votes = votes;
        if self.deciders.needed() == 1 {
            votes.approved.clear();
        }
        votes.decided(Decision { approved: true, by, reason, at, terms, votes: Vec::new(), via })
    }
}

impl Votes {
    fn decided(self, decision: Decision) -> Self {
        let votes = self.approved.clone();
        Self { missing: 0, decision: Some(Decision { votes, ..decision }), ..self }
    }
}
