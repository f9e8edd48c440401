//! Trees as text, and the assertion that compares a tree with one.

use std::fmt;
use std::iter::Peekable;
use std::time::Duration;

use callboard_text::typo_of;
use similar::{ChangeTag, TextDiff};

use crate::messages::visible;
use crate::supervision::tree::{ActorState, Strategy, TreeNode};

impl TreeNode {
    /// The tree as text, for [`TreeNode::assert_picture`] and for snapshots such as `insta`'s: names, strategies, states,
    /// generations and restarts, and nothing that varies from one run to the next.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), callboard::Error> {
    /// # let board = callboard::Callboard::builder().start().await?;
    /// assert_eq!(
    ///     board.tree().await?.find(&["runs"]).unwrap().picture(),
    ///     "runs (one_for_one)  running  gen 1\n\
    ///      ├── runs-0  running  gen 1\n\
    ///      └── runs-1  running  gen 1",
    /// );
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn picture(&self) -> String {
        Sketch::of(self).to_string()
    }

    /// Compares the tree with a picture of it.
    ///
    /// A line is a node: its name, and what else the picture states about it: the strategy, the state, the generation,
    /// the number of restarts. A node without a state has to be running; the rest is compared where the picture names it.
    /// Uptimes, mailboxes and errors are left out. Children stand below their supervisor, indented by spaces, by tabs or by the
    /// lines that [`TreeNode::picture`] draws; how far does not matter. A line `…` (or `...`) stands for any number of siblings.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), callboard::Error> {
    /// let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) }).start().await?;
    /// board.tree().await?.assert_picture(
    ///     "
    ///     callboard (one_for_one)
    ///       …
    ///       agents
    ///         coder  gen 1  restarts 0
    ///       …
    ///     ",
    /// );
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// If they differ, with the difference line by line.
    #[track_caller]
    pub fn assert_picture(&self, expected: &str) {
        if let Err(difference) = compare(self, expected) {
            panic!("{difference}");
        }
    }
}

fn compare(tree: &TreeNode, expected: &str) -> Result<(), String> {
    let is_indented_by =
        |character| expected.lines().any(|line| line[..line.len() - line.trim_start().len()].contains(character));
    if is_indented_by('\t') && is_indented_by(' ') {
        return Err("the picture is indented by spaces and by tabs: take one of them".to_owned());
    }
    let expected = Level::parse(&mut lines(expected).peekable(), None);
    if expected.nodes.is_empty() {
        return Err("the picture names no node".to_owned());
    }
    let actual = Level { nodes: vec![Sketch::of(tree)], is_open: false }.limited_to(&expected);
    let mut typos = String::new();
    expected.add_typos(&mut typos);
    let (expected, actual) = (text(&expected.nodes), text(&actual.nodes));
    if expected == actual { Ok(()) } else { Err(difference(&expected, &actual) + &typos) }
}

fn text(sketches: &[Sketch]) -> String {
    sketches.iter().map(|sketch| format!("{sketch}\n")).collect()
}

fn difference(expected: &str, actual: &str) -> String {
    let mut text = "the tree differs from its picture (- expected, + actual):".to_owned();
    for change in TextDiff::from_lines(expected, actual).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        text.push_str(&format!("\n{sign} {}", change.value().trim_end()));
    }
    text
}

/// What a picture states about a node.
#[derive(Default)]
struct Sketch {
    name: String,
    strategy: Option<Strategy>,
    state: Option<&'static str>,
    generation: Option<u64>,
    restarts: Option<u64>,
    below: Level,
}

/// The children of a node.
#[derive(Default)]
struct Level {
    nodes: Vec<Sketch>,
    /// There may be others.
    is_open: bool,
}

const RUNNING: &str = "running";
const STRATEGIES: [Strategy; 3] = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];
const STATES: [ActorState; 7] = [
    ActorState::Starting,
    ActorState::Running,
    ActorState::Dormant,
    ActorState::Restarting { after: Duration::ZERO },
    ActorState::Stopping,
    ActorState::Stopped,
    ActorState::Failed,
];

const fn word(state: ActorState) -> &'static str {
    match state {
        ActorState::Starting => "starting",
        ActorState::Running => RUNNING,
        ActorState::Dormant => "dormant",
        ActorState::Restarting { .. } => "restarting",
        ActorState::Stopping => "stopping",
        ActorState::Stopped => "stopped",
        ActorState::Failed => "failed",
    }
}

/// The lines that are not blank, each with its indentation in characters.
fn lines(picture: &str) -> impl Iterator<Item = (usize, &str)> {
    picture.lines().map(str::trim_end).filter_map(|line| {
        let text = line.trim_start_matches([' ', '\t', '│', '├', '└', '─']);
        (!text.is_empty()).then(|| (line.chars().count() - text.chars().count(), text))
    })
}

impl Level {
    /// Reads the lines that are indented further than their parent.
    fn parse<'a>(lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>, parent: Option<usize>) -> Self {
        let mut level = Self::default();
        while let Some((indentation, text)) = lines.next_if(|(own, _)| parent.is_none_or(|parent| *own > parent)) {
            if ["…", "..."].contains(&text) {
                level.is_open = true;
                continue;
            }
            let mut sketch = Sketch::parse(text);
            sketch.below = Self::parse(lines, Some(indentation));
            level.nodes.push(sketch);
        }
        level
    }

    /// Reports names that end with a likely misspelling of a state.
    fn add_typos(&self, typos: &mut String) {
        for node in &self.nodes {
            if let Some((rest, last)) = node.name.rsplit_once(' ') {
                if let Some(state) = typo_of(last, STATES.into_iter().map(word)) {
                    typos.push_str(&format!("\n{last:?} is taken for a part of the name; did you mean {state:?}?"));
                }
                if rest.ends_with(" gen") || rest.ends_with(" restarts") {
                    typos.push_str(&format!("\n{last:?} is no number, so it is taken for a part of the name"));
                }
            }
            node.below.add_typos(typos);
        }
    }

    /// The part of an actual level that the expected one states something about.
    fn limited_to(self, expected: &Self) -> Self {
        let seen = |node: Sketch| match expected.nodes.iter().find(|counterpart| counterpart.name == node.name) {
            Some(counterpart) => Some(node.limited_to(counterpart)),
            None => (!expected.is_open).then_some(node),
        };
        Self { nodes: self.nodes.into_iter().filter_map(seen).collect(), is_open: expected.is_open }
    }
}

impl Sketch {
    fn of(node: &TreeNode) -> Self {
        Self {
            name: visible(&node.name),
            strategy: node.strategy,
            state: Some(word(node.state)),
            generation: Some(node.generation),
            restarts: Some(node.restarts),
            below: Level { nodes: node.children.iter().map(Self::of).collect(), is_open: false },
        }
    }

    /// Reads a line from its end. What is none of the words that a picture has for a node belongs to its name.
    fn parse(line: &str) -> Self {
        let mut sketch = Self::default();
        let mut words: Vec<&str> = line.split_whitespace().collect();
        loop {
            match sketch.take_word(&words) {
                0 => break,
                taken => words.truncate(words.len() - taken),
            }
        }
        sketch.name = words.join(" ");
        sketch
    }

    /// Parses the words at the end of a line, and returns their number.
    fn take_word(&mut self, words: &[&str]) -> usize {
        if let [_, .., key, number] = words
            && let Ok(number) = number.parse()
        {
            match *key {
                "gen" => self.generation = Some(number),
                "restarts" => self.restarts = Some(number),
                _ => return 0,
            }
            return 2;
        }
        let [_, .., last] = words else { return 0 };
        if let Some(state) = STATES.into_iter().map(word).find(|state| state == last) {
            self.state = Some(state);
        } else if let Some(strategy) = STRATEGIES.into_iter().find(|strategy| *last == format!("({strategy})")) {
            self.strategy = Some(strategy);
        } else {
            return 0;
        }
        1
    }

    /// The part of an actual sketch that the expected one states something about; running is the default.
    fn limited_to(self, expected: &Self) -> Self {
        Self {
            name: self.name,
            strategy: self.strategy.filter(|_| expected.strategy.is_some()),
            state: self.state.filter(|state| expected.state.is_some() || *state != RUNNING),
            generation: self.generation.filter(|_| expected.generation.is_some()),
            restarts: self.restarts.filter(|_| expected.restarts.is_some()),
            below: self.below.limited_to(&expected.below),
        }
    }

    /// Draws it as [`TreeNode`] is displayed; zeros are left out.
    fn draw(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(strategy) = self.strategy {
            write!(f, " ({strategy})")?;
        }
        if let Some(state) = self.state {
            write!(f, "  {state}")?;
        }
        if let Some(generation @ 1..) = self.generation {
            write!(f, "  gen {generation}")?;
        }
        if let Some(restarts @ 1..) = self.restarts {
            write!(f, "  restarts {restarts}")?;
        }
        let Level { nodes, is_open } = &self.below;
        for (index, node) in nodes.iter().enumerate() {
            let is_last = index + 1 == nodes.len() && !is_open;
            let (branch, below) = if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
            write!(f, "\n{indent}{branch}")?;
            node.draw(f, &format!("{indent}{below}"))?;
        }
        if *is_open { write!(f, "\n{indent}└── …") } else { Ok(()) }
    }
}

impl fmt::Display for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw(f, "")
    }
}
