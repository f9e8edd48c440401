//! The limit of an expression's length. minijinja searches constants below each token, so its time grows with the square of their
//! number.

use super::calls::{length_of_token, tags};
use super::fault::Fault;

/// The most tokens of an expression, or of a tag.
const MAX_SIGNS: usize = 500;

/// # Errors
/// It has too many signs.
pub(super) fn check_expression(code: &str) -> Result<(), Fault> {
    let mut rest = code.trim_start();
    for _ in 0..MAX_SIGNS {
        let Some(first) = rest.chars().next() else { return Ok(()) };
        rest = rest[length_of_token(rest, first)..].trim_start();
    }
    if rest.is_empty() {
        return Ok(());
    }
    let problem = format!("an expression has more than {MAX_SIGNS} signs, names and texts");
    Err(Fault::new(problem).advise("part it into several, or have what it works on say more"))
}

/// As [`check_expression`], for each tag of a text.
///
/// # Errors
/// The first that has too many signs.
pub(super) fn check_text(text: &str) -> Result<(), Fault> {
    tags(text).into_iter().try_for_each(|(_, range)| check_expression(&text[range]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_has_so_many_signs_and_no_more() {
        let most = "- ".repeat(MAX_SIGNS - 2) + "x";
        let quoted = format!("'{}'", "-".repeat(9_000));
        for fine in [most.as_str(), &quoted, "", "x"] {
            assert_eq!(check_expression(fine), Ok(()));
            assert_eq!(
                check_text(&format!("--- {{{{ {fine} }}}} {{# {most} {most} #}} --- {{% if {fine} %}}")),
                Ok(())
            );
        }
        assert_eq!(check_text(&"-".repeat(9_000)), Ok(()));
        let more = most.clone() + "--";
        for refused in [check_expression(&more), check_text(&format!("{{{{ x }}}} {{% if {more} %}}"))] {
            assert_eq!(refused.unwrap_err().problem, "an expression has more than 500 signs, names and texts");
        }
    }
}
