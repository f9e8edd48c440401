//! Reloads the agents of a folder from its files while the board runs.

use callboard::Callboard;
use callboard::runtime::AgentError;

use crate::{AgentFolder, FileReport, FolderError};

/// A board whose agents come from files that change while it runs.
pub trait Reload {
    /// Reads a folder of agents again, and updates the agents to its files: new ones are added, those that have changed use
    /// their new files from their next turn on, and those whose files are gone are stopped (see
    /// [`AgentsHandle::stop`](callboard::runtime::AgentsHandle::stop)). Turns under way end as they began. Agents that
    /// list others see those that were added and removed.
    ///
    /// A file counts as a whole. One with a defect changes nothing: its agent stays as it was, and the report has the defect.
    /// Returns a report for each file, by name; a defect is reported when it is new, and not each time.
    ///
    /// A catalog of models ([`AgentFolder::catalog`]) is read again too, and its report comes first. It counts as a whole: one with a
    /// defect, or without a model that an agent has now, changes nothing.
    ///
    /// # Errors
    /// The folder cannot be read. Nothing has then changed.
    fn reload(&self, folder: &mut AgentFolder) -> impl Future<Output = Result<Vec<FileReport>, FolderError>> + Send;
}

impl Reload for Callboard {
    async fn reload(&self, folder: &mut AgentFolder) -> Result<Vec<FileReport>, FolderError> {
        let files = folder.read().await?;
        let mut changes = folder.compare(&files);
        for agent in &changes.gone {
            match self.agents().stop(agent.as_str()).await {
                // Another call has stopped it.
                Ok(()) | Err(AgentError::Unknown { .. }) => {}
                Err(error) => {
                    tracing::warn!(%agent, %error, "the file of an agent is gone, and it could not be stopped")
                }
            }
        }
        for put in std::mem::take(&mut changes.put) {
            let done = match folder.has_agent(put.agent.as_str()) {
                true => match self.agents().replace(put.spec.clone()).await {
                    Err(AgentError::Unknown { .. }) => self.agents().spawn(put.spec).await,
                    done => done,
                },
                false => self.agents().spawn(put.spec).await,
            };
            if let Err(error) = done {
                changes.fail(folder, &put.file, &error.to_string());
            }
        }
        let reports = changes.reports.clone();
        folder.take(changes);
        Ok(reports)
    }
}
