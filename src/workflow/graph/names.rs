//! Resolves the names in a template, by where it is written.

use std::cell::RefCell;
use std::sync::Arc;

use callboard_documents::template::{Fault, Names};
use callboard_text::{did_you_mean, nearest, quoted};

use super::compile::Compiler;
use super::vars::{Part, Var};
use super::{Level, LevelKind, UNDECLARED};

/// The readable parts of a node's end.
const PARTS: [&str; 3] = ["output", "outcome", "error"];

/// The position of a template.
#[derive(Clone, Copy)]
pub(super) struct Here {
    pub(super) place: u32,
    /// The node that it belongs to; `None` if it is read at the end of the block.
    pub(super) node: Option<u32>,
    /// It is read when the node has ended, and may name it.
    pub(super) is_after: bool,
}

pub(super) struct Scope<'a, 'b> {
    pub(super) compiler: &'a Compiler<'b>,
    pub(super) here: Here,
    /// The fields of the workflow's input that were named.
    pub(super) fields: RefCell<Vec<Arc<str>>>,
    /// The nodes within which nodes were named.
    pub(super) inner: RefCell<Vec<(u32, u32)>>,
}

impl Scope<'_, '_> {
    fn level(&self, place: u32) -> &Level {
        &self.compiler.levels[place as usize]
    }

    /// The number of levels up to the first block for which `is_it` is true.
    fn up(&self, is_it: impl Fn(&Level) -> bool) -> Option<(u32, u32)> {
        let (mut up, mut place) = (0, self.here.place);
        loop {
            let level = self.level(place);
            if is_it(level) {
                return Some((up, place));
            }
            if level.is_closed() {
                return None;
            }
            (up, place) = (up + 1, level.within?.0);
        }
    }

    fn field(&self, name: &str) -> Var {
        let (up, place) = self.up(Level::is_closed).unwrap_or_default();
        if place == 0 {
            self.fields.borrow_mut().push(name.into());
        }
        Var::Field { up, name: name.into() }
    }

    /// A node of the workflow, seen from here.
    fn node(&self, name: &str, part: Part) -> Option<Result<Var, Fault>> {
        let closed = self.level(self.here.place).closed;
        // The only node of a repeated body has the name of the loop or map, and is nearer.
        let own =
            Some(self.level(self.here.place)).filter(|level| level.names.len() == 1 && level.kind == LevelKind::Loop);
        let own = own.and_then(|level| level.names.get(name)).map(|node| (self.here.place, *node));
        let (mut place, mut node) = own.or_else(|| self.compiler.places.get(&closed)?.get(name).copied())?;
        // The enclosing blocks of the template, with the node in each that contains it.
        let mut enclosing = vec![(self.here.place, self.here.node, self.here.is_after)];
        while let Some((place, _, _)) = enclosing.last().copied()
            && place != closed
            && let Some((outer, node)) = self.level(place).within
        {
            enclosing.push((outer, Some(node), false));
        }
        let mut inside = Vec::new();
        loop {
            let seen = enclosing.iter().position(|(block, _, _)| *block == place);
            if let Some(up) = seen {
                let (_, here, is_after) = enclosing[up];
                let is_before = match here {
                    _ if !self.compiler.knows_edges => true,
                    None => true,
                    Some(here) if here == node => is_after,
                    Some(here) => self.level(place).shape.leads_to(node, here),
                };
                if !is_before {
                    let fault = Fault::new(format!("{} has not ended when this is read", quoted(name)));
                    return Some(Err(fault.advise(format!("let it come after {name}"))));
                }
                let up = u32::try_from(up).unwrap_or(u32::MAX);
                return Some(Ok(Var::Node { up, node, inside: inside.into(), part }));
            }
            let level = self.level(place);
            if level.kind == LevelKind::Map {
                let fault = Fault::new(format!("{} is done for several items", quoted(name)));
                return Some(Err(fault.advise("read the output of the node that has them all: it is a list")));
            }
            inside.insert(0, node);
            (place, node) = level.within?;
            self.inner.borrow_mut().push((place, node));
        }
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let closed = self.level(self.here.place).closed;
        nearest(name, self.compiler.places.get(&closed)?.keys().map(|name| &**name))
    }
}

impl Names<Var> for Scope<'_, '_> {
    fn resolve(&self, path: &[&str]) -> Result<(Var, usize), Fault> {
        let in_kind = |kind: LevelKind, what: &str| {
            let outside = || Fault::new(format!("`{}` is known only within a {what}", path[0]));
            self.up(|level| level.kind == kind).map(|(up, _)| up).ok_or_else(outside)
        };
        match (path[0], path.get(1)) {
            ("input", Some(field)) => Ok((self.field(field), 2)),
            ("input", None) => {
                let (up, _) = self.up(Level::is_closed).unwrap_or_default();
                Ok((Var::Input { up }, 1))
            }
            ("state", Some(channel)) => match self.compiler.schema.reducer(channel) {
                Ok(_) => Ok((Var::Channel((*channel).into()), 2)),
                Err(error) => Err(Fault::new(error.to_string()).advise(UNDECLARED)),
            },
            ("state", None) => Ok((Var::State, 1)),
            ("item", _) => Ok((Var::Item { up: in_kind(LevelKind::Map, "map")? }, 1)),
            ("index", _) => Ok((Var::Index { up: in_kind(LevelKind::Map, "map")? }, 1)),
            ("iteration", _) => Ok((Var::Iteration { up: in_kind(LevelKind::Loop, "loop")? }, 1)),
            ("previous", _) => Ok((Var::Previous { up: in_kind(LevelKind::Loop, "loop")? }, 1)),
            (name, part) => {
                let part = match part {
                    None => Some(Part::All),
                    Some(&"output") => Some(Part::Output),
                    Some(&"outcome") => Some(Part::Outcome),
                    Some(&"error") => Some(Part::Error),
                    Some(_) => None,
                };
                match self.node(name, part.unwrap_or(Part::All)) {
                    Some(Ok(_)) if part.is_none() => {
                        let fault = Fault::new(format!(
                            "of a node there are `output`, `outcome` and `error`, and no `{}`",
                            path[1]
                        ));
                        let meant = nearest(path[1], PARTS).map_or(format!("output.{}", path[1]), |part| part);
                        Err(fault.advise(format!("write `{name}.{meant}`")))
                    }
                    Some(found) => found.map(|var| (var, path.len().min(2))),
                    None if part.is_some() && part != Some(Part::All) => {
                        let problem =
                            format!("no node is named {}{}", quoted(name), did_you_mean(self.nearest(name).as_deref()));
                        let advice = format!("if the input has a field of this name, write `input.{}`", path.join("."));
                        Err(Fault::new(problem).advise(advice))
                    }
                    None => Ok((self.field(name), 1)),
                }
            }
        }
    }
}
