//! Agents whose files have defects: they are left out, and only commands that need one of them fail.

use std::path::Path;

use callboard::messages::{visible, visible_lines};
use callboard_agents::{Defects, Definition, DefinitionSource, FileReport, McpProblem};

use crate::page::{Failure, count};

use crate::quote::quoted;

/// An agent that cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct InvalidAgent {
    /// The path of its file.
    file: String,
    /// The name in its file, as far as one can be read.
    name: Option<String>,
    /// All its defects, with their places.
    why: String,
    /// The first defect in one line, and the number of the others.
    first: (String, usize),
}

/// The agents that cannot be used, in the order of their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct InvalidAgents(Vec<InvalidAgent>);

impl InvalidAgents {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The files with defects, and those that the folder refused beside others. Problems of an MCP server are added to agents that name
    /// its tools.
    pub(super) fn of(
        sources: &[DefinitionSource],
        read: &[Result<Definition, Defects>],
        refused: &[FileReport],
        servers: &[McpProblem],
    ) -> Self {
        let valid: Vec<&str> = read.iter().flatten().map(|definition| definition.name.as_str()).collect();
        let agents = sources.iter().zip(read).filter_map(|(source, read)| {
            let refusal = refused.iter().find(|report| Path::new(&source.origin).ends_with(&report.file));
            let (name, mut why, first) = match (read, refusal.and_then(FileReport::refusal)) {
                (Err(defects), _) => {
                    let why = defects.to_string();
                    let first = why.lines().next().unwrap_or_default().to_owned();
                    let named = named_in(&String::from_utf8_lossy(&source.bytes));
                    // The name may be that of an agent in another file.
                    (named.filter(|named| !valid.contains(&&**named)), why, (first, defects.list().len() - 1))
                }
                (Ok(definition), Some(why)) => {
                    let why = visible_lines(&in_folder(why, &refusal?.file, &source.origin));
                    let first = why.lines().next().unwrap_or_default().to_owned();
                    (Some(definition.name.to_string()), why, (first, 0))
                }
                (Ok(_), None) => return None,
            };
            let about = |problem: &&McpProblem| why.contains(&format!("mcp__{}__", problem.server));
            let about: String = servers.iter().filter(about).map(|problem| format!("\n{problem}")).collect();
            why.push_str(&about);
            Some(InvalidAgent { file: source.origin.clone(), name, why, first })
        });
        Self(agents.collect())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A warning for each; agents with the same problem share one. `check` is the command line that prints all defects.
    pub(super) fn warnings(&self, check: &str) -> Vec<String> {
        let line = |(reason, members): (&str, Vec<&InvalidAgent>)| match members.as_slice() {
            [only] => {
                let more = match only.first.1 {
                    0 => String::new(),
                    more => format!(" (and {}; {} prints all)", count(more, "more defect"), visible(check)),
                };
                format!("warning: the agent {} is left out: {}{more}", only.shown(), only.first.0)
            }
            several => format!("warning: the agents {} are left out: {reason}", names(several)),
        };
        self.groups().into_iter().map(line).collect()
    }

    /// All defects; one that several files share is reported once.
    pub(super) fn failure(&self) -> Failure {
        let groups = self.groups();
        let defects =
            groups.iter().map(|(_, members)| members.iter().map(|one| one.first.1 + 1).max().unwrap_or(0)).sum();
        let text = |(reason, members): &(&str, Vec<&InvalidAgent>)| match members.as_slice() {
            [only] => only.why.clone(),
            several => format!("the agents {} cannot be used: {reason}", names(several)),
        };
        match groups.as_slice() {
            [only] => Failure::usage(text(only)),
            several => {
                let texts: Vec<String> = several.iter().map(text).collect();
                Failure::usage(format!("{}\n\n{}", count(defects, "defect"), texts.join("\n\n")))
            }
        }
    }

    /// The agents, grouped by their problem.
    fn groups(&self) -> Vec<(&str, Vec<&InvalidAgent>)> {
        let mut groups: Vec<(&str, Vec<&InvalidAgent>)> = Vec::new();
        for agent in &self.0 {
            let reason = agent.reason();
            match groups.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, members)) => members.push(agent),
                None => groups.push((reason, vec![agent])),
            }
        }
        groups
    }

    /// Checks that no invalid agent has this name, or this file name.
    ///
    /// # Errors
    /// One has: all its defects.
    pub(crate) fn check(&self, wanted: &str) -> Result<(), Failure> {
        self.why(wanted).map_or(Ok(()), |why| Err(Failure::usage(why)))
    }

    /// Why the agent of this name cannot be used.
    pub(crate) fn why(&self, wanted: &str) -> Option<String> {
        let agent = self.0.iter().find(|agent| agent.is_named(wanted))?;
        Some(format!("the agent {} cannot be used:\n\n{}", visible(wanted), agent.why))
    }
}

fn names(agents: &[&InvalidAgent]) -> String {
    agents.iter().map(|agent| agent.shown()).collect::<Vec<_>>().join(", ")
}

impl InvalidAgent {
    /// Its defects, without the path of its file.
    fn reason(&self) -> &str {
        self.why.strip_prefix(&*self.file).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&self.why)
    }

    fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| format!("of {}", visible(&self.file)), |name| visible(&quoted(name)))
    }

    fn is_named(&self, wanted: &str) -> bool {
        let stem = Path::new(&self.file).file_stem().and_then(|stem| stem.to_str());
        match &self.name {
            Some(name) => name == wanted,
            None => stem == Some(wanted),
        }
    }
}

/// A report of a folder about a file, with the path as the command line names it.
fn in_folder(why: &str, file: &str, origin: &str) -> String {
    why.strip_prefix(file).map_or_else(|| why.to_owned(), |rest| format!("{origin}{rest}"))
}

/// The value of the first `name =` in a text that cannot be parsed.
fn named_in(text: &str) -> Option<String> {
    let value = |line: &str| Some(line.trim().strip_prefix("name")?.trim_start().strip_prefix('=')?.trim().to_owned());
    let written = text.lines().find_map(value)?;
    let quote = written.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    written[1..].split_once(quote).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_agent_is_found_in_a_text_with_defects() {
        assert_eq!(named_in("[agent\n name=\"a b\" # x\nmode = 3"), Some("a b".to_owned()));
        assert_eq!(named_in("[agent]\nnames = \"a\"\nname = 'b'"), Some("b".to_owned()));
        assert_eq!(named_in("[agent]\nname = 3"), None);
        assert_eq!(named_in(""), None);
    }
}
