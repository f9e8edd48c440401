//! Circles of files: each of a circle imports, over the others, itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Import;

/// Files that all import each other, directly or over others of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// In the order of their names.
    pub files: Vec<PathBuf>,
    /// What they import of each other.
    pub imports: Vec<Import>,
}

/// The strongly connected components with more than one file, largest first.
pub fn circles(imports: &[Import]) -> Vec<Circle> {
    let mut graph: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for import in imports {
        graph.entry(&import.from).or_default().insert(&import.to);
        graph.entry(&import.to).or_default();
    }
    let mut search = Search { graph: &graph, state: BTreeMap::new(), open: Vec::new(), found: Vec::new() };
    for file in graph.keys() {
        if !search.state.contains_key(file) {
            search.visit(file);
        }
    }
    let mut circles: Vec<Circle> = search.found.into_iter().map(|files| circle(files, imports)).collect();
    circles.sort_by(|one, other| (other.files.len(), &one.files).cmp(&(one.files.len(), &other.files)));
    circles
}

fn circle(files: BTreeSet<&Path>, imports: &[Import]) -> Circle {
    let is_within = |import: &&Import| files.contains(&*import.from) && files.contains(&*import.to);
    Circle {
        imports: imports.iter().filter(is_within).cloned().collect(),
        files: files.into_iter().map(Path::to_owned).collect(),
    }
}

/// Tarjan's algorithm: one depth-first walk, in which a file whose component is not complete stays open.
struct Search<'a> {
    graph: &'a BTreeMap<&'a Path, BTreeSet<&'a Path>>,
    state: BTreeMap<&'a Path, State>,
    open: Vec<&'a Path>,
    found: Vec<BTreeSet<&'a Path>>,
}

#[derive(Clone, Copy)]
struct State {
    /// The lowest place in the order of the walk that can be reached within the component.
    low: usize,
    is_open: bool,
}

impl<'a> Search<'a> {
    /// Visits a file and what it imports; returns the lowest place that it reaches.
    fn visit(&mut self, file: &'a Path) -> usize {
        let place = self.state.len();
        let mut low = place;
        self.state.insert(file, State { low, is_open: true });
        self.open.push(file);
        for next in &self.graph[file] {
            match self.state.get(next) {
                None => low = low.min(self.visit(next)),
                Some(state) if state.is_open => low = low.min(state.low),
                Some(_) => {}
            }
        }
        self.state.insert(file, State { low, is_open: true });
        if low == place {
            let start = self.open.iter().rposition(|open| *open == file).unwrap_or_default();
            let files: BTreeSet<_> = self.open.split_off(start).into_iter().collect();
            for file in &files {
                self.state.insert(file, State { low, is_open: false });
            }
            if files.len() > 1 {
                self.found.push(files);
            }
        }
        low
    }
}
