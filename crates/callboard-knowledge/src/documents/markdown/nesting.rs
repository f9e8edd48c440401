//! How deep Markdown is nested. Pure.
//!
//! A parser has to compare each line with all blocks that are open, so its time is the product of lines and depth. A bound of the depth makes
//! it linear.

/// The deepest nesting that is read.
pub(in crate::documents) const MAX_DEPTH: usize = 50;

/// The first line, from 1, that may be nested deeper than [`MAX_DEPTH`]. The depth of a line is overestimated: each sign of a quotation or an
/// item before its text counts one, and each two columns of white space before the last sign count one.
pub(in crate::documents) fn too_deep(text: &str) -> Option<u32> {
    let line = text.split(['\n', '\r']).position(|line| depth(line.as_bytes()) > MAX_DEPTH)?;
    // Lines that end with a carriage return alone are lines for the parser only.
    let line = text.split(['\n', '\r']).take(line).map(|line| line.len() + 1).sum::<usize>();
    let feeds = text[..line].bytes().filter(|&byte| byte == b'\n').count();
    Some(u32::try_from(feeds + 1).unwrap_or(u32::MAX))
}

fn depth(line: &[u8]) -> usize {
    let rule = rule_at_the_end(line);
    let (mut at, mut signs, mut columns, mut depth) = (0, 0, 0, 0);
    while at < rule && depth <= MAX_DEPTH {
        let sign = match line[at] {
            b' ' => {
                columns += 1;
                0
            }
            b'\t' => {
                columns += 4;
                0
            }
            b'>' => 1,
            b'-' | b'+' | b'*' if ends_sign(line, at + 1) => 1,
            b'0'..=b'9' => {
                let digits = line[at..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
                if !matches!(line.get(at + digits), Some(b'.' | b')')) || !ends_sign(line, at + digits + 1) {
                    break;
                }
                digits + 1
            }
            _ => break,
        };
        if sign > 0 {
            signs += 1;
            depth = signs + columns / 2;
        }
        at += sign.max(1);
    }
    depth
}

fn ends_sign(line: &[u8], at: usize) -> bool {
    matches!(line.get(at), None | Some(b' ' | b'\t'))
}

/// Where a thematic break at the end of the line begins, such as `- - -`, whose signs are none of items; the line's length if there is none.
fn rule_at_the_end(line: &[u8]) -> usize {
    let Some(&sign) = line.iter().rev().find(|&&byte| !matches!(byte, b' ' | b'\t')) else {
        return line.len();
    };
    let rule = line.iter().rev().take_while(|&&byte| byte == sign || matches!(byte, b' ' | b'\t'));
    let (length, signs) = rule.fold((0, 0), |(length, signs), &byte| (length + 1, signs + usize::from(byte == sign)));
    if matches!(sign, b'-' | b'*') && signs >= 3 { line.len() - length } else { line.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_items_and_indentation_count() {
        for (line, expected) in [
            ("text", 0),
            ("> > quote", 2),
            (">>> quote", 3),
            ("- item", 1),
            ("1. > - item", 4),
            ("        - item", 5),
            ("\t1) item", 3),
            ("- - - -", 0),
            ("> * * *", 1),
            ("-no item", 0),
            ("12345678901. no item", 0),
            ("                              code", 0),
        ] {
            assert_eq!(depth(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn the_first_line_that_is_too_deep_is_reported() {
        let text = format!("a\n{}b\n{}c", "> ".repeat(MAX_DEPTH / 2), ">".repeat(MAX_DEPTH + 1));
        assert_eq!(too_deep(&text), Some(3));
        assert_eq!(too_deep(&"-".repeat(1_000)), None);
        assert_eq!(too_deep(&"- ".repeat(1_000)), None);
        assert_eq!(too_deep(&("- ".repeat(1_000) + "a")), Some(1));
        assert_eq!(too_deep(&format!("a\r{}\rb\n", ">".repeat(MAX_DEPTH + 1))), Some(1));
    }
}
