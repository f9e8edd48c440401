//! The chore `words`: finds the words of `retired-words.txt` in the files of the workspace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const LIST: &str = include_str!("../retired-words.txt");

/// Where the list itself, names of earlier versions and stored bytes may have them.
const EXEMPT: [&str; 4] = ["xtask/retired-words.txt", "xtask/src/words.rs", "CHANGELOG.md", "tests/golden/"];

/// What may be text that people wrote.
const ENDINGS: [&str; 7] = ["rs", "md", "toml", "py", "sh", "stdout", "snap"];

/// Prints where retired words stand, and fails if there are any.
pub(crate) fn report() -> ExitCode {
    match find(&workspace_root()) {
        Ok(found) if found.is_empty() => ExitCode::SUCCESS,
        Ok(found) => {
            found.iter().for_each(|use_| println!("{use_}"));
            println!(
                "{} uses of retired words: write what stands after the arrow (xtask/retired-words.txt)",
                found.len()
            );
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("words: {why}");
            ExitCode::from(2)
        }
    }
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a folder above it").to_owned()
}

/// A line of the list.
#[derive(Debug, PartialEq)]
struct Retired<'l> {
    word: &'l str,
    instead: &'l str,
}

impl Retired<'_> {
    /// A phrase, and not an identifier.
    fn is_phrase(&self) -> bool {
        self.word.contains(' ')
    }

    /// The byte positions of its uses in a text whose blanks are single.
    fn uses<'t>(&'t self, text: &'t str, lowered: &'t str) -> impl Iterator<Item = usize> + 't {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let text = if self.is_phrase() { lowered } else { text };
        text.match_indices(self.word)
            .map(|(at, _)| at)
            .filter(move |at| !text[..*at].ends_with(is_part) && !text[at + self.word.len()..].starts_with(is_part))
    }
}

fn listed(list: &str) -> Result<Vec<Retired<'_>>, String> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (word, instead) = line.split_once(" -> ").ok_or_else(|| format!("no arrow in {line:?}"))?;
            Ok(Retired { word, instead })
        })
        .collect()
}

/// A retired word in a file.
#[derive(Debug, PartialEq)]
struct Use {
    file: String,
    line: usize,
    word: String,
    instead: String,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: `{}`: {}", self.file, self.line, self.word, self.instead)
    }
}

fn find(root: &Path) -> Result<Vec<Use>, String> {
    let list = listed(LIST)?;
    let mut found = Vec::new();
    for file in files(root)? {
        // What is no text has no words.
        if let Ok(text) = std::fs::read_to_string(root.join(&file)) {
            found.extend(uses(&list, &file, &text));
        }
    }
    Ok(found)
}

/// The files under version control that people write.
fn files(root: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let listed = listed.map_err(|error| format!("git ls-files: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let files = String::from_utf8_lossy(&listed.stdout);
    let is_read = |file: &&str| {
        Path::new(file).extension().is_some_and(|ending| ENDINGS.iter().any(|other| ending == *other))
            && !EXEMPT.iter().any(|exempt| file.starts_with(exempt))
    };
    Ok(files.split('\0').filter(is_read).map(str::to_owned).collect())
}

fn uses(list: &[Retired<'_>], file: &str, text: &str) -> Vec<Use> {
    let (flat, lines) = flattened(text);
    let lowered = flat.to_ascii_lowercase();
    let mut found: Vec<Use> = list
        .iter()
        .flat_map(|retired| {
            retired.uses(&flat, &lowered).map(|at| Use {
                file: file.to_owned(),
                line: lines.partition_point(|start| *start <= at),
                word: retired.word.to_owned(),
                instead: retired.instead.to_owned(),
            })
        })
        .collect();
    found.sort_by_key(|use_| use_.line);
    found
}

/// The text on one line with single blanks and without the signs that begin comments, and where each of its lines begins.
fn flattened(text: &str) -> (String, Vec<usize>) {
    let (mut flat, mut starts) = (String::with_capacity(text.len()), Vec::new());
    for line in text.lines() {
        starts.push(flat.len());
        let line = line.trim_start();
        let line = ["//!", "///", "//", "#"].iter().find_map(|sign| line.strip_prefix(sign)).unwrap_or(line);
        for word in line.split_whitespace() {
            flat.push_str(word);
            flat.push(' ');
        }
    }
    (flat, starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<(usize, String)> {
        let list = [Retired { word: "Desk", instead: "queue" }, Retired { word: "made anew", instead: "rebuilt" }];
        uses(&list, "a.rs", text).into_iter().map(|found| (found.line, found.word)).collect()
    }

    #[test]
    fn identifiers_are_found_as_whole_words_in_their_case() {
        assert_eq!(places("let a = Desk::new();\nDesks, desk, MyDesk, Desk_2"), [(1, "Desk".to_owned())]);
    }

    #[test]
    fn phrases_are_found_in_any_case_and_across_the_lines_of_a_comment() {
        let text = "/// An agent is\n    /// Made\n    /// anew.\nfn remade_anew() {}\n// made  anew";
        assert_eq!(places(text), [(2, "made anew".to_owned()), (5, "made anew".to_owned())]);
    }

    #[test]
    fn a_line_of_the_list_without_an_arrow_is_an_error() {
        assert_eq!(listed("# all\nDesk"), Err("no arrow in \"Desk\"".to_owned()));
        assert!(listed(LIST).is_ok_and(|list| list.len() > 10));
    }
}
