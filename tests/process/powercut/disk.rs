//! A disk of which it is known when everything on it was written and when it was synced.
//!
//! A file's content and a folder's names are each a list of changes. A sync that has returned makes those durable that had
//! returned when it began. Of the others a power cut keeps any: none, all, a beginning, some; and of a write perhaps only
//! a part. That is what POSIX allows; file systems mostly do better.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use callboard::testing::conformance::WriteReport;

/// Places in the record at which a call began and ended.
type Span = (usize, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node(usize);

enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
    Link(String, Node),
    Unlink(String),
    Rename(String, String),
}

/// A file or a folder.
#[derive(Default)]
struct History {
    is_folder: bool,
    changes: Vec<(Span, Change)>,
    syncs: Vec<Span>,
}

pub(crate) struct Disk {
    root: String,
    nodes: Vec<History>,
    /// Where everything is as the running process sees it.
    paths: BTreeMap<String, Node>,
    moments: usize,
    heard: Vec<(usize, WriteReport)>,
    lives: Vec<usize>,
}

/// Files by their paths; folders have no content.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Image(BTreeMap<String, Option<Vec<u8>>>);

impl Image {
    pub(crate) fn of(root: &Path) -> Self {
        let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let name = entry.path().strip_prefix(root).unwrap().display().to_string();
                let is_folder = entry.path().is_dir();
                found.insert(name, (!is_folder).then(|| fs::read(entry.path()).unwrap()));
                folders.extend(is_folder.then(|| entry.path()));
            }
        }
        Self(found)
    }

    pub(crate) fn write(&self, root: &Path) {
        for (path, content) in &self.0 {
            let path = root.join(path);
            match content {
                Some(content) => fs::write(path, content).unwrap(),
                None => fs::create_dir(path).unwrap(),
            }
        }
    }
}

impl Disk {
    /// An empty folder, which is durable.
    pub(crate) fn new(root: &Path) -> Self {
        let root = root.display().to_string();
        let nodes = vec![History { is_folder: true, ..History::default() }];
        let paths = BTreeMap::from([(root.clone(), Node(0))]);
        Self { root, nodes, paths, moments: 0, heard: Vec::new(), lives: Vec::new() }
    }

    pub(crate) fn begin_life(&mut self) {
        self.lives.push(self.moments);
    }

    pub(crate) fn next_moment(&mut self) -> usize {
        self.moments += 1;
        self.moments - 1
    }

    pub(crate) fn moments(&self) -> usize {
        self.moments
    }

    pub(crate) fn hear(&mut self, moment: usize, words: &str) {
        self.heard.extend(words.lines().filter_map(|line| Some((moment, line.parse().ok()?))));
    }

    /// The life that a moment is in, and what its process had reported by then.
    pub(crate) fn reports_by(&self, moment: usize) -> (usize, Vec<WriteReport>) {
        let life = self.lives.iter().rposition(|begin| *begin <= moment).unwrap();
        let reports = self.heard.iter().filter(|(heard, _)| (self.lives[life]..=moment).contains(heard));
        (life, reports.map(|(_, report)| *report).collect())
    }

    fn parent(&self, path: &str) -> Option<(Node, String)> {
        let (folder, name) = path.strip_prefix(&self.root)?.rsplit_once('/')?;
        let folder = *self.paths.get(&format!("{}{folder}", self.root))?;
        Some((folder, name.to_owned()))
    }

    fn change(&mut self, node: Node, at: Span, change: Change) {
        self.nodes[node.0].changes.push((at, change));
    }

    fn link(&mut self, at: Span, path: &str, is_folder: bool) {
        let Some((folder, name)) = self.parent(path).filter(|_| !self.paths.contains_key(path)) else { return };
        let node = Node(self.nodes.len());
        self.nodes.push(History { is_folder, ..History::default() });
        self.paths.insert(path.to_owned(), node);
        self.change(folder, at, Change::Link(name, node));
    }

    pub(crate) fn create(&mut self, at: Span, path: &str) {
        self.link(at, path, false);
    }

    pub(crate) fn make_folder(&mut self, at: Span, path: &str) {
        self.link(at, path, true);
    }

    pub(crate) fn write(&mut self, at: Span, path: &str, offset: u64, bytes: Vec<u8>) {
        if let Some(node) = self.paths.get(path) {
            self.change(*node, at, Change::Write(offset, bytes));
        }
    }

    pub(crate) fn truncate(&mut self, at: Span, path: &str, length: u64) {
        if let Some(node) = self.paths.get(path) {
            self.change(*node, at, Change::Truncate(length));
        }
    }

    pub(crate) fn sync(&mut self, at: Span, path: &str) {
        if let Some(node) = self.paths.get(path) {
            self.nodes[node.0].syncs.push(at);
        }
    }

    pub(crate) fn rename(&mut self, at: Span, from: &str, to: &str) {
        let Some(node) = self.paths.remove(from) else { return };
        let ((folder, from), (same, name)) = (self.parent(from).unwrap(), self.parent(to).unwrap());
        assert_eq!(folder, same, "a file moves to another folder");
        self.paths.insert(to.to_owned(), node);
        self.change(folder, at, Change::Rename(from, name));
    }

    pub(crate) fn remove(&mut self, at: Span, path: &str) {
        if self.paths.remove(path).is_some() {
            let (folder, name) = self.parent(path).unwrap();
            self.change(folder, at, Change::Unlink(name));
        }
    }

    /// The disk if nothing is lost.
    pub(crate) fn as_left(&self) -> Image {
        let mut image = Image::default();
        fn all(history: &History) -> Vec<(&Change, Option<usize>)> {
            history.changes.iter().map(|(_, change)| (change, None)).collect()
        }
        self.render(Node(0), "", &mut all, &mut image);
        image
    }

    /// A disk after a power cut at a moment, and how many changes it has lost.
    pub(crate) fn cut_at(&self, moment: usize, random: &mut dyn FnMut() -> u64) -> (Image, usize) {
        let (mut image, mut lost) = (Image::default(), 0);
        let way = random() % 5;
        self.render(Node(0), "", &mut |history| history.cut_at(moment, way, random, &mut lost), &mut image);
        (image, lost)
    }

    fn render<'a>(
        &'a self,
        node: Node,
        path: &str,
        choose: &mut dyn FnMut(&'a History) -> Vec<(&'a Change, Option<usize>)>,
        image: &mut Image,
    ) {
        let mut names: BTreeMap<&str, Node> = BTreeMap::new();
        for (change, _) in choose(&self.nodes[node.0]) {
            match change {
                Change::Link(name, node) => drop(names.insert(name, *node)),
                Change::Unlink(name) => drop(names.remove(name.as_str())),
                Change::Rename(from, to) => {
                    if let Some(node) = names.remove(from.as_str()) {
                        names.insert(to, node);
                    }
                }
                Change::Write(..) | Change::Truncate(_) => {}
            }
        }
        for (name, child) in names {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if self.nodes[child.0].is_folder {
                image.0.insert(path.clone(), None);
                self.render(child, &path, choose, image);
            } else {
                image.0.insert(path, Some(content(&choose(&self.nodes[child.0]))));
            }
        }
    }
}

impl History {
    /// What is left of it, and of each write how many bytes.
    fn cut_at(
        &self,
        moment: usize,
        way: u64,
        random: &mut dyn FnMut() -> u64,
        lost: &mut usize,
    ) -> Vec<(&Change, Option<usize>)> {
        let syncs: Vec<_> = self.syncs.iter().filter(|(_, ended)| *ended <= moment).collect();
        let is_durable = |ended: usize| syncs.iter().any(|(began, _)| ended < *began);
        let begun: Vec<_> = self.changes.iter().filter(|((began, _), _)| *began <= moment).collect();
        let unsynced = begun.iter().filter(|((_, ended), _)| !is_durable(*ended)).count();
        let kept_first = random() % (unsynced as u64 + 1);
        let mut seen = 0;
        let mut kept = Vec::new();
        for ((_, ended), change) in begun {
            if is_durable(*ended) {
                kept.push((change, None));
                continue;
            }
            seen += 1;
            let is_kept = match way {
                0 => false,
                1 => true,
                2 => seen <= kept_first,
                _ => random().is_multiple_of(2),
            };
            let cut = match change {
                Change::Write(_, bytes) if way == 4 && random().is_multiple_of(3) => {
                    Some((random() % (bytes.len() as u64 + 1)) as usize)
                }
                Change::Write(..) | Change::Truncate(_) | Change::Link(..) | Change::Unlink(_) | Change::Rename(..) => {
                    None
                }
            };
            *lost += usize::from(!is_kept || cut.is_some());
            if is_kept {
                kept.push((change, cut));
            }
        }
        kept
    }
}

fn content(changes: &[(&Change, Option<usize>)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (change, cut) in changes {
        match change {
            Change::Write(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                if content.len() < end {
                    // A file can have grown and its new part not been written.
                    content.resize(end, 0);
                }
                let bytes = &bytes[..cut.unwrap_or(bytes.len())];
                content[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Change::Truncate(length) => content.resize(*length as usize, 0),
            Change::Link(..) | Change::Unlink(_) | Change::Rename(..) => {}
        }
    }
    content
}
