//! Pairs brackets.

use crate::lexing::Token;

/// How many tokens or groups a header may span, so that a search in broken code ends soon.
const REACH: usize = 1000;

/// For each token that opens or closes a bracket, the index of its partner. A bracket without one points to itself,
/// or, when it opens, to the end of the text.
pub(super) struct Brackets(Vec<usize>);

impl Brackets {
    pub(super) fn new(tokens: &[Token<'_>]) -> Self {
        let mut partners: Vec<usize> = (0..tokens.len()).collect();
        let mut open: Vec<(usize, &str)> = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            if token.is("(") {
                open.push((at, ")"));
            } else if token.is("[") {
                open.push((at, "]"));
            } else if token.is("{") {
                open.push((at, "}"));
            } else if token.is(")") || token.is("]") || token.is("}") {
                // Look a little way out, so that one stray bracket does not shift all the others.
                let partner = open.iter().rev().take(4).position(|(_, close)| token.is(close));
                if let Some(skipped) = partner {
                    let unclosed = open.len() - skipped;
                    open.drain(unclosed..).for_each(|(at, _)| partners[at] = at + 1);
                    if let Some((opener, _)) = open.pop() {
                        partners[opener] = at;
                        partners[at] = opener;
                    }
                }
            }
        }
        for (at, _) in open {
            partners[at] = tokens.len();
        }
        Self(partners)
    }

    /// The partner of the bracket at `at`; `at` itself for any other token.
    pub(super) fn partner(&self, at: usize) -> usize {
        self.0.get(at).copied().unwrap_or(at)
    }

    /// The token after `at`, or after the whole group if a bracket opens there.
    pub(super) fn after(&self, at: usize) -> usize {
        self.partner(at).max(at) + 1
    }

    /// The tokens from `start` on, without those inside groups: a bracket stands for its group.
    pub(super) fn siblings(&self, start: usize) -> impl Iterator<Item = usize> {
        let next = |at: &usize| Some(self.after(*at));
        std::iter::successors(Some(start), next).take_while(|at| *at < self.0.len()).take(REACH)
    }

    /// The token before `at`, or before the whole group if a bracket closes there; `None` at the start.
    pub(super) fn before(&self, at: usize) -> Option<usize> {
        self.partner(at).min(at).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::Language;
    use crate::lexing::lex;

    fn partners(text: &str) -> Vec<usize> {
        let lexed = lex(Language::JavaScript, text);
        let brackets = Brackets::new(&lexed.tokens);
        (0..lexed.tokens.len()).map(|at| brackets.partner(at)).collect()
    }

    #[test]
    fn brackets_find_each_other() {
        assert_eq!(partners("( [ ] { x } )"), [6, 2, 1, 5, 4, 3, 0]);
    }

    #[test]
    fn a_stray_bracket_does_not_shift_the_others() {
        assert_eq!(partners("{ ( } { }"), [2, 2, 0, 4, 3]);
        assert_eq!(partners("} { }"), [0, 2, 1]);
        assert_eq!(partners("{ x"), [2, 1]);
    }
}
