//! The grant of one agent, and the words for what it lacks.

use std::sync::Arc;

use callboard::messages::Authority;
use callboard_documents::{Defect, Place};
use callboard_text::{did_you_mean, quoted};

use super::SPECIALIST;
use super::grant::{Asked, Grant};

/// What an agent may be given at most, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentGrant {
    source: Source,
    grant: Arc<Grant>,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// The agent is compiled in: its code decides.
    Code,
    /// Its file has no role.
    WithoutRole,
    /// Its role is built in or declared.
    Role(Arc<str>),
    /// There is no such role, so it has the grant of a specialist.
    Undeclared { role: Arc<str>, likely: Option<String> },
}

impl AgentGrant {
    /// The grant of an agent that is compiled in.
    pub(crate) fn of_code() -> Self {
        Self { source: Source::Code, grant: Arc::new(Grant::everything()) }
    }

    pub(super) fn without_role(grant: Arc<Grant>) -> Self {
        Self { source: Source::WithoutRole, grant }
    }

    pub(super) fn of_role(role: &str, grant: Arc<Grant>) -> Self {
        Self { source: Source::Role(role.into()), grant }
    }

    pub(super) fn undeclared(role: &str, likely: Option<String>, grant: Arc<Grant>) -> Self {
        Self { source: Source::Undeclared { role: role.into(), likely }, grant }
    }

    pub(crate) fn authority(&self) -> Authority {
        self.grant.authority
    }

    pub(crate) fn has(&self, asked: Asked<'_>) -> bool {
        self.grant.has(asked)
    }

    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.grant.is_within(&other.grant)
    }

    /// The variables of the environment that tools may pass on; `None` if their code decides.
    pub(crate) fn variables(&self) -> Option<Arc<[Arc<str>]>> {
        match self.source {
            Source::Code => None,
            Source::WithoutRole | Source::Role(_) | Source::Undeclared { .. } => {
                Some(Arc::clone(&self.grant.variables.0))
            }
        }
    }

    /// The defect of something in a file that the agent may not be given.
    pub(crate) fn defect(&self, asked: Asked<'_>, place: &Place) -> Option<Defect> {
        let (problem, advice) = self.lacks(asked)?;
        Some(Defect::new(place, problem).advise(advice))
    }

    /// Why it may not be given what is asked for, and what to do; `None` if it may.
    pub(crate) fn lacks(&self, asked: Asked<'_>) -> Option<(String, String)> {
        if self.has(asked) {
            return None;
        }
        let (what, instead) = (named(asked), self.grant.instead_of(asked));
        Some(match &self.source {
            Source::Code | Source::WithoutRole => (
                format!("an agent without a role may not have {what}"),
                "remove it, or give the agent a role that grants it under [agent.announces], as role = \"admin\""
                    .to_owned(),
            ),
            Source::Role(role) => (
                format!("the role {} does not grant {what}", quoted(role)),
                format!("it grants {instead}; remove it here, or give the agent another role under [agent.announces]"),
            ),
            Source::Undeclared { role, likely } => (
                format!(
                    "the role {} is not declared, so it grants what {SPECIALIST} does, which is not {what}{}",
                    quoted(role),
                    did_you_mean(likely.as_deref())
                ),
                format!(
                    "{SPECIALIST} grants {instead}; remove it here, or declare [roles.{}] in callboard.toml",
                    as_key(role)
                ),
            ),
        })
    }

    /// One line about what its role grants; `None` without a role.
    pub(crate) fn text(&self) -> Option<String> {
        match &self.source {
            Source::Code | Source::WithoutRole => None,
            Source::Role(role) => Some(format!("role {role} grants {}", self.grant)),
            Source::Undeclared { role, .. } => {
                Some(format!("role {role} is not declared and grants what {SPECIALIST} does, {}", self.grant))
            }
        }
    }
}

/// What is asked for, in words.
fn named(asked: Asked<'_>) -> String {
    match asked {
        Asked::Tool(name, Some(effect)) => {
            format!("the tool {}, whose effect is {}", quoted(name), quoted(effect.name()))
        }
        Asked::Tool(name, None) => format!("the tool {}", quoted(name)),
        Asked::Effect(effect) => format!("the effect {}", quoted(effect.name())),
        Asked::Namespace(name) => format!("the namespace {}", quoted(name)),
        Asked::Variable(name) => format!("the variable {name}"),
        Asked::DockerSocket => "a socket of Docker or of another service that starts containers".to_owned(),
    }
}

/// The name as a key of TOML.
fn as_key(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare { name.to_owned() } else { quoted(name) }
}
