//! Roles: what the files of agents with a role may give them at most (SEMANTICS 11). Everything here is pure; `definition`
//! refuses files that ask for more, `llm` and `process` keep agents to their grants.

mod agent_grant;
mod grant;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use callboard::messages::{Authority, Effect};
use callboard_documents::toml::Item;
use callboard_documents::{Defects, Found};
use callboard_text::typo_of;

pub(crate) use agent_grant::AgentGrant;
use grant::Grant;
pub(crate) use grant::{Asked, Names};

const ADMIN: &str = "admin";
const DEVELOPER: &str = "developer";
const SPECIALIST: &str = "specialist";
const CLI: &str = "cli";

/// The roles that need no declaration.
const BUILT_IN: [&str; 4] = [ADMIN, DEVELOPER, SPECIALIST, CLI];

/// The roles that agents in files may have, each with a grant: the most that such a file can give its agent. `admin`, `developer`,
/// `specialist` and `cli` are built in (docs/agents.md has their grants); a role that is not declared grants what `specialist` does.
///
/// ```
/// use callboard_agents::{Definition, Roles};
/// let agent = "[agent]\nname = \"auditor\"\n[agent.announces]\nrole = \"auditor\"\n[agent.capabilities]\nauthority = [\"writes\"]";
/// assert!(Definition::reader().read("auditor.toml", agent).is_ok(), "a specialist may write");
///
/// let roles = Roles::from_toml("callboard.toml", "[roles.auditor]\ntools = [\"reads\", \"Task\"]\nauthority = [\"reads\", \"notes\"]")?;
/// let defects = Definition::reader().roles(&roles).read("auditor.toml", agent).unwrap_err();
/// assert!(defects.to_string().starts_with("auditor.toml:6:14: the role \"auditor\" does not grant the effect \"writes\""));
/// # Ok::<(), callboard_agents::Defects>(())
/// ```
#[derive(Clone, Debug)]
pub struct Roles {
    /// Those that are built in, and those that were declared.
    grants: Arc<BTreeMap<String, Arc<Grant>>>,
    without_role: Arc<Grant>,
}

/// The roles that are built in.
impl Default for Roles {
    fn default() -> Self {
        // All definitions that are read without declared roles share them.
        static BUILT_IN: LazyLock<Roles> = LazyLock::new(|| Roles::with(Vec::new()));
        BUILT_IN.clone()
    }
}

impl Roles {
    /// Reads the roles below the key `roles` of a document: `tools` (names, beginnings of names with `*`, or effects), `authority`,
    /// `namespaces`, `variables` and `docker_socket`. A key that a role does not have is as that of `specialist`. Other keys of the
    /// document are for others.
    ///
    /// # Errors
    /// Everything that is wrong with the roles.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, Defects> {
        let mut found = Found::default();
        let roles = callboard_documents::toml::read(text, "declare fewer roles", &mut found, |document, found| {
            document.get("roles").map(|item| Self::from_item(item, found))
        });
        found.or(roles.unwrap_or_default()).map_err(|defects| Defects::of(origin, Some(text), defects))
    }

    /// As [`Roles::from_toml`], of the value of the key alone: what is wrong with it is added to `found`.
    pub fn from_item(item: &Item<'_>, found: &mut Found) -> Self {
        Self::with(reading::roles(item, found))
    }

    fn with(declared: Vec<(String, Grant)>) -> Self {
        let built_in = BUILT_IN.map(|role| (role.to_owned(), built_in(role)));
        let grants = declared.into_iter().chain(built_in).map(|(role, grant)| (role, Arc::new(grant))).collect();
        let without_role = Grant { variables: Names::of([]), docker_socket: false, ..Grant::everything() };
        Self { grants: Arc::new(grants), without_role: Arc::new(without_role) }
    }

    /// What an agent in a file may be given, whose role this is.
    pub(crate) fn of(&self, role: Option<&str>) -> AgentGrant {
        let Some(role) = role else { return AgentGrant::without_role(Arc::clone(&self.without_role)) };
        match self.grants.get(role) {
            Some(grant) => AgentGrant::of_role(role, Arc::clone(grant)),
            None => {
                let likely = typo_of(role, self.grants.keys().map(String::as_str));
                AgentGrant::undeclared(role, likely.map(str::to_owned), Arc::new(built_in(SPECIALIST)))
            }
        }
    }
}

/// The grant of a role that is built in: each has less than the one before it.
fn built_in(role: &str) -> Grant {
    let everything = Grant::everything();
    match role {
        ADMIN => everything,
        DEVELOPER => Grant { variables: Names::of(["GITLAB_*"]), docker_socket: false, ..everything },
        CLI => Grant {
            tools: Names::of(["AskUser", "Task"]),
            tools_with: Authority::of([Effect::Reads]),
            authority: Authority::of([Effect::Reads, Effect::Notes]),
            namespaces: Names::of(["run"]),
            variables: Names::of([]),
            docker_socket: false,
        },
        _ => Grant {
            authority: Authority::of([Effect::Reads, Effect::Notes, Effect::Sends, Effect::Writes]),
            variables: Names::of([]),
            docker_socket: false,
            ..everything
        },
    }
}
