//! What the cycles of an initialisation pass on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::indexing::Indexed;
use crate::intents::Claim;
use crate::store::Trust;

/// The topics that documents are written about, if the request has none.
pub const TOPICS: [&str; 8] = [
    "purpose and users",
    "architecture and main parts",
    "how to build, test and run it",
    "interfaces: commands, functions, protocols",
    "data, storage and formats",
    "configuration",
    "errors, limits and known problems",
    "security and permissions",
];

/// What people are asked before the documents are written, if the request has no questions.
pub const QUESTIONS: [&str; 2] = [
    "What is this for, and who uses it? (an empty answer leaves it out)",
    "What should be known about it that its files do not say? (an empty answer leaves it out)",
];

/// The most topics of a request, and the most that its gaps add.
pub const MAX_TOPICS: usize = 32;
pub(super) const MAX_ADDED: usize = 8;

/// The most questions to people before the documents are written, and as many after it.
pub const MAX_QUESTIONS: usize = 8;

/// The most claims of a document, characters of a claim, and citations of a claim.
pub(super) const MAX_CLAIMS: usize = 40;
const MAX_CLAIM: usize = 600;
const MAX_CITES: usize = 8;

/// The most characters of a title, a topic, a question or an instruction.
pub(super) const MAX_LINE: usize = 300;

/// What [`init_task`](super::init_task) is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitRequest {
    /// Where the documents are known.
    pub namespace: String,
    /// The name of what is read, with which paths of its documents begin: that of [`InitInputs`](super::InitInputs).
    pub name: String,
    /// What tells it from a request for something else of the same name, such as its whole path: a program that continues a run of an equal
    /// request then continues none of another folder.
    #[serde(default)]
    pub place: String,
    /// Whether what is found in the documents is untrusted input.
    #[serde(default)]
    pub trust: Trust,
    /// The agent of the board that a language model is asked through. Without one, the files are indexed and linked, and nothing is written
    /// about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What documents are written about, one each: [`TOPICS`] if it is empty.
    #[serde(default)]
    pub topics: Vec<String>,
    /// What people are asked first, one question after the other.
    #[serde(default)]
    pub questions: Vec<String>,
    /// People are also asked what the model finds missing.
    #[serde(default)]
    pub follows_up: bool,
}

/// What all cycles know: where, for whom, and what people have answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitContext {
    /// Where the documents are known.
    pub namespace: String,
    /// The name of what was read, with which paths of its documents begin.
    pub name: String,
    /// The agent that a language model is asked through.
    pub provider: Option<String>,
    /// What documents are written about; none without a provider.
    pub topics: Vec<String>,
    /// What people have answered.
    pub answers: Vec<Answered>,
    /// People are also asked what the model finds missing.
    pub follows_up: bool,
}

/// A question, and what a person has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The question.
    pub question: String,
    /// The answer.
    pub answer: String,
}

/// What the first cycle has read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadInputs {
    /// For the cycles after it.
    pub context: InitContext,
    /// The files that are in the base now.
    pub indexed: Indexed,
}

/// A document that a language model writes, until it is in the base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateDoc {
    /// What it is about.
    pub topic: String,
    /// Its title.
    pub title: String,
    /// What it says. Each claim cites what was found.
    pub claims: Vec<Claim>,
    /// What the model names as its entities; each is written in one of the claims.
    pub entities: Vec<String>,
    /// How these are joined.
    pub relations: Vec<Related>,
    /// What the model could not find out.
    pub open: Vec<String>,
    /// How many claims were left out, because they cited nothing that was found.
    pub dropped: usize,
    /// The model was shown untrusted input.
    pub is_untrusted: bool,
}

/// A relation between two entities of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Related {
    /// An entity.
    pub source: String,
    /// How it is joined to the other one, in words such as "part of" or "calls".
    pub relation: String,
    /// The other entity.
    pub target: String,
}

/// A document that is to be written or refined, with what is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) topic: String,
    pub(super) document: Option<CandidateDoc>,
    /// What is to be done; a document without an instruction stays as it is.
    pub(super) instruction: Option<String>,
}

/// What the documents lack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gaps {
    pub(super) work: Vec<Work>,
    pub(super) questions: Vec<String>,
}

/// What an initialisation has brought into the base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initialised {
    /// The files.
    pub indexed: Indexed,
    /// The documents that the model wrote; `None` without a model.
    #[serde(default)]
    pub summaries: Option<Summaries>,
}

/// Documents that a model wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summaries {
    /// Their paths.
    pub documents: Vec<String>,
    /// How many claims they have.
    pub claims: usize,
    /// How many claims were left out, because they cited nothing that was found.
    pub dropped: usize,
    /// Topics without a document: nothing was found about them, or the model's answer had no claim that could be kept.
    pub without: Vec<String>,
}

/// Splits claims into those that cite results and nothing else, within bounds, and the number of those that do not.
pub(super) fn supported(claims: Vec<Claim>, is_found: impl Fn(&str) -> bool) -> (Vec<Claim>, usize) {
    let all = claims.len();
    let is_supported = |claim: &Claim| {
        let Claim { text, cites } = claim;
        let is_bounded = text.chars().count() <= MAX_CLAIM && cites.len() <= MAX_CITES;
        is_bounded && !text.trim().is_empty() && !cites.is_empty() && cites.iter().all(|cite| is_found(cite))
    };
    let kept: Vec<Claim> = claims.into_iter().filter(is_supported).take(MAX_CLAIMS).collect();
    let dropped = all - kept.len();
    (kept, dropped)
}

/// One line of a model's text, within bounds.
pub(super) fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_LINE).collect()
}

/// Lines of a model that say something, within bounds.
pub(super) fn lines(texts: Vec<String>, most: usize) -> Vec<String> {
    texts.iter().map(|text| line(text)).filter(|text| !text.is_empty()).take(most).collect()
}
