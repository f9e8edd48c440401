//! The agent that does the cycles, one turn each.

use std::path::PathBuf;
use std::time::Duration;

use callboard::messages::{Command, Effect, Json};
use callboard::{Agent, AgentSpec, Terminal, Turn, TurnError};
use serde::{Deserialize, Serialize};

use super::documents::{folder_of, graph_of, new_documents};
use super::types::{
    Answered, CandidateDoc, InitContext, InitRequest, MAX_QUESTIONS, MAX_TOPICS, ReadInputs, Summaries, TOPICS, Work,
    lines,
};
use super::writing::{enriched, gaps, reviewed, written};
use crate::documents::files;
use crate::indexing::{IndexError, Indexed, index_file, index_folder};
use crate::store::{KnowledgeBase, KnowledgeError, Trust};

/// The agent whose turns are the cycles of [`init_workflow`](super::init_workflow).
pub const CYCLE_AGENT: &str = "knowledge-cycle";

/// How long a cycle may work, without the time in which it waits for a model or for people: a folder may have many files.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// After how many documents a notice reports the progress.
pub(super) const REPORTED: usize = 1_000;

/// What is read, by an agent that reads nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitInputs {
    /// The folder or file.
    pub path: PathBuf,
    /// Its own name in the base, as [`index_folder`] and [`index_file`] take it: paths of documents of a folder begin with it.
    pub name: String,
}

/// The agent of an initialisation, for [`Builder::with`](callboard::Builder::with): it reads this folder or file and no other, whoever asks.
#[must_use]
pub fn init_agent(base: &KnowledgeBase, inputs: InitInputs) -> AgentSpec {
    let base = base.clone();
    AgentSpec::new(CYCLE_AGENT, move || CycleAgent { base: base.clone(), inputs: inputs.clone() }).timeout(LONGEST)
}

/// A cycle, as the workflow's nodes give it to the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Cycle {
    ReadInputs(InitRequest),
    Draft { context: InitContext, topic: String },
    Gaps { context: InitContext, documents: Vec<CandidateDoc> },
    Ask { questions: Vec<String> },
    Refine { context: InitContext, work: Work, answers: Vec<Answered> },
    Enrich { context: InitContext, document: CandidateDoc },
    Review { context: InitContext, documents: Vec<CandidateDoc> },
    Write { context: InitContext, documents: Vec<CandidateDoc> },
    Graph { context: InitContext, documents: Vec<CandidateDoc> },
}

#[derive(Debug)]
struct CycleAgent {
    base: KnowledgeBase,
    inputs: InitInputs,
}

impl Agent for CycleAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        check_place(&turn, CYCLE_AGENT, Effect::Writes)?;
        let output = match turn.input()? {
            Cycle::ReadInputs(request) => Json::of(self.read_inputs(&turn, request).await?),
            Cycle::Draft { context, topic } => {
                let work = Work { topic, document: None, instruction: None };
                Json::of(written(&turn, (&self.base, &context), work, &[]).await?)
            }
            Cycle::Gaps { context, documents } => Json::of(gaps(&turn, &context, documents).await?),
            Cycle::Ask { questions } => Json::of(answers(&turn, questions).await?),
            Cycle::Refine { work: Work { document: Some(document), instruction: None, .. }, .. } => Json::of(document),
            Cycle::Refine { context, work, answers } => {
                Json::of(written(&turn, (&self.base, &context), work, &answers).await?)
            }
            Cycle::Enrich { context, document } => Json::of(enriched(&turn, (&self.base, &context), document).await?),
            Cycle::Review { context, documents } => Json::of(reviewed(&turn, &context, documents).await?),
            Cycle::Write { context, documents } => Json::of(self.write(&context, documents).await?),
            Cycle::Graph { context, documents } => Json::of(self.graph(&context, documents).await?),
        };
        output.map(Command::output).map_err(|error| TurnError::terminal(error.to_string()))
    }
}

impl CycleAgent {
    async fn read_inputs(&self, turn: &Turn, request: InitRequest) -> Result<ReadInputs, TurnError> {
        let InitRequest { namespace, name, place: _, trust, provider, topics, questions, follows_up } = request;
        let InitInputs { path, name: own } = &self.inputs;
        if name != *own {
            return Err(TurnError::terminal(format!("{name:?} is to be read, and this agent reads {own:?} alone")));
        }
        if topics.len() > MAX_TOPICS || questions.len() > MAX_QUESTIONS {
            let text = format!("at most {MAX_TOPICS} topics and {MAX_QUESTIONS} questions can be given");
            return Err(TurnError::terminal(text));
        }
        let answers = answers(turn, questions).await?;
        let trust = if turn.is_tainted() { Trust::Untrusted } else { trust };
        let indexed = if path.is_file() {
            index_file(&self.base, &namespace, path, own, trust).await
        } else {
            let all = files(path).filter(Result::is_ok).count();
            turn.notice(&format!("reading {}: {all} {}", path.display(), if all == 1 { "file" } else { "files" }));
            let mut reported = 0;
            let progress = |indexed: &Indexed| {
                if indexed.documents / REPORTED > reported {
                    reported = indexed.documents / REPORTED;
                    turn.notice(&format!("{} of {all} files are indexed", indexed.documents));
                }
            };
            index_folder(&self.base, &namespace, path, own, trust, progress).await
        };
        let indexed = indexed.map_err(|error| match error {
            IndexError::Folder(error) => Terminal(error).into(),
            IndexError::Base(error) => base_error(error),
        })?;
        let usual = || TOPICS.iter().map(|topic| (*topic).to_owned()).collect();
        let topics = match provider {
            None => Vec::new(),
            Some(_) if topics.is_empty() => usual(),
            Some(_) => lines(topics, MAX_TOPICS),
        };
        let context = InitContext { namespace, name, provider, topics, answers, follows_up };
        Ok(ReadInputs { context, indexed })
    }

    async fn write(&self, context: &InitContext, documents: Vec<CandidateDoc>) -> Result<Summaries, TurnError> {
        let written = new_documents(context, &documents);
        let claims = written.iter().map(|(document, _)| document.claims.len()).sum();
        let new: Vec<_> = written.into_iter().map(|(_, new)| new).collect();
        let paths: Vec<String> = new.iter().map(|document| document.path.clone()).collect();
        self.base.write_documents(&context.namespace, new).await.map_err(base_error)?;
        let (folder, kept) = (folder_of(&context.name), paths.clone());
        let below = folder.len();
        // Documents of another folder, within this one, have further slashes.
        let keeps = move |path: &str| kept.iter().any(|kept| kept == path) || path[below..].contains('/');
        self.base.end_documents_below(&context.namespace, &folder, keeps).await.map_err(base_error)?;
        Ok(Summaries {
            documents: paths,
            claims,
            dropped: documents.iter().map(|document| document.dropped).sum(),
            without: documents
                .iter()
                .filter(|document| document.claims.is_empty())
                .map(|document| document.topic.clone())
                .collect(),
        })
    }

    /// Returns how many passages are in the graph.
    async fn graph(&self, context: &InitContext, documents: Vec<CandidateDoc>) -> Result<usize, TurnError> {
        let mut passages = 0;
        for (document, new) in new_documents(context, &documents) {
            let graph = graph_of(document);
            passages += graph.len();
            self.base.add_to_graph(&context.namespace, &new.path, graph).await.map_err(base_error)?;
        }
        Ok(passages)
    }
}

/// Refuses turns outside the nodes of a workflow, so that what a model writes does not come here as something to be written.
pub(super) fn check_place(turn: &Turn, agent: &str, needed: Effect) -> Result<(), TurnError> {
    if turn.node().is_none() || !turn.chain().steps().is_empty() {
        return Err(TurnError::terminal(format!("{agent} works in the nodes of its workflow alone")));
    }
    if !turn.authority().allows(needed) {
        return Err(TurnError::terminal(format!(
            "the authority of the run does not have {needed:?}, which this needs"
        )));
    }
    Ok(())
}

/// Asks people one question after the other. An empty answer is none.
async fn answers(turn: &Turn, questions: Vec<String>) -> Result<Vec<Answered>, TurnError> {
    let mut answers = Vec::new();
    for question in questions {
        let answer = turn.people().ask(&*question).await?;
        let answer = answer.value().as_str().map_or_else(|| answer.to_string(), |text| text.trim().to_owned());
        if !answer.is_empty() {
            answers.push(Answered { question, answer });
        }
    }
    Ok(answers)
}

/// What can pass is tried again; what cannot is not.
pub(super) fn base_error(error: KnowledgeError) -> TurnError {
    match error {
        error if error.may_pass() => error.into(),
        error => Terminal(error).into(),
    }
}
