//! Tools of servers that speak the Model Context Protocol (docs/mcp.md), by the crate `rmcp`.
//!
//! Nothing from a server is trusted: the effects of its tools are those in our own document and not those that it declares, their
//! answers are tainted, and names, schemas and sizes are checked here. The rules are pure (`names`, `offers`, `answer`,
//! `starts`); a connection starts its server when it is needed (`connection`), over pipes (`pipes`) or HTTP (`web`).

mod answer;
mod connection;
mod document;
mod names;
mod offers;
mod pipes;
mod session;
mod settings;
mod starts;
mod tool;
mod web;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard_text::{quoted, visible, visible_lines};
use futures::future::join_all;

use super::program;
use super::tool::Tools;

use connection::Connection;
use offers::Refused;
use settings::Reached;
use tool::McpTool;

/// Servers whose tools agents may use. A cheap clone.
///
/// A server that is a program is started when its tools are asked for, and again at the next use when it has ended. It is killed,
/// with what it has started, when neither this nor a tool of it is left.
///
/// ```no_run
/// use callboard::env::Env;
/// use callboard_agents::{McpServers, Tools};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let servers = McpServers::from_toml(&Env::system(), "mcp.toml", r#"
///     [[servers]]
///     name = "github"
///     command = ["npx", "-y", "@modelcontextprotocol/server-github"]
///     env_from = ["GITHUB_TOKEN"]
///     effect = "reads"
///     effects = { create_issue = "writes" }
/// "#)?;
/// let mut tools = Tools::new();
/// for problem in servers.add_to(&mut tools).await {
///     eprintln!("{problem}");
/// }
/// assert!(tools.names().any(|name| name == "mcp__github__create_issue"));
/// # Ok::<(), callboard_agents::Defects>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct McpServers(Arc<[Arc<Connection>]>);

/// Why a server, or one of its tools, cannot be used. The other ones can. It is shown with the line that declares the server, and
/// with its program or its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpProblem {
    /// The server, as the document names it.
    pub server: String,
    /// Where it is declared: the document and the line, as `mcp.toml:3`.
    pub place: String,
    /// How it is reached: its program, or its address.
    pub reached_by: String,
    /// The tool, as the server names it; `None` if the server itself cannot be used.
    pub tool: Option<String>,
    /// What is wrong, in words; it may have several lines.
    pub problem: String,
}

impl McpServers {
    /// Returns the names of the servers, in the order of the document.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|connection| connection.name())
    }

    /// Returns whether no server is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the folder that servers which are programs start in, which is the current one, and the paths that their command lines name,
    /// which need not exist: every word is taken for one. Of absolute paths only those in `project` or in that folder are returned.
    ///
    /// # Errors
    /// The current folder cannot be determined.
    pub fn paths(&self, project: &Path) -> io::Result<Vec<PathBuf>> {
        let folder = std::env::current_dir()?;
        let of = |connection: &Arc<Connection>| match &connection.settings().reached {
            Reached::Program { command, env, env_from: _ } => program::paths(command, env, (project, &folder)),
            Reached::Address { .. } => Vec::new(),
        };
        Ok(self.0.iter().flat_map(of).collect())
    }

    /// Starts all servers side by side, asks each for its tools, and adds those that can be used, as `mcp__SERVER__TOOL`. What
    /// cannot be used is returned, and harms nothing else.
    pub async fn add_to(&self, tools: &mut Tools) -> Vec<McpProblem> {
        let mut problems = Vec::new();
        for (connection, offered) in self.0.iter().zip(join_all(self.0.iter().map(|one| one.offered())).await) {
            let settings = connection.settings();
            let reported = |tool, problem| McpProblem {
                server: connection.name().to_owned(),
                place: settings.place.to_string(),
                reached_by: settings.reached_by(),
                tool,
                problem,
            };
            let (offers, refused) = match offered {
                Ok(offered) => offered,
                Err(problem) => {
                    problems.push(reported(None, problem));
                    continue;
                }
            };
            problems.extend(refused.into_iter().map(|Refused { tool, problem }| reported(Some(tool), problem)));
            for (name, offer) in &*offers {
                let tool = McpTool::new(connection, name, offer);
                if let Err(error) = tools.add(Arc::new(tool)) {
                    problems.push(reported(Some(name.clone()), error.to_string()));
                }
            }
        }
        problems
    }
}

impl fmt::Display for McpProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = quoted(&self.server);
        write!(f, "{}: ", visible(&self.place))?;
        match &self.tool {
            Some(tool) => write!(f, "the tool {} of the MCP server {server} is refused: ", quoted(tool))?,
            None => write!(f, "the MCP server {server} ({}) ", visible(&self.reached_by))?,
        }
        f.write_str(&visible_lines(&self.problem))
    }
}

impl std::error::Error for McpProblem {}

/// Shows only the names: other fields may be secret.
impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
