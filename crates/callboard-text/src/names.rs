//! The rules of names, and the search for similar names.

use super::visible::{exact, is_unseen, quoted};

/// Stands between the names of an agent that was made while a board runs and of who made it. No other name has it.
pub const MADE_BY: char = '~';

/// The longest text that can be a misspelt name, in bytes.
const MAX_MISSPELT: usize = 512;

/// The error of [`check_name`], [`check_own_name`], [`check_key`] and [`check_channel`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} name {} {problem}", quoted(name))]
pub struct NameError {
    /// What the name is for, in a word such as `agent` or `channel`.
    pub kind: &'static str,
    /// The name as it was given, whatever it holds; show it with [`quoted`].
    pub name: String,
    /// The first rule that the name breaks.
    pub problem: NameProblem,
}

/// What is wrong with a name. Positions count characters from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// It has no characters.
    #[error("is empty")]
    Empty,
    /// It has more characters than the check allows.
    #[error("has {length} characters; at most {max} are allowed")]
    TooLong {
        /// The length of the name, in characters.
        length: usize,
        /// The longest length that the check allows, in characters.
        max: usize,
    },
    /// It has a character that is not allowed in it, or not at that position.
    #[error("has `{}` as character {position}: {}", character.escape_unicode(), why.text())]
    Unfit {
        /// The first character that breaks the rule.
        character: char,
        /// Its position in the name, in characters from 1.
        position: usize,
        /// Why the character is not allowed.
        why: Unfit,
    },
    /// The character that stands between an agent and those that it makes.
    #[error("has `{MADE_BY}`, which stands between an agent and those that it has made")]
    Reserved,
    /// A step of a path that means another place.
    #[error("has the path step `{step}` at character {position}: a name leads to no other place")]
    PathStep {
        /// `.` or `..`.
        step: &'static str,
        /// Where it begins, in characters from 1.
        position: usize,
    },
}

/// Why a character may not be in a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// A control character, such as a line break.
    Control,
    /// Not shown, or it changes how others are shown: zero width, direction, fillers, variation selectors.
    Unseen,
    /// White space at an end, or other white space than a plain space.
    WhiteSpace,
    /// It joins the character before it, so that one text can be written in two ways.
    Mark,
    /// The full-width or mathematical form of a plain character.
    LookAlike,
    /// A letter of another script than the word began with, of three that share shapes: Latin, Greek and Cyrillic.
    OtherScript,
}

impl Unfit {
    const fn text(self) -> &'static str {
        match self {
            Self::Control => "a control character",
            Self::Unseen => "it is not shown, or changes how others are shown",
            Self::WhiteSpace => "the only white space in a name is a plain space, and not at its ends",
            Self::Mark => "a mark on the character before it; write both as one character",
            Self::LookAlike => "it looks like a plain character; write that one",
            Self::OtherScript => "the word began in another script, with which it could be confused",
        }
    }
}

/// The rule for names of agents, roles, capabilities, projects, channels and namespaces: who reads one in a log or on a
/// card knows whose it is. A name has 1 to `max` characters. It holds nothing that is not shown, no white space but plain
/// spaces inside, no combining mark (U+0300 to U+036F), no full-width or mathematical form of a plain character, no word
/// that mixes Latin, Greek and Cyrillic letters, and no path step `.` or `..`.
///
/// Words wholly of another script are taken, whatever they look like: telling them apart takes a table of all shapes.
pub fn check_name(kind: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    check(kind, name, max, |name| {
        let mut script = None;
        let unfit = find_unfit(name, |c| unfit_in_name(c).or_else(|| changes_script(&mut script, c)));
        unfit.or_else(|| path_step(name))
    })
}

/// The rule for names that people and agents give: as that for names, and nothing that looks as if an agent had made it.
pub fn check_own_name(kind: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    check_name(kind, name, max)?;
    check(kind, name, max, |name| name.contains(MADE_BY).then_some(NameProblem::Reserved))
}

/// The rule for keys in a namespace, which are often names from outside, such as paths: 1 to `max` characters, nothing that
/// is not shown, no white space at the ends.
pub fn check_key(key: &str, max: usize) -> Result<(), NameError> {
    check("key", key, max, |key| find_unfit(key, unseen))
}

/// The rule for channels that no schema declares: as that for keys.
pub fn check_channel(channel: &str) -> Result<(), NameError> {
    const MAX_CHANNEL: usize = 128;
    check("channel", channel, MAX_CHANNEL, |channel| find_unfit(channel, unseen))
}

fn check(
    kind: &'static str,
    name: &str,
    max: usize,
    problem: impl FnOnce(&str) -> Option<NameProblem>,
) -> Result<(), NameError> {
    let length = if name.is_ascii() { name.len() } else { name.chars().count() };
    let problem = match length {
        0 => Some(NameProblem::Empty),
        _ if length > max => Some(NameProblem::TooLong { length, max }),
        _ => problem(name),
    };
    problem.map_or(Ok(()), |problem| Err(NameError { kind, name: name.to_owned(), problem }))
}

/// The first character that is not allowed anywhere, or is white space at an end.
fn find_unfit(name: &str, mut unfit: impl FnMut(char) -> Option<Unfit>) -> Option<NameProblem> {
    // The usual case, which is checked with every read of the context: no rule has anything against these.
    if name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let last = name.chars().count();
    name.chars().zip(1..).find_map(|(character, position)| {
        let is_outer = (position == 1 || position == last) && character.is_whitespace();
        let why = unfit(character).or(is_outer.then_some(Unfit::WhiteSpace))?;
        Some(NameProblem::Unfit { character, position, why })
    })
}

fn unseen(c: char) -> Option<Unfit> {
    if c.is_control() { Some(Unfit::Control) } else { is_unseen(c).then_some(Unfit::Unseen) }
}

fn unfit_in_name(c: char) -> Option<Unfit> {
    unseen(c).or(match c {
        '\u{fe00}'..='\u{fe0f}' => Some(Unfit::Unseen),
        '\u{300}'..='\u{36f}' => Some(Unfit::Mark),
        '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}' => Some(Unfit::LookAlike),
        ' ' => None,
        _ => c.is_whitespace().then_some(Unfit::WhiteSpace),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
}

/// Whether a character changes the script within a word whose letters so far are of `script`.
fn changes_script(script: &mut Option<Script>, c: char) -> Option<Unfit> {
    let of = match c {
        'a'..='z' | 'A'..='Z' | '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => Script::Latin,
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Script::Greek,
        '\u{400}'..='\u{52f}' | '\u{1c80}'..='\u{1c8f}' | '\u{a640}'..='\u{a69f}' => Script::Cyrillic,
        _ if c.is_alphanumeric() => return None,
        _ => {
            *script = None;
            return None;
        }
    };
    (*script.get_or_insert(of) != of).then_some(Unfit::OtherScript)
}

fn path_step(name: &str) -> Option<NameProblem> {
    let mut position = 1;
    name.split(['/', '\\']).find_map(|step| {
        let begins = position;
        position += step.chars().count() + 1;
        let step = ["..", "."].into_iter().find(|dots| *dots == step)?;
        Some(NameProblem::PathStep { step, position: begins })
    })
}

/// Returns the candidate most like `name`, if one is like enough to be what was meant. Likeness takes the product of
/// both lengths.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    if name.len() > MAX_MISSPELT {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, candidate)| candidate.to_owned())
}

/// The candidate that `name` is one typo away from. Names that differ in digits alone are a series, and short ones
/// are all alike.
pub fn typo_of<'a>(name: &str, mut candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const SHORT: usize = 4;
    let letters = |name: &str| name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    candidates.find(|candidate| {
        name.len().abs_diff(candidate.len()) <= SHORT
            && letters(name).chars().count() >= SHORT
            && letters(name) != letters(candidate)
            && strsim::osa_distance(name, candidate) == 1
    })
}

/// The first of these names that people cannot tell from `name` by looking at it, being of other characters. Names that are both of
/// ASCII are distinguished.
pub fn look_alike<'a>(name: &str, mut others: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_plain = name.is_ascii();
    let seen = looks(name);
    others.find(|other| *other != name && !(is_plain && other.is_ascii()) && looks(other) == seen)
}

/// The first words of a text with letters that look like those of ASCII and are others: each with these as escapes, and what it looks like.
/// Characters that [`exact`](super::exact) makes visible are not such letters.
///
/// ```
/// let found = callboard_text::disguised("delete \u{430}dmin.txt", 8);
/// assert_eq!(found, [("\\u{430}dmin".to_owned(), "admin".to_owned())]);
/// assert!(callboard_text::disguised("naïve Straße 你好 привет", 8).is_empty());
/// ```
pub fn disguised(text: &str, most: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let is_shown = |word: &&str| !word.is_ascii() && exact(word) == **word;
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(is_shown) {
        let (mut shown, mut seen) = (String::new(), String::new());
        for c in word.chars() {
            if c.is_ascii() {
                shown.push(c);
                seen.push(c);
            } else {
                shown.extend(c.escape_unicode());
                seen.extend(unicode_security::skeleton(c.encode_utf8(&mut [0; 4])));
            }
        }
        let word = (shown, seen);
        if word.1.chars().all(|c| c.is_ascii_alphanumeric()) && !found.contains(&word) {
            found.push(word);
            if found.len() == most {
                break;
            }
        }
    }
    found
}

/// What a name looks like: equal for names that are confusable by Unicode Technical Standard 39, whatever their case.
pub fn looks(name: &str) -> String {
    unicode_security::skeleton(&name.to_lowercase()).collect()
}

/// Returns `; did you mean "x"?`, to be appended to a message; empty without a name.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean {}?", quoted(name))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use unicode_width::UnicodeWidthChar as _;

    use crate::visible;

    const MAX: usize = 57;

    #[test]
    fn a_name_in_another_script_may_look_like_one_that_is_there() {
        let cyrillic = "\u{441}\u{43e}\u{430}\u{441}\u{435}";
        for (name, there, expected) in [
            (cyrillic, "coace", true),
            ("coace", cyrillic, true),
            ("Coace", cyrillic, true),
            (cyrillic, cyrillic, false),
            ("coder", cyrillic, false),
            ("cod3r", "coder", false),
            ("l1", "ll", false),
        ] {
            assert_eq!(look_alike(name, ["reviewer", there].into_iter()).is_some(), expected, "{name} {there}");
        }
    }

    #[test]
    fn no_rule_is_against_a_visible_character_of_ascii() {
        let mut script = None;
        for character in (0..=u8::MAX).filter(u8::is_ascii_graphic).map(char::from) {
            let problem = unfit_in_name(character).or_else(|| changes_script(&mut script, character));
            assert_eq!((problem.is_some(), unseen(character).is_some()), (false, false), "{character}");
            assert!(!character.is_whitespace());
        }
    }

    fn refused(name: &str) -> String {
        check_name("agent", name, MAX).unwrap_err().to_string()
    }

    #[test]
    fn a_name_that_could_deceive_is_refused_with_the_place() {
        let cases = [
            ("", "\"\" is empty"),
            (" a", "\" a\" has `\\u{20}` as character 1: the only white space"),
            ("a ", "has `\\u{20}` as character 2"),
            ("a\u{a0}b", "`\\u{a0}` as character 2: the only white space"),
            ("a\tb", "\"a\\u{9}b\" has `\\u{9}` as character 2: a control character"),
            ("a\u{1b}[31mb", "has `\\u{1b}` as character 2: a control character"),
            ("bob\u{202e}ecila", "has `\\u{202e}` as character 4: it is not shown"),
            ("re\u{200b}viewer", "\"re\\u{200b}viewer\" has `\\u{200b}` as character 3: it is not shown"),
            ("a\u{fe0f}", "`\\u{fe0f}` as character 2: it is not shown"),
            ("re\u{301}", "`\\u{301}` as character 3: a mark"),
            ("\u{ff41}bc", "`\\u{ff41}` as character 1: it looks like a plain character"),
            ("\u{1d5ba}bc", "`\\u{1d5ba}` as character 1: it looks like"),
            ("the s\u{441}out", "`\\u{441}` as character 6: the word began in another script"),
            ("\u{3bc}service", "`\\u{73}` as character 2: the word began in another script"),
            ("../x", "has the path step `..` at character 1"),
            ("a\\..\\b", "has the path step `..` at character 3"),
            ("a/.", "has the path step `.` at character 3"),
        ];
        for (name, expected) in cases {
            assert!(refused(name).contains(expected), "{}", refused(name));
        }
    }

    #[test]
    fn names_of_all_languages_are_taken() {
        for name in
            ["reviewer", "Прүфер", "校对", "相談 係", "β-tester", "समीक्षक", "müller & co.", "a/b", "v1.2", "🦀", "..."]
        {
            assert_eq!(check_name("agent", name, MAX), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_key_may_be_any_path_that_is_shown() {
        for key in ["../src/a.rs", "cafe\u{301}", "s\u{441}out", "a\u{a0}b"] {
            assert_eq!(check_key(key, 128), Ok(()), "{key}");
        }
        let unfit = |character, position, why| NameProblem::Unfit { character, position, why };
        for (key, problem) in [
            ("", NameProblem::Empty),
            (" a", unfit(' ', 1, Unfit::WhiteSpace)),
            ("a\u{a0}", unfit('\u{a0}', 2, Unfit::WhiteSpace)),
            ("a\n", unfit('\n', 2, Unfit::Control)),
            ("a\u{202e}b", unfit('\u{202e}', 2, Unfit::Unseen)),
        ] {
            assert_eq!(check_key(key, 128).unwrap_err().problem, problem, "{key:?}");
        }
    }

    #[test]
    fn a_long_name_makes_a_short_error_and_is_like_nothing() {
        let long = "x".repeat(100_000);
        assert!(refused(&long).len() < 200);
        assert_eq!(nearest(&long, ["x", &long]), None);
    }

    #[test]
    fn a_typo_is_distinguished_from_a_series_and_from_another_name() {
        let typo = |name| typo_of(name, ["artifacts", "messages", "part1", "abc"].into_iter());
        assert_eq!(typo("artifcats"), Some("artifacts"));
        assert_eq!(typo("artefacts"), Some("artifacts"));
        assert_eq!(typo("message"), Some("messages"));
        for other in ["part2", "part11", "abd", "letters", "artfcts", "artifacts"] {
            assert_eq!(typo(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_is_taken_reads_as_it_is(name in "\\PC{0,60}|[a-cа-в ./\u{200b}\u{202e}\u{301}\n]{0,8}") {
            match check_name("agent", &name, MAX) {
                Ok(()) => {
                    // Combining marks on characters that are no letters are the exception.
                    prop_assert!(visible(&name) == name || name.chars().any(|c| c.width() == Some(0)), "{name:?}");
                    prop_assert_eq!(name.trim(), name.as_str());
                    prop_assert!(name.split(['/', '\\']).all(|step| step != "." && step != ".."));
                    prop_assert!((1..=MAX).contains(&name.chars().count()));
                    let mixes = |word: &str| word.contains(['a', 'b', 'c']) && word.contains(['а', 'б', 'в']);
                    prop_assert!(!name.split(|c: char| !c.is_alphanumeric()).any(mixes));
                    prop_assert!(check_key(&name, MAX).is_ok());
                }
                Err(error) => {
                    let shown = error.to_string();
                    prop_assert!(shown.len() < 1_200 && visible(&shown) == shown, "{shown}");
                    if let NameProblem::Unfit { character, position, .. } = error.problem {
                        prop_assert_eq!(name.chars().nth(position - 1), Some(character));
                    }
                }
            }
        }
    }
}
