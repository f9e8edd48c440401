//! Texts that name each other's workflows: read in the order of their dependencies, whatever the order of the input.

use std::collections::{BTreeMap, BTreeSet};

use callboard_documents::{Defect, Defects, Placed, text_of};
use callboard_text::quoted;

use super::draft::{Draft, Node, WorkDraft};
use super::reader::Reader;
use super::written::Workflow;
use super::{line, toml};

/// The text of one workflow, for [`Reader::all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What the text is called in errors, a file's name for example.
    pub origin: String,
    /// The text in UTF-8; other bytes are a defect.
    pub bytes: Vec<u8>,
    /// The syntax of the text.
    pub form: Form,
}

impl Source {
    /// The name of the workflow, and those of the workflows that it runs; `None` if its syntax is wrong.
    #[must_use]
    pub fn names(&self) -> Option<(String, Vec<String>)> {
        let Written { draft, named, .. } = Written::of(self).ok()?;
        Some((draft.name.value, named.into_iter().map(|named| named.value).collect()))
    }
}

/// The syntax that a workflow is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// TOML, as [`Workflow::from_toml`] reads it.
    Toml,
    /// The one-line syntax, as [`Workflow::from_line`] reads it.
    Line,
}

/// A text with valid syntax.
struct Written<'a> {
    origin: &'a str,
    text: &'a str,
    draft: Draft,
    /// The workflows that it names.
    named: Vec<Placed<String>>,
}

impl Reader {
    /// Reads texts that may name each other's workflows, and those that the reader was given, in whatever order they come.
    ///
    /// ```
    /// use callboard::workflow::{Form, Source, Workflow};
    /// let source = |origin: &str, text: &str| {
    ///     Source { origin: origin.to_owned(), bytes: text.as_bytes().to_vec(), form: Form::Line }
    /// };
    /// let texts = [
    ///     source("outer", r#"workflow outer: plan -> draft(workflow="inner")"#),
    ///     source("inner", "workflow inner: write -> review"),
    /// ];
    /// let read = Workflow::reader().all(&texts).into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(read[0].plan().cast().len(), 3);
    /// # Ok::<(), callboard::workflow::Defects>(())
    /// ```
    ///
    /// Returns for each text its workflow, or everything that is wrong with it: also that two have one name, that a workflow
    /// runs itself through others, and that a workflow that it runs has defects of its own.
    #[must_use]
    pub fn all(&self, sources: &[Source]) -> Vec<Result<Workflow, Defects>> {
        let mut read: Vec<Option<Result<Workflow, Defects>>> = vec![None; sources.len()];
        let (mut written, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for (position, source) in sources.iter().enumerate() {
            match Written::of(source) {
                Ok(one) => {
                    let first = *owners.entry(one.draft.name.value.clone()).or_insert(position);
                    if first == position {
                        written.insert(position, one);
                    } else {
                        read[position] = Some(Err(one.taken_by(&sources[first].origin)));
                    }
                }
                Err(defects) => read[position] = Some(Err(defects)),
            }
        }
        let mut reader = self.clone();
        while let Some(position) = next(&written, &owners) {
            let Some(one) = written.remove(&position) else { break };
            let broken = |named: &Placed<String>| {
                let owner = *owners.get(&named.value)?;
                let is_broken = matches!(read.get(owner), Some(Some(Err(_))));
                is_broken.then(|| broken(named, &sources[owner].origin))
            };
            let broken = each_name_once(&one.named, broken);
            let workflow = reader.check(one, broken);
            if let Ok(workflow) = &workflow {
                reader = reader.with(workflow);
            }
            read[position] = Some(workflow);
        }
        // The remaining texts depend on themselves.
        let rest: BTreeSet<usize> = written.keys().copied().collect();
        for (position, one) in written {
            let circular = |named: &Placed<String>| {
                let is_left = owners.get(&named.value).is_some_and(|owner| rest.contains(owner));
                is_left.then(|| circular(named, &one.draft.name.value))
            };
            let circular = each_name_once(&one.named, circular);
            read[position] = Some(self.check(one, circular));
        }
        read.into_iter().flatten().collect()
    }

    /// Checks a text with these known defects of names.
    fn check(&self, written: Written<'_>, known: Vec<(String, Defect)>) -> Result<Workflow, Defects> {
        let Written { origin, text, mut draft, .. } = written;
        let (names, known): (BTreeSet<String>, Vec<Defect>) = known.into_iter().unzip();
        // The known defect is more precise than an unknown name.
        leave_out(&mut draft.nodes, &names);
        let read = Workflow::of(draft, Some((origin, text)), self.library());
        if known.is_empty() {
            return read;
        }
        let mut list = read.err().map(|defects| defects.list().to_vec()).unwrap_or_default();
        list.extend(known);
        Err(Defects::of(origin, Some(text), list))
    }
}

impl<'a> Written<'a> {
    fn of(source: &'a Source) -> Result<Self, Defects> {
        let Source { origin, bytes, form } = source;
        let wrong = |text: &str, defects| Defects::of(origin, Some(text), defects);
        let text = text_of(bytes).map_err(|defect| wrong(&String::from_utf8_lossy(bytes), vec![defect]))?;
        let draft = match form {
            Form::Toml => toml::parse(text),
            Form::Line => line::parse(text),
        };
        let draft = draft.map_err(|defects| wrong(text, defects))?;
        let mut named = Vec::new();
        add_named(&draft.nodes, &mut named);
        Ok(Self { origin, text, draft, named })
    }

    fn taken_by(&self, other: &str) -> Defects {
        let problem = format!("{} has a workflow of the name {} too", other, quoted(&self.draft.name.value));
        let defect = Defect::new(&self.draft.name.place, problem).advise("give one of them another name");
        Defects::of(self.origin, Some(self.text), vec![defect])
    }
}

/// The first text that depends on none of the others.
fn next(written: &BTreeMap<usize, Written<'_>>, owners: &BTreeMap<String, usize>) -> Option<usize> {
    let is_waiting = |named: &Placed<String>| owners.get(&named.value).is_some_and(|owner| written.contains_key(owner));
    written.iter().find(|(_, one)| !one.named.iter().any(is_waiting)).map(|(position, _)| *position)
}

/// The defects of the named workflows, each at the first position that names it.
fn each_name_once(
    named: &[Placed<String>],
    wrong: impl Fn(&Placed<String>) -> Option<Defect>,
) -> Vec<(String, Defect)> {
    let mut seen = BTreeSet::new();
    let first = named.iter().filter(|named| seen.insert(&named.value));
    first.filter_map(|named| Some((named.value.clone(), wrong(named)?))).collect()
}

/// Replaces the work of nodes that run these workflows by a join.
fn leave_out(nodes: &mut [Node], names: &BTreeSet<String>) {
    for node in nodes {
        match &mut node.work {
            WorkDraft::Workflow(workflow) if names.contains(&workflow.value) => node.work = WorkDraft::Join,
            WorkDraft::Nodes { nodes, .. } => leave_out(nodes, names),
            WorkDraft::Workflow(_) | WorkDraft::Agent(_) | WorkDraft::Join => {}
        }
    }
}

fn add_named(nodes: &[Node], named: &mut Vec<Placed<String>>) {
    for node in nodes {
        match &node.work {
            WorkDraft::Workflow(workflow) => named.push(workflow.clone()),
            WorkDraft::Nodes { nodes, .. } => add_named(nodes, named),
            WorkDraft::Agent(_) | WorkDraft::Join => {}
        }
    }
}

fn broken(named: &Placed<String>, origin: &str) -> Defect {
    let problem = format!("the workflow {} has defects of its own", quoted(&named.value));
    Defect::new(&named.place, problem).advise(format!("fix {origin} first"))
}

fn circular(named: &Placed<String>, own: &str) -> Defect {
    let (problem, advice) = if named.value == own {
        (format!("the workflow {} would run itself", quoted(own)), "repeat nodes with a loop")
    } else {
        let problem = format!("the workflow {} runs this one again, or waits for one that does", quoted(&named.value));
        (problem, "break the circle: repeat nodes with a loop")
    };
    Defect::new(&named.place, problem).advise(advice)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn outcomes(texts: &[(&str, &str)]) -> Vec<String> {
        let source = |(origin, text): &(&str, &str)| Source {
            origin: (*origin).to_owned(),
            bytes: text.as_bytes().to_vec(),
            form: if text.starts_with('[') { Form::Toml } else { Form::Line },
        };
        let sources: Vec<Source> = texts.iter().map(source).collect();
        let outcome = |read: Result<Workflow, Defects>| match read {
            Ok(workflow) => format!("{} of {}", workflow.name(), workflow.plan().cast().len()),
            Err(defects) => {
                let problems: Vec<&str> = defects.list().iter().map(|defect| &*defect.problem).collect();
                problems.join("; ")
            }
        };
        Workflow::reader().all(&sources).into_iter().map(outcome).collect()
    }

    #[test]
    fn workflows_are_read_in_the_order_in_which_they_need_each_other() {
        let toml = "[workflow]\nname = \"b\"\n[[workflow.tasks]]\nname = \"x\"\nworkflow = \"c\"\n";
        let texts = [("1", "workflow a: x(workflow=\"b\") -> y"), ("2", toml), ("3", "workflow c: p -> q")];
        assert_eq!(outcomes(&texts), ["a of 3", "b of 2", "c of 2"]);
    }

    #[test]
    fn a_circle_is_a_defect_of_each_that_is_in_it_or_waits_for_it() {
        let texts = [
            ("1", "workflow a: x(workflow=\"b\")"),
            ("2", "workflow b: x(workflow=\"a\")"),
            ("3", "workflow c: x(workflow=\"c\")"),
            ("4", "workflow d: x"),
        ];
        let again = |name| format!("the workflow {name:?} runs this one again, or waits for one that does");
        assert_eq!(
            outcomes(&texts),
            [again("b"), again("a"), "the workflow \"c\" would run itself".into(), "d of 1".into()]
        );
    }

    #[test]
    fn a_workflow_that_names_one_with_defects_has_that_defect_beside_its_own() {
        let texts = [
            ("1", "workflow a: x(workflow=\"b\") -> y(input=\"{{ z.output }}\") -> v(workflow=\"none\")"),
            ("2", "workflow b: x(input=\"{{\")"),
            ("3", "workflow b: y"),
            ("4", "workflow"),
        ];
        let found = outcomes(&texts);
        assert!(
            found[0].starts_with(
                "the workflow \"b\" has defects of its own; no node is named \"z\"; no workflow is named \"none\""
            ),
            "{found:?}"
        );
        assert!(!found[1].is_empty());
        assert_eq!(found[2], "2 has a workflow of the name \"b\" too");
        assert!(!found[3].is_empty());
    }
}
