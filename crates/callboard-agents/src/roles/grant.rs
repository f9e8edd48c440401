//! What the agents of a role may be given at most, as data.

use std::fmt;
use std::sync::Arc;

use callboard::messages::{Authority, Effect};

use crate::program::is_always_passed;

/// What an agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// A tool by its name, and its effect if that is known.
    Tool(&'a str, Option<Effect>),
    /// To cause an effect, by itself or through others.
    Effect(Effect),
    /// A namespace of the shared context.
    Namespace(&'a str),
    /// A variable of the environment of the board.
    Variable(&'a str),
    /// The socket of Docker, or of another service that starts containers.
    DockerSocket,
}

/// The most that an agent may be given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grant {
    /// The tools that it may use itself, by their names.
    pub(crate) tools: Names,
    /// The tools that it may use itself, by their effects.
    pub(crate) tools_with: Authority,
    /// What it may cause, by itself or through others.
    pub(crate) authority: Authority,
    /// Namespaces of the shared context, beside its own memory.
    pub(crate) namespaces: Names,
    /// Variables of the environment of the board.
    pub(crate) variables: Names,
    /// Whether a program may reach the sockets of services that start containers.
    pub(crate) docker_socket: bool,
}

/// Names, of which those that end with `*` stand for all that begin as they do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Names(pub(crate) Arc<[Arc<str>]>);

impl Grant {
    pub(crate) fn everything() -> Self {
        Self {
            tools: Names::of(["*"]),
            tools_with: Authority::of([]),
            authority: Authority::ALL,
            namespaces: Names::of(["*"]),
            variables: Names::of(["*"]),
            docker_socket: true,
        }
    }

    /// Whether it includes what is asked for. A tool whose effect is unknown is included if its effect may be one that is.
    pub(crate) fn has(&self, asked: Asked<'_>) -> bool {
        match asked {
            Asked::Tool(name, Some(effect)) => {
                self.authority.allows(effect) && (self.tools.have(name) || self.tools_with.allows(effect))
            }
            Asked::Tool(name, None) => self.tools.have(name) || self.tools_with != Authority::of([]),
            Asked::Effect(effect) => self.authority.allows(effect),
            Asked::Namespace(name) => self.namespaces.have(name),
            Asked::Variable(name) => is_always_passed(name) || self.variables.have(name),
            Asked::DockerSocket => self.docker_socket,
        }
    }

    /// What it has in place of something that it does not include.
    pub(crate) fn instead_of(&self, asked: Asked<'_>) -> String {
        let [tools, authority, namespaces, variables, _] = self.parts();
        match asked {
            Asked::Tool(_, Some(effect)) if !self.authority.allows(effect) => authority,
            Asked::Tool(..) => tools,
            Asked::Effect(_) => authority,
            Asked::Namespace(_) => namespaces,
            Asked::Variable(_) => variables,
            Asked::DockerSocket => "no such socket".to_owned(),
        }
    }

    /// Each of its parts in words.
    fn parts(&self) -> [String; 5] {
        let effects = |authority: Authority| authority.effects().map(Effect::name);
        let listed = |words: Vec<&str>| match words[..] {
            [] => "none".to_owned(),
            ["*"] => "all".to_owned(),
            _ => words.join(", "),
        };
        let mut tools: Vec<&str> = effects(self.tools_with).collect();
        tools.extend(self.tools.iter());
        let authority = if self.authority == Authority::ALL { vec!["*"] } else { effects(self.authority).collect() };
        let docker_socket = if self.docker_socket { "yes" } else { "no" };
        [
            format!("tools: {}", listed(tools)),
            format!("authority: {}", listed(authority)),
            format!("namespaces: {}", listed(self.namespaces.iter().collect())),
            format!("variables: {}", listed(self.variables.iter().collect())),
            format!("Docker's socket: {docker_socket}"),
        ]
    }

    /// Whether the other one includes everything that this one does.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.tools.are_within(&other.tools)
            && (self.tools_with.is_within(other.tools_with) || other.tools.have_all())
            && self.authority.is_within(other.authority)
            && self.namespaces.are_within(&other.namespaces)
            && self.variables.are_within(&other.variables)
            && (other.docker_socket || !self.docker_socket)
    }
}

impl Names {
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        Self(names.map(Arc::from).into())
    }

    pub(crate) fn have(&self, name: &str) -> bool {
        self.0.iter().any(|entry| match entry.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => **entry == *name,
        })
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| &**entry)
    }

    fn have_all(&self) -> bool {
        self.0.iter().any(|entry| **entry == *"*")
    }

    fn are_within(&self, other: &Self) -> bool {
        // As a name, an entry that ends with `*` begins as the other one, or equals it.
        self.0.iter().all(|entry| other.have(entry))
    }
}

/// One line, with the keys that a declaration of the role has.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().join("; "))
    }
}
