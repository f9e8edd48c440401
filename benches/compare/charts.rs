//! Charts of how a cost grows: as text, and as an SVG file that stands alone.

use std::fmt::Write;

/// A cost at several sizes.
pub(crate) struct Series {
    pub(crate) title: &'static str,
    /// What is measured, with its unit.
    pub(crate) measures: &'static str,
    /// The sizes, and the cost at each.
    pub(crate) points: Vec<(usize, f64)>,
}

/// The longest bar of a chart in text, in characters.
const BAR: f64 = 40.0;

/// The size of a panel of the picture, and what it has around the line.
const ACROSS: f64 = 300.0;
const DOWN: f64 = 200.0;
const LEFT: f64 = 30.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 32.0;
/// Panels side by side.
const COLUMNS: usize = 3;

const STYLE: &str = "\
text{font-family:system-ui,-apple-system,\"Segoe UI\",Helvetica,Arial,sans-serif;font-size:11px;fill:#57606a;text-anchor:middle}
.title{font-size:13px;font-weight:600;fill:#1f2328;text-anchor:start}
.measures{text-anchor:start}
.paper{fill:#ffffff}
.cost{paint-order:stroke;stroke:#ffffff;stroke-width:3px}
.base{stroke:#d0d7de}
.line{fill:none;stroke:#0969da;stroke-width:2}
.dot{fill:#0969da}
@media (prefers-color-scheme:dark){
text{fill:#9198a1}
.title{fill:#e6edf3}
.paper{fill:#0d1117}
.cost{stroke:#0d1117}
.base{stroke:#3d444d}
.line{stroke:#4493f8}
.dot{fill:#4493f8}
}
";

impl Series {
    fn most(&self) -> f64 {
        self.points.iter().map(|(_, cost)| *cost).fold(f64::MIN_POSITIVE, f64::max)
    }

    /// A line for each size, with a bar from zero.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.title, self.measures);
        for (size, cost) in &self.points {
            let bar = "█".repeat((cost / self.most() * BAR).round() as usize);
            let _ = writeln!(text, "  {:>9}  {:>8}  {bar}", grouped(*size), digits(*cost));
        }
        text
    }

    /// The panel whose upper left corner is there. Sizes have equal distances, and costs begin at zero.
    fn panel(&self, x: f64, y: f64) -> String {
        let (base, height) = (y + DOWN - BOTTOM, DOWN - TOP - BOTTOM);
        let step = (ACROSS - 2.0 * LEFT) / (self.points.len().max(2) - 1) as f64;
        let at = |place: i32, cost: f64| (x + LEFT + step * f64::from(place), base - cost / self.most() * height);
        let mut out = String::new();
        let _ = writeln!(out, r#"<text class="title" x="{}" y="{}">{}</text>"#, x + 12.0, y + 24.0, self.title);
        let _ = writeln!(out, r#"<text class="measures" x="{}" y="{}">{}</text>"#, x + 12.0, y + 40.0, self.measures);
        let (from, to) = (x + 12.0, x + ACROSS - 12.0);
        let _ = writeln!(out, r#"<line class="base" x1="{from}" y1="{base}" x2="{to}" y2="{base}"/>"#);
        let places: Vec<(f64, f64)> = self.points.iter().zip(0..).map(|((_, cost), place)| at(place, *cost)).collect();
        let line: Vec<String> = places.iter().map(|(across, down)| format!("{across:.1},{down:.1}")).collect();
        let _ = writeln!(out, r#"<polyline class="line" points="{}"/>"#, line.join(" "));
        for ((across, down), (size, cost)) in places.into_iter().zip(&self.points) {
            let _ = writeln!(out, r#"<circle class="dot" cx="{across:.1}" cy="{down:.1}" r="3"/>"#);
            let _ =
                writeln!(out, r#"<text class="cost" x="{across:.1}" y="{:.1}">{}</text>"#, down - 8.0, digits(*cost));
            let _ = writeln!(out, r#"<text x="{across:.1}" y="{:.1}">{}</text>"#, base + 16.0, short(*size));
        }
        out
    }
}

/// A picture of all series.
pub(crate) fn svg(series: &[Series]) -> String {
    let rows = series.len().div_ceil(COLUMNS);
    let (across, down) = (ACROSS * COLUMNS.min(series.len()) as f64, DOWN * rows as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{across}\" height=\"{down}\" viewBox=\"0 0 {across} {down}\" role=\"img\">\n\
         <title>How cost grows</title>\n<style>\n{STYLE}</style>\n<rect class=\"paper\" width=\"{across}\" height=\"{down}\"/>\n"
    );
    for (place, series) in series.iter().enumerate() {
        out += &series.panel(ACROSS * (place % COLUMNS) as f64, DOWN * (place / COLUMNS) as f64);
    }
    out + "</svg>\n"
}

fn digits(cost: f64) -> String {
    match cost {
        0.0..10.0 => format!("{cost:.2}"),
        10.0..100.0 => format!("{cost:.1}"),
        _ => format!("{cost:.0}"),
    }
}

fn grouped(size: usize) -> String {
    match (size / 1_000, size % 1_000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{},{rest:03}", grouped(thousands)),
    }
}

/// A size with few characters: 10k.
fn short(size: usize) -> String {
    match size {
        1_000_000.. if size.is_multiple_of(1_000_000) => format!("{}M", size / 1_000_000),
        1_000.. if size.is_multiple_of(1_000) => format!("{}k", size / 1_000),
        _ => size.to_string(),
    }
}
