//! Who decides about an action: a number of people, of a group or of all, and who is in which group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::visible;
use serde::{Deserialize, Serialize};

/// Who decides about an action, as a policy asks for it ([`Consent::AskOf`](super::Consent::AskOf)). One denial denies, whoever of them it comes from.
///
/// ```
/// use callboard::messages::Deciders;
/// let deciders = Deciders { at_least: 2, excludes_requester: true, ..Deciders::of("ops") };
/// assert_eq!(deciders.to_string(), "2 of ops, not the requester");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deciders {
    /// The group whose people decide; `None`: everybody who may approve.
    pub group: Option<Arc<str>>,
    /// How many different people have to approve; at least one has to.
    pub at_least: u32,
    /// Whether the person who asked for the run, or whose token did, may not decide about it.
    pub excludes_requester: bool,
    /// Who may decide as well when this has taken long; `None`: nobody else.
    pub escalation: Option<Escalation>,
}

/// Another group that may decide after some time without a decision ([`Deciders::escalation`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// How long after the question was asked.
    pub after: Duration,
    /// The group whose people may decide then, beside those of [`Deciders::group`].
    pub group: Arc<str>,
}

/// By default one person decides, of all who may approve.
impl Default for Deciders {
    fn default() -> Self {
        Self { group: None, at_least: 1, excludes_requester: false, escalation: None }
    }
}

impl Deciders {
    /// One person of a group.
    #[must_use]
    pub fn of(group: &str) -> Self {
        Self { group: Some(group.into()), ..Self::default() }
    }

    /// How many people have to approve.
    pub(crate) fn needed(&self) -> usize {
        usize::try_from(self.at_least.max(1)).unwrap_or(usize::MAX)
    }

    /// Those who satisfy both; `None` if there are none, because each wants people of another group.
    pub(super) fn strictest(&self, other: &Self) -> Option<Self> {
        let group = match (&self.group, &other.group) {
            (Some(one), Some(another)) if one != another => return None,
            (one, another) => one.clone().or_else(|| another.clone()),
        };
        // Who names no group is satisfied by the people of the other's, and also by those of its escalation.
        let escalation = match (&self.escalation, &other.escalation) {
            (Some(one), Some(another)) if one.group == another.group => {
                Some(Escalation { after: one.after.max(another.after), group: Arc::clone(&one.group) })
            }
            (Some(one), None) if other.group.is_none() => Some(one.clone()),
            (None, Some(one)) if self.group.is_none() => Some(one.clone()),
            (Some(_), Some(_) | None) | (None, Some(_) | None) => None,
        };
        Some(Self {
            group,
            at_least: self.at_least.max(other.at_least),
            excludes_requester: self.excludes_requester || other.excludes_requester,
            escalation,
        })
    }
}

/// Writes how many people of which group, such as `2 of ops, not the requester`.
impl fmt::Display for Deciders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.needed())?;
        match &self.group {
            Some(group) => write!(f, " of {}", visible(group))?,
            None => f.write_str(" of all who may approve")?,
        }
        if self.excludes_requester {
            f.write_str(", not the requester")?;
        }
        Ok(())
    }
}

/// The people of each group, and whose the names are that ask for runs: what a board knows about those who decide
/// ([`Builder::groups`](crate::Builder::groups)). Without it a group has nobody, and a requester is a person of that name.
///
/// ```
/// use callboard::messages::Groups;
/// let groups = Groups::default().group("ops", ["ann", "bob"]).requesters(|token| (token == "laptop").then(|| "ann".into()));
/// ```
#[derive(Clone, Default)]
pub struct Groups {
    people: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    requesters: Option<Arc<PersonOf>>,
}

/// Whose a name is; `None` if it is the name of a person.
type PersonOf = dyn Fn(&str) -> Option<Arc<str>> + Send + Sync;

impl Groups {
    /// Adds people to a group, by the names that decisions are made in.
    #[must_use]
    pub fn group(mut self, group: &str, people: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.people.entry(group.into()).or_default().extend(people.into_iter().map(Into::into));
        self
    }

    /// Sets how to find whose a name is that runs are asked for in ([`Task::from_agent`](crate::messages::Task::from_agent)), such as
    /// that of a token; `None` if it is the name of a person. It is asked with each decision, and must not block.
    #[must_use]
    pub fn requesters(self, person_of: impl Fn(&str) -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        Self { requesters: Some(Arc::new(person_of)), ..self }
    }

    /// Whether the person is in the group.
    pub(crate) fn has(&self, group: &str, person: &str) -> bool {
        self.people.get(group).is_some_and(|people| people.contains(person))
    }

    /// Who has asked for a run in this name.
    pub(crate) fn person_of(&self, requester: &str) -> Arc<str> {
        let person = self.requesters.as_ref().and_then(|person_of| person_of(requester));
        person.unwrap_or_else(|| requester.into())
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups").field("people", &self.people).finish_non_exhaustive()
    }
}
