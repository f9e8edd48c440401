//! A picture as SVG.

use std::fmt::Write as _;

use crate::messages::On;

use super::layers::{self, Item, LABEL, Layout, Link};
use super::node_state::NodeState;
use super::picture::{Arrow, Border, Figure, Note, Picture};
use super::text::{clip, fit, width, xml};

const MARGIN: i32 = 20;
/// The space between the edge of a box and its content.
const PAD: i32 = 14;
const NAME_SIZE: i32 = 13;
const NOTE_SIZE: i32 = 11;
const NAME_LINE: i32 = 19;
const NOTE_LINE: i32 = 16;
/// The widest text in a box, and at an arrow.
const WIDEST: i32 = 260;
const WIDEST_LABEL: i32 = 180;
/// The least width of a box.
const NARROWEST: i32 = 72;
/// The offset of the second border of repeated nodes.
const STACK: i32 = 4;
/// The longest text that a tooltip has, in characters.
const MAX_TITLE: usize = 20_000;

const STYLE: &str = include_str!("style.css");

/// A block with the positions of its parts.
struct Scene<'a> {
    picture: &'a Picture,
    boxes: Vec<Placed<'a>>,
    layout: Layout,
}

struct Placed<'a> {
    name: String,
    notes: Vec<(String, &'a Note)>,
    width: i32,
    height: i32,
    /// The height of its texts.
    head: i32,
    inner: Option<Scene<'a>>,
}

/// The picture as a file. `legend`: the states that are explained below it.
pub(super) fn write(name: &str, picture: &Picture, legend: &[NodeState]) -> String {
    let scene = Scene::of(picture);
    let title = fit(name, NAME_SIZE + 2, 2 * WIDEST);
    let legend_width = legend.iter().map(|state| legend_step(*state)).sum::<i32>();
    let head = 30;
    let foot = if legend.is_empty() { 0 } else { 40 };
    let across = scene.layout.width.max(width(&title, NAME_SIZE + 2)).max(legend_width) + 2 * MARGIN;
    let down = scene.layout.height + head + foot + 2 * MARGIN;
    // Writing to a string cannot fail.
    let mut out = String::new();
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down}" viewBox="0 0 {across} {down}" role="img">"#
    );
    let _ = writeln!(out, "<title>{}</title>", title_of(name));
    let _ = writeln!(out, "<style>\n{STYLE}</style>");
    let _ = writeln!(out, r#"<rect class="paper" width="{across}" height="{down}"/>"#);
    let _ = writeln!(out, r#"<text class="heading" x="{MARGIN}" y="{}">{}</text>"#, MARGIN + 12, xml(&title));
    let left = (across - scene.layout.width) / 2;
    scene.write(&mut out, left, MARGIN + head);
    let mut x = MARGIN;
    for state in legend {
        write_legend(&mut out, *state, x, down - MARGIN - 12);
        x += legend_step(*state);
    }
    out.push_str("</svg>\n");
    out
}

fn title_of(text: &str) -> String {
    xml(&clip(text, MAX_TITLE))
}

impl<'a> Scene<'a> {
    /// Lays out the content of boxes first, and then the boxes.
    fn of(picture: &'a Picture) -> Self {
        let boxes: Vec<Placed> = picture.figures.iter().map(Placed::of).collect();
        let item = |placed: &Placed| Item { width: placed.width, height: placed.height, least: 0, labels: 0 };
        let mut items: Vec<Item> = boxes.iter().map(item).collect();
        for (arrow, label) in picture.arrows.iter().filter_map(|arrow| Some((arrow, arrow.label.as_ref()?))) {
            let item = &mut items[arrow.to];
            item.least = item.least.max(width(&fit(label, NOTE_SIZE, WIDEST_LABEL), NOTE_SIZE));
            item.labels += 1;
        }
        let links: Vec<Link> = picture.arrows.iter().map(|arrow| Link { from: arrow.from, to: arrow.to }).collect();
        let layout = layers::lay_out(&items, &links);
        Self { picture, boxes, layout }
    }

    fn write(&self, out: &mut String, left: i32, top: i32) {
        let mut labelled = vec![0; self.boxes.len()];
        for (arrow, line) in self.picture.arrows.iter().zip(&self.layout.lines) {
            self.write_arrow(out, arrow, line, left, top);
        }
        for ((figure, placed), (x, y)) in self.picture.figures.iter().zip(&self.boxes).zip(&self.layout.corners) {
            placed.write(out, figure, left + x, top + y);
        }
        for arrow in &self.picture.arrows {
            let Some(label) = &arrow.label else { continue };
            let above = labelled[arrow.to];
            labelled[arrow.to] += 1;
            let x = left + self.layout.corners[arrow.to].0 + self.boxes[arrow.to].width / 2;
            let y = top + self.layout.labels[arrow.to] - 14 - LABEL * above;
            let shown = fit(label, NOTE_SIZE, WIDEST_LABEL);
            let wide = width(&shown, NOTE_SIZE);
            let (start, above) = (x - wide / 2, y - LABEL + 4);
            let _ = writeln!(out, r#"<g><title>{}</title>"#, title_of(label));
            let _ = writeln!(out, r#"<rect class="blank" x="{start}" y="{above}" width="{wide}" height="{LABEL}"/>"#);
            let _ = writeln!(out, r#"<text class="label" x="{x}" y="{y}">{}</text></g>"#, xml(&shown));
        }
    }

    fn write_arrow(&self, out: &mut String, arrow: &Arrow, line: &[(i32, i32)], left: i32, top: i32) {
        let mut points = line.iter().map(|(x, y)| (left + x, top + y));
        let Some((mut x, mut y)) = points.next() else { return };
        let class = match arrow.on {
            On::Success => "edge",
            On::Failure => "edge failure",
            On::Goto => "edge goto",
        };
        let (from, to) = (&self.picture.figures[arrow.from].path, &self.picture.figures[arrow.to].path);
        let _ = write!(out, r#"<path class="{class}" data-from="{}" data-to="{}" d="M{x} {y}"#, xml(from), xml(to));
        for (step, (to_x, to_y)) in points.enumerate() {
            let middle = (y + to_y) / 2;
            // Every second segment is between layers.
            let _ = if step % 2 == 1 && x != to_x {
                write!(out, " C{x} {middle} {to_x} {middle} {to_x} {to_y}")
            } else if (x, y) == (to_x, to_y) {
                Ok(())
            } else {
                write!(out, " L{to_x} {to_y}")
            };
            (x, y) = (to_x, to_y);
        }
        let _ = writeln!(out, r#""/><path class="head" d="M{x} {y} l-4 -8 h8 z"/>"#);
    }
}

impl<'a> Placed<'a> {
    fn of(figure: &'a Figure) -> Self {
        let inner = figure.inner.as_ref().map(Scene::of);
        let name = fit(&figure.name, NAME_SIZE, WIDEST);
        let notes: Vec<(String, &Note)> =
            figure.notes.iter().map(|note| (fit(&note.text, NOTE_SIZE, WIDEST), note)).collect();
        let of_note = |(text, note): &(String, &Note)| width(text, NOTE_SIZE) + if note.is_pause { 12 } else { 0 };
        let texts = notes.iter().map(of_note).chain([width(&name, NAME_SIZE)]).max().unwrap_or(0);
        let inside = inner.as_ref().map_or((0, 0), |scene| (scene.layout.width, scene.layout.height + PAD));
        let count = i32::try_from(notes.len()).unwrap_or(i32::MAX);
        let head = NAME_LINE + NOTE_LINE * count + 12;
        // The symbol of a state is in the upper corner.
        let mark = if figure.progress.is_some() { 24 } else { 0 };
        let stack = if figure.border == Border::Repeated { STACK } else { 0 };
        let width = (texts + mark).max(inside.0).max(NARROWEST) + 2 * PAD + stack;
        Self { name, notes, width, height: head + inside.1 + stack, head, inner }
    }

    fn write(&self, out: &mut String, figure: &Figure, x: i32, y: i32) {
        let kind = match figure.border {
            Border::Plain => "box",
            Border::Repeated => "box repeated",
            Border::Join => "box join",
            Border::Group => "box group",
            Border::Closed => "box closed",
        };
        let state = figure.progress.map(|progress| progress.state);
        let class = state.map_or("", NodeState::name);
        let _ = writeln!(out, r#"<g class="node {class}" data-path="{}">"#, xml(&figure.path));
        let mut whole = figure.name.clone();
        for note in &figure.notes {
            whole.push_str("; ");
            whole.push_str(&note.text);
        }
        let _ = writeln!(out, "<title>{}</title>", title_of(&whole));
        let (mut wide, mut high) = (self.width, self.height);
        if figure.border == Border::Repeated {
            (wide, high) = (wide - STACK, high - STACK);
            let (x, y) = (x + STACK, y + STACK);
            let _ = writeln!(out, r#"<rect class="behind" x="{x}" y="{y}" width="{wide}" height="{high}" rx="5"/>"#);
        }
        let round = if figure.border == Border::Join { self.head / 2 } else { 5 };
        let _ = writeln!(out, r#"<rect class="{kind}" x="{x}" y="{y}" width="{wide}" height="{high}" rx="{round}"/>"#);
        if figure.border == Border::Closed {
            let (x, y, wide, high) = (x + 3, y + 3, wide - 6, high - 6);
            let _ = writeln!(out, r#"<rect class="within" x="{x}" y="{y}" width="{wide}" height="{high}" rx="3"/>"#);
        }
        let (left, mut line) = (x + PAD, y + NAME_LINE + 1);
        let _ = writeln!(out, r#"<text class="name" x="{left}" y="{line}">{}</text>"#, xml(&self.name));
        for (text, note) in &self.notes {
            line += NOTE_LINE;
            let mut left = left;
            if note.is_pause {
                let bar = line - 8;
                let _ = writeln!(out, r#"<path class="mark" d="M{} {bar} v8 m4 -8 v8"/>"#, left + 2);
                left += 12;
            }
            let _ = writeln!(out, r#"<text class="note" x="{left}" y="{line}">{}</text>"#, xml(text));
        }
        if let Some(state) = state {
            let _ = writeln!(out, r#"<path class="mark" d="{}"/>"#, symbol_of(state, x + wide - 20, y + 8));
        }
        out.push_str("</g>\n");
        if let Some(scene) = &self.inner {
            scene.write(out, x + (wide - scene.layout.width) / 2, y + self.head);
        }
    }
}

/// A symbol of 10 × 10 pixels, so that states can be distinguished without colours.
fn symbol_of(state: NodeState, x: i32, y: i32) -> String {
    match state {
        NodeState::Waiting => {
            format!("M{} {} m-4 0 a4 4 0 1 0 8 0 a4 4 0 1 0 -8 0 M{0} {1} v-3 M{0} {1} h2", x + 5, y + 5)
        }
        NodeState::Running => format!("M{} {y} l7 5 l-7 5 z", x + 2),
        NodeState::Interrupted => format!("M{} {y} v10 m4 -10 v10", x + 3),
        NodeState::Finished => format!("M{x} {} l4 4 l6 -8", y + 5),
        NodeState::Undone => format!("M{} {y} l-4 4 l4 4 M{x} {} h7 a3 3 0 0 1 0 6 h-4", x + 4, y + 4),
        NodeState::Failed => format!("M{x} {y} l10 10 m0 -10 l-10 10"),
        NodeState::Skipped => format!("M{x} {y} l5 5 l-5 5 m5 -10 l5 5 l-5 5"),
        NodeState::Dropped => format!("M{x} {} h10", y + 5),
        NodeState::Open => format!("M{x} {y} h10 v10 h-10 z"),
    }
}

fn legend_step(state: NodeState) -> i32 {
    width(state.name(), NOTE_SIZE) + 56
}

fn write_legend(out: &mut String, state: NodeState, x: i32, y: i32) {
    let name = state.name();
    let _ = writeln!(out, r#"<g class="legend {name}">"#);
    let _ = writeln!(out, r#"<rect class="box" x="{x}" y="{}" width="34" height="20" rx="4"/>"#, y - 10);
    let _ = writeln!(out, r#"<path class="mark" d="{}"/>"#, symbol_of(state, x + 12, y - 5));
    let _ = writeln!(out, r#"<text class="note" x="{}" y="{}">{name}</text>"#, x + 40, y + 4);
    out.push_str("</g>\n");
}
