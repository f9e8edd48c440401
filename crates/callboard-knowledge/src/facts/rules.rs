//! What becomes of a submitted statement: a new fact, another source of one that is known, or a dispute.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FactId, FactState, Statement, Triple};

/// A fact of the base with which a statement is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its id.
    pub id: FactId,
    /// Its revision when it was read.
    pub revision: u64,
    /// Its state.
    pub state: FactState,
    /// One of its statements has the normal form of the new one.
    pub has_form: bool,
    /// It has a trusted source, or a person has decided that it holds. Another is what untrusted input says: its parts may be invented.
    pub is_vouched: bool,
    /// It is disputed, and no trusted source has stated it since it is: a trusted one decides it.
    pub lacks_trust: bool,
    /// Its triple, in normal form.
    pub triple_form: Option<Triple>,
}

/// What happens to a statement that contradicts a current fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnContradiction {
    /// It becomes a disputed fact, and a person decides.
    #[default]
    Dispute,
    /// It is refused.
    Refuse,
    /// It takes the place of the facts that it contradicts, which become invalid. A statement from untrusted input is disputed all the same.
    Supersede,
}

/// A contradiction between a statement and a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Contradiction {
    /// The fact.
    pub fact: FactId,
    /// Why both cannot hold: the rule, or what the model answered.
    pub reason: String,
}

/// A fact that has words in common with a statement. Nothing follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Similar {
    /// The fact.
    pub fact: FactId,
    /// What it states.
    pub statement: String,
}

/// What becomes of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It becomes a fact in this state.
    New {
        /// The state.
        state: FactState,
        /// What it contradicts.
        contradictions: Vec<Contradiction>,
        /// Facts that become invalid by it.
        supersedes: Vec<FactId>,
    },
    /// A fact is the same: it gets another source.
    Same {
        /// The fact.
        fact: FactId,
        /// The state that it gets, if it is compared anew.
        becomes: Option<FactState>,
        /// It had untrusted sources alone, and this one is trusted: it gets the text and the parts of the statement.
        is_restated: bool,
        /// What it contradicts.
        contradictions: Vec<Contradiction>,
        /// Facts that become invalid by it.
        supersedes: Vec<FactId>,
    },
    /// It contradicts current facts, and was to be refused then.
    Refused(Vec<Contradiction>),
    /// A fact has the same words and other parts. Its id follows from the words, so the statement becomes no fact, and it is no source of that one.
    OtherParts {
        /// The fact, and what its words state there.
        known: Contradiction,
        /// Both cannot hold, since the predicate has one value at a time.
        is_contradiction: bool,
    },
}

/// Decides what becomes of a statement. `stored` has the facts with its normal form, and those with its subject and predicate;
/// `is_single` tells whether the predicate has one value at a time, and `judged` has the contradictions that a model found.
#[must_use]
pub fn place(
    statement: &Statement,
    stored: &[Stored],
    is_single: bool,
    judged: &[Contradiction],
    is_untrusted: bool,
    on: OnContradiction,
) -> Placement {
    let restated = stored.iter().find(|fact| fact.has_form && !fact.is_vouched && !is_untrusted);
    if let (None, Some((fact, parts))) = (restated, in_same_words(statement, stored)) {
        let contradiction = contradiction(statement, fact, is_single, &[]);
        let is_contradiction = contradiction.is_some();
        let Triple { subject, predicate, value } = parts;
        let reason = format!("its words state that {predicate:?} of {subject:?} is {value:?}");
        let known = contradiction.unwrap_or(Contradiction { fact: fact.id, reason });
        return Placement::OtherParts { known, is_contradiction };
    }
    let same = restated.or_else(|| same(statement, stored, is_untrusted));
    let contradicted: Vec<(&Stored, Contradiction)> = stored
        .iter()
        .filter(|fact| fact.state != FactState::Invalid && same.is_none_or(|same| same.id != fact.id))
        .filter_map(|fact| contradiction(statement, fact, is_single, judged).map(|why| (fact, why)))
        .collect();
    let current: Vec<FactId> =
        contradicted.iter().filter(|(fact, _)| fact.state == FactState::Current).map(|(fact, _)| fact.id).collect();
    let contradictions: Vec<Contradiction> = contradicted.into_iter().map(|(_, why)| why).collect();
    let is_restated = restated.is_some();
    // A fact that holds gets a source, whatever else is said about it.
    let is_compared_anew = |same: &Stored| match same.state {
        FactState::Invalid => true,
        FactState::Disputed => is_restated || (same.lacks_trust && !is_untrusted),
        FactState::Current => is_restated,
    };
    if let Some(same) = same.filter(|same| !is_compared_anew(same)) {
        return Placement::Same { fact: same.id, becomes: None, is_restated, contradictions, supersedes: Vec::new() };
    }
    let (state, supersedes) = match on {
        OnContradiction::Refuse if !current.is_empty() => return Placement::Refused(contradictions),
        OnContradiction::Supersede if !is_untrusted => (FactState::Current, current),
        OnContradiction::Dispute | OnContradiction::Refuse | OnContradiction::Supersede => {
            let is_disputed = is_untrusted || !current.is_empty();
            (if is_disputed { FactState::Disputed } else { FactState::Current }, Vec::new())
        }
    };
    match same {
        Some(same) => Placement::Same { fact: same.id, becomes: Some(state), is_restated, contradictions, supersedes },
        None => Placement::New { state, contradictions, supersedes },
    }
}

/// The fact that has the statement's words with other parts than the statement.
fn in_same_words<'a>(statement: &Statement, stored: &'a [Stored]) -> Option<(&'a Stored, &'a Triple)> {
    let has_form = stored.iter().find(|fact| fact.has_form)?;
    let (new, known) = (statement.triple_form()?, has_form.triple_form.as_ref()?);
    (new != known).then_some((has_form, known))
}

/// The fact that states the same: by its normal form or, if neither is untrusted, by its triple; one that holds before one that does not. Untrusted
/// input may give any words the parts of a fact, so these words are not taken as that fact.
fn same<'a>(statement: &Statement, stored: &'a [Stored], is_untrusted: bool) -> Option<&'a Stored> {
    let has_parts = |fact: &Stored| {
        statement.triple_form().is_some_and(|triple| fact.triple_form.as_ref() == Some(triple))
            && fact.is_vouched
            && !is_untrusted
    };
    let is_same = |fact: &&Stored| fact.has_form || has_parts(fact);
    stored.iter().filter(is_same).min_by_key(|fact| match fact.state {
        FactState::Current => 0,
        FactState::Disputed => 1,
        FactState::Invalid => 2,
    })
}

/// Why a fact with this triple contradicts those with another value, whose predicate has one at a time.
pub(crate) fn has_one_value(triple: &Triple) -> String {
    let Triple { subject, predicate, value } = triple;
    format!("{predicate:?} of {subject:?} has one value at a time, and that is {value:?}")
}

/// Why a fact contradicts the statement, if it does.
fn contradiction(
    statement: &Statement,
    fact: &Stored,
    is_single: bool,
    judged: &[Contradiction],
) -> Option<Contradiction> {
    if let (true, Some(new), Some(old)) = (is_single, statement.triple_form(), &fact.triple_form)
        && new.subject == old.subject
        && new.predicate == old.predicate
        && new.value != old.value
    {
        return Some(Contradiction { fact: fact.id, reason: has_one_value(old) });
    }
    judged.iter().find(|judged| judged.fact == fact.id).cloned()
}
