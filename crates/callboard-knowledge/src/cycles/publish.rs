//! The workflow that publishes the site of a namespace.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use callboard::messages::{Command, Durability, Effect, Json, RunResult, Task};
use callboard::workflow::{Node, Workflow};
use callboard::{Agent, AgentSpec, Terminal, Turn, TurnError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::agent::{REPORTED, base_error};
use crate::intents::IntentError;
use crate::publishing::{PublishError, SiteProgress, put_in_place, stage};
use crate::site::{Published, SiteSettings, StagedSite};
use crate::store::KnowledgeBase;

/// The agent whose turns are the cycles of [`publish_workflow`].
pub const PUBLISH_AGENT: &str = "knowledge-publish";

/// What [`publish_task`] is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishRequest {
    /// Which facts and documents.
    pub namespace: String,
    /// The folder of the site: that of [`publish_agent`].
    pub folder: PathBuf,
    /// The name of the base, at the top of every page.
    pub title: String,
}

/// The agent of a publication, for [`Builder::with`](callboard::Builder::with): it writes this folder and no other, whoever asks.
#[must_use]
pub fn publish_agent(base: &KnowledgeBase, folder: &Path) -> AgentSpec {
    let (base, folder) = (base.clone(), folder.to_owned());
    AgentSpec::new(PUBLISH_AGENT, move || PublishAgent { base: base.clone(), folder: folder.clone() })
        .timeout(super::agent::LONGEST)
}

/// The workflow of a publication: the name of its plan is `knowledge-publish`, its input a [`PublishRequest`], its output a [`Published`]. The
/// node `pages` writes the site beside the old one, and `replace` puts it in that one's place.
///
/// # Panics
/// Never: a test builds it.
#[must_use]
pub fn publish_workflow() -> &'static Workflow {
    static WORKFLOW: LazyLock<Workflow> = LazyLock::new(|| {
        let built = Workflow::builder("knowledge-publish")
            .description("Writes a static site of a base of facts")
            .node(Node::agent("pages", PUBLISH_AGENT).input(json!({ "pages": "{{ input }}" })))
            .node(
                Node::agent("replace", PUBLISH_AGENT)
                    .after("pages")
                    .input(json!({ "replace": { "request": "{{ input }}", "staged": "{{ pages.output }}" } })),
            )
            .build();
        match built {
            Ok(workflow) => workflow,
            Err(defects) => unreachable!("what is compiled in was built by a test: {defects}"),
        }
    });
    &WORKFLOW
}

/// The task of a publication, to be submitted to a board that has [`publish_agent`].
///
/// # Errors
/// The request has no JSON form, because its path is not UTF-8.
pub fn publish_task(request: &PublishRequest) -> Result<Task, serde_json::Error> {
    Ok(publish_workflow().task(Json::of(request)?).durability(Durability::Sync))
}

/// Reads the result of the run of a publication.
///
/// # Errors
/// The run did not finish, or its output is not of a publication.
pub fn publish_result(result: &RunResult) -> Result<Published, IntentError> {
    super::workflow::output_of(result)
}

/// A cycle, as the workflow's nodes give it to the agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Cycle {
    Pages(PublishRequest),
    Replace { request: PublishRequest, staged: StagedSite },
}

#[derive(Debug)]
struct PublishAgent {
    base: KnowledgeBase,
    folder: PathBuf,
}

impl Agent for PublishAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        super::agent::check_place(&turn, PUBLISH_AGENT, Effect::Writes)?;
        let output = match turn.input()? {
            Cycle::Pages(request) => Json::of(self.staged(&turn, request).await?),
            Cycle::Replace { request, staged } => Json::of(self.replaced(&turn, request, staged).await?),
        };
        output.map(Command::output).map_err(|error| TurnError::terminal(error.to_string()))
    }
}

impl PublishAgent {
    async fn staged(&self, turn: &Turn, request: PublishRequest) -> Result<StagedSite, TurnError> {
        let PublishRequest { namespace, folder, title } = request;
        if folder != self.folder {
            let text = format!("{folder:?} is to be written, and this agent writes {:?} alone", self.folder);
            return Err(TurnError::terminal(text));
        }
        // Its bytes depend on the base alone, so a site that is published again does not change.
        let settings = SiteSettings { title, about: None, as_of: None };
        let mut reported = (0, 0, 0);
        let progress = |SiteProgress { all, read, written }: SiteProgress| {
            let now = (all / REPORTED, read / REPORTED, written / REPORTED);
            if now.0 > reported.0 {
                turn.notice(&format!("{all} documents and facts are to be published"));
            }
            if now.1 > reported.1 {
                turn.notice(&format!("{read} of {all} are read"));
            }
            if now.2 > reported.2 {
                turn.notice(&format!("{written} of {all} are written"));
            }
            reported = now;
        };
        stage(&self.base, &namespace, &self.folder, settings, progress).await.map_err(failed)
    }

    async fn replaced(
        &self,
        turn: &Turn,
        request: PublishRequest,
        mut staged: StagedSite,
    ) -> Result<Published, TurnError> {
        loop {
            if !staged.is_for(&self.folder) {
                return Err(TurnError::terminal(format!("the site is not for {:?}", self.folder)));
            }
            match put_in_place(staged).await.map_err(failed)? {
                Some(published) => return Ok(published),
                // What was staged is gone: another process has published there.
                None => staged = self.staged(turn, request.clone()).await?,
            }
        }
    }
}

fn failed(error: PublishError) -> TurnError {
    match error {
        PublishError::Base(error) => base_error(error),
        error @ PublishError::Site(_) => Terminal(error).into(),
    }
}
