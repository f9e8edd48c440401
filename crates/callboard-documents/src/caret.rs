//! Formats defects as text: the line of each, and a caret under its position.

use std::fmt;

use callboard_text::visible;

use super::Defects;

/// The longest part of a line that is shown, in characters.
const SHOWN: usize = 100;

/// One defect after another, with an empty line between them.
pub(super) fn write(f: &mut fmt::Formatter<'_>, defects: &Defects) -> fmt::Result {
    for (position, defect) in defects.list.iter().enumerate() {
        if position > 0 {
            f.write_str("\n\n")?;
        }
        let spot = defect
            .place
            .as_ref()
            .zip(defects.text.as_deref())
            .map(|(place, text)| Spot::of(text, place.start, place.end));
        match &spot {
            Some(spot) => {
                write!(f, "{}:{}:{}: {}", visible(&defects.origin), spot.line, spot.column, visible(&defect.problem))?
            }
            None => write!(f, "{}: {}", visible(&defects.origin), visible(&defect.problem))?,
        }
        if let Some(spot) = &spot {
            let (gutter, line) = (" ".repeat(spot.line.to_string().len()), spot.line);
            write!(
                f,
                "\n{gutter} |\n{line} | {}\n{gutter} | {}{}",
                spot.text,
                " ".repeat(spot.indent),
                "^".repeat(spot.width)
            )?;
        }
        if let Some(advice) = &defect.advice {
            write!(f, "\n  advice: {}", visible(advice))?;
        }
    }
    Ok(())
}

/// A position as people see it.
struct Spot {
    /// The number of the line, from 1.
    line: usize,
    /// The first column, in characters from 1.
    column: usize,
    /// The line, or the part of it that is shown.
    text: String,
    indent: usize,
    width: usize,
}

impl Spot {
    fn of(text: &str, start: usize, end: usize) -> Self {
        let start = text.floor_char_boundary(start);
        let end = text.floor_char_boundary(end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let line = text[..line_start].matches('\n').count() + 1;
        let before = text[line_start..start].chars().count();
        let width = text[start..end.clamp(start, line_end)].chars().count().max(1);
        // A long line is shown from somewhat before the position on.
        let skipped = if before + width > SHOWN { before.saturating_sub(SHOWN / 4) } else { 0 };
        let shown: String = text[line_start..line_end].chars().skip(skipped).take(SHOWN).collect();
        let (lead, tail) = (if skipped > 0 { "…" } else { "" }, shown.trim_end_matches('\r').replace('\t', " "));
        let place: String = tail.chars().take(before - skipped).collect();
        let indent = lead.chars().count() + visible(&place).chars().count();
        Self { line, column: before + 1, text: format!("{lead}{}", visible(&tail)), indent, width: width.min(SHOWN) }
    }
}
