use std::fmt::Write as _;
use std::path::Path;

use callboard_text::{cut, quoted, visible};
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobMatcher};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{Effect, Tool, ToolError, ToolOutput, USUAL_OUTPUT, tool};
use super::blocking::{GivenUp, blocking};
use super::bounded::{beginning, whole};
use super::root::{Identity, MAX_DEPTH, PathError, Root, identity, open_file};

/// The most entries that are visited, the largest file, and the most bytes of all files.
const MAX_ENTRIES: usize = 10_000;
const MAX_FILE: usize = 8 << 20;
const MAX_BYTES: usize = 128 << 20;

/// The most matches of an answer, and their default number.
const MAX_MATCHES: usize = 200;

/// The longest pattern and glob, in bytes, and the memory of the compiled pattern.
const MAX_PATTERN: usize = 1000;
const PATTERN_MEMORY: usize = 1 << 20;

/// The largest `.gitignore`, its longest line, and the most lines of all such files.
const MAX_IGNORE: usize = 64 << 10;
const MAX_IGNORE_LINE: usize = 1000;
const MAX_IGNORE_LINES: usize = 10_000;

/// The most bytes of a line that are shown, and how many of them are before the match.
const SHOWN: usize = 300;
const BEFORE: usize = 100;

/// The bytes that remain for the note below the matches.
const REMARKS: usize = 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// A regular expression (Rust's syntax, without look-around and back references); `(?i)` ignores case.
    pattern: String,
    /// Which files, such as `*.rs` (a name) or `src/**/*.rs` (a path).
    glob: Option<String>,
    /// The folder or file to look in; left out, it is all.
    path: Option<String>,
    /// How many places at most; 200 if left out.
    #[schemars(range(min = 1, max = 200))]
    max: Option<usize>,
    /// Look for paths of files that fit, in place of lines in them.
    #[serde(default)]
    names: bool,
}

/// Finds lines of text files, or files by their paths. Name: `FileSearch`.
///
/// At most 10,000 files and folders are looked at, 64 folders deep, 8 MiB of a file and 128 MiB of all. Links are not followed;
/// `.git`, binary files, and what a `.gitignore` in the folders names are passed over.
#[must_use]
pub fn file_search(root: &Root) -> impl Tool {
    let root = root.clone();
    let description = "Finds lines that fit a regular expression in text files, or with `names` the paths of files that fit. \
                       Answers `path:line: text`. Passes over .git, binary files, and what .gitignore names.";
    tool("FileSearch", description, Effect::Reads, move |search: Search, _scope| {
        let root = root.clone();
        blocking(move |given_up| found(&root, &search, given_up))
    })
}

fn found(root: &Root, search: &Search, given_up: &GivenUp) -> Result<ToolOutput, ToolError> {
    let mut walk = Walk {
        pattern: pattern(&search.pattern)?,
        glob: search.glob.as_deref().map(glob).transpose()?,
        names: search.names,
        max: search.max.unwrap_or(MAX_MATCHES).clamp(1, MAX_MATCHES),
        hidden: root.hidden_now(),
        given_up,
        ignores: Vec::new(),
        answer: String::new(),
        matches: 0,
        seen: Seen::default(),
        end: None,
    };
    let path = search.path.as_deref().unwrap_or(".");
    let place = root.find(path)?;
    let shown = path.trim_start_matches("./").trim_end_matches('/');
    match &place.name {
        None if shown.is_empty() || shown == "." => walk.folder(&place.folder, "", 0)?,
        None => walk.folder(&place.folder, shown, 0)?,
        Some(name) => {
            let kind = place.folder.symlink_metadata(name).map_err(|error| wrong(path, error.into()))?;
            super::root::check_plain(kind.file_type()).map_err(|why| wrong(path, why))?;
            walk.file(&place.folder, name, shown)?;
        }
    }
    Ok(walk.reported().into())
}

fn wrong(path: &str, why: super::root::Why) -> PathError {
    PathError { path: path.to_owned(), why }
}

fn pattern(text: &str) -> Result<Regex, ToolError> {
    if text.len() > MAX_PATTERN {
        return Err(ToolError(format!("the pattern has {} bytes; at most {MAX_PATTERN} are taken", text.len())));
    }
    let built = RegexBuilder::new(text).size_limit(PATTERN_MEMORY).dfa_size_limit(PATTERN_MEMORY).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            ToolError(format!("the pattern {} needs more than {} KiB of memory", quoted(text), PATTERN_MEMORY >> 10))
        }
        error => {
            let problem = error.to_string();
            let problem = problem.lines().last().unwrap_or_default().trim_start_matches("error: ");
            ToolError(format!("the pattern {} is wrong: {}", quoted(text), cut(problem)))
        }
    })
}

/// A glob, and whether it matches whole paths.
struct Glob {
    matcher: GlobMatcher,
    of_paths: bool,
}

fn glob(text: &str) -> Result<Glob, ToolError> {
    if text.len() > MAX_PATTERN {
        return Err(ToolError(format!("the glob has {} bytes; at most {MAX_PATTERN} are taken", text.len())));
    }
    let built = GlobBuilder::new(text.trim_start_matches("./")).literal_separator(true).build();
    let glob = built.map_err(|error| ToolError(format!("the glob is wrong: {}", cut(&error.to_string()))))?;
    Ok(Glob { matcher: glob.compile_matcher(), of_paths: text.contains('/') })
}

/// A search in progress.
struct Walk<'a> {
    pattern: Regex,
    glob: Option<Glob>,
    names: bool,
    max: usize,
    hidden: Vec<Identity>,
    given_up: &'a GivenUp,
    /// The `.gitignore` rules of the enclosing folders, with the position at which paths relative to each begin.
    ignores: Vec<(usize, Gitignore)>,
    answer: String,
    matches: usize,
    seen: Seen,
    /// The reason why the search ended early.
    end: Option<String>,
}

/// The numbers of visited and skipped entries.
#[derive(Default)]
struct Seen {
    entries: usize,
    files: usize,
    bytes: usize,
    ignore_lines: usize,
    binary: usize,
    large: usize,
    deep: usize,
    closed: usize,
    odd_names: usize,
    long_ignores: usize,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Dir, path: &str, depth: usize) -> Result<(), ToolError> {
        self.given_up.check()?;
        let begin = if path.is_empty() { 0 } else { path.len() + 1 };
        let ignores = self.ignores.len();
        if let Some(ignore) = self.ignore(folder) {
            self.ignores.push((begin, ignore));
        }
        for (name, is_folder) in self.entries(folder) {
            if self.end.is_some() {
                break;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if (is_folder && name == ".git") || self.is_ignored(&path, is_folder) {
                continue;
            }
            if !is_folder {
                self.file(folder, &name, &path)?;
            } else if depth >= MAX_DEPTH {
                self.seen.deep += 1;
            } else {
                match folder.open_dir_nofollow(&name) {
                    Ok(below) if identity(&below).is_ok_and(|it| !self.hidden.contains(&it)) => {
                        self.folder(&below, &path, depth + 1)?;
                    }
                    Ok(_) => {}
                    Err(_) => self.seen.closed += 1,
                }
            }
        }
        self.ignores.truncate(ignores);
        Ok(())
    }

    /// The names in a folder, sorted, without links, pipes and devices; with whether each is a folder.
    fn entries(&mut self, folder: &Dir) -> Vec<(String, bool)> {
        let Ok(entries) = folder.entries() else {
            self.seen.closed += 1;
            return Vec::new();
        };
        let mut names = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else {
                self.seen.closed += 1;
                break;
            };
            if self.seen.entries >= MAX_ENTRIES {
                self.seen.entries += 1;
                break;
            }
            self.seen.entries += 1;
            let Ok(kind) = entry.file_type() else { continue };
            match entry.file_name().into_string() {
                Ok(name) if kind.is_dir() || kind.is_file() => names.push((name, kind.is_dir())),
                Ok(_) => {}
                Err(_) => self.seen.odd_names += 1,
            }
        }
        names.sort_unstable();
        names
    }

    fn file(&mut self, folder: &Dir, name: &str, path: &str) -> Result<(), ToolError> {
        self.given_up.check()?;
        let wanted = |glob: &Glob| glob.matcher.is_match(if glob.of_paths { path } else { name });
        if !self.glob.as_ref().is_none_or(wanted) {
            return Ok(());
        }
        if self.names {
            self.seen.files += 1;
            if self.pattern.is_match(path.as_bytes()) {
                self.add_match(&visible(path));
            }
            return Ok(());
        }
        let Ok((file, about)) = open_file(folder, name) else {
            self.seen.closed += 1;
            return Ok(());
        };
        if about.len() > MAX_FILE as u64 {
            self.seen.large += 1;
            return Ok(());
        }
        match whole(file, MAX_FILE) {
            Ok(Some(bytes)) if bytes.contains(&0) => self.seen.binary += 1,
            Ok(Some(bytes)) => {
                self.seen.files += 1;
                self.seen.bytes += bytes.len();
                self.lines(path, &bytes);
                if self.seen.bytes > MAX_BYTES && self.end.is_none() {
                    self.end = Some(format!("{} MiB were looked at", MAX_BYTES >> 20));
                }
            }
            Ok(None) => self.seen.large += 1,
            Err(_) => self.seen.closed += 1,
        }
        Ok(())
    }

    fn lines(&mut self, path: &str, bytes: &[u8]) {
        let shown = visible(path);
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // Text after the last line break is a line only if it is not empty.
            if number > 0 && line.is_empty() && std::ptr::eq(line.as_ptr_range().end, bytes.as_ptr_range().end) {
                break;
            }
            if let Some(place) = self.pattern.find(line) {
                self.add_match(&format!("{shown}:{}: {}", number + 1, around(line, place.start())));
                if self.end.is_some() {
                    break;
                }
            }
        }
    }

    fn add_match(&mut self, line: &str) {
        if self.matches >= self.max {
            self.end = Some(format!("there are more than {} places", self.max));
        } else if self.answer.len() + line.len() + 1 > USUAL_OUTPUT - REMARKS {
            self.end = Some("the answer is full".to_owned());
        } else {
            self.matches += 1;
            self.answer.push_str(line);
            self.answer.push('\n');
        }
    }

    /// The rules of the `.gitignore` of a folder. It is read by handle like any other file; of the `ignore` crate only the
    /// meaning of its lines is used, because its walk goes by paths.
    fn ignore(&mut self, folder: &Dir) -> Option<Gitignore> {
        let (file, _) = open_file(folder, ".gitignore").ok()?;
        let Some(text) = whole(file, MAX_IGNORE).ok()? else {
            self.seen.long_ignores += 1;
            return None;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        self.seen.ignore_lines += text.lines().count();
        if self.seen.ignore_lines > MAX_IGNORE_LINES {
            self.seen.long_ignores += 1;
            return None;
        }
        let mut builder = GitignoreBuilder::new("");
        for line in text.lines().filter(|line| line.len() <= MAX_IGNORE_LINE) {
            // An invalid line is ignored, as by git.
            let _ = builder.add_line(None, line);
        }
        builder.build().ok()
    }

    /// The nearest folder with a rule for it decides.
    fn is_ignored(&self, path: &str, is_folder: bool) -> bool {
        let decision =
            |(begin, ignore): &(usize, Gitignore)| match ignore.matched(Path::new(&path[*begin..]), is_folder) {
                ignore::Match::None => None,
                ignore::Match::Ignore(_) => Some(true),
                ignore::Match::Whitelist(_) => Some(false),
            };
        self.ignores.iter().rev().find_map(decision).unwrap_or(false)
    }

    fn reported(mut self) -> String {
        if self.end.is_none() && self.seen.entries > MAX_ENTRIES {
            self.end = Some(format!("{MAX_ENTRIES} files and folders were looked at"));
        }
        let what = if self.names { "files" } else { "text files" };
        let _ = write!(self.answer, "({} found in {} {what}", self.matches, self.seen.files);
        let seen = &self.seen;
        let passed = [
            (seen.binary, "binary".to_owned()),
            (seen.large, format!("larger than {} MiB", MAX_FILE >> 20)),
            (seen.closed, "that cannot be read".to_owned()),
            (seen.odd_names, "with names that are not UTF-8".to_owned()),
            (seen.deep, format!("more than {MAX_DEPTH} folders deep")),
            (seen.long_ignores, ".gitignore too long to heed".to_owned()),
        ];
        let passed: Vec<_> =
            passed.into_iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
        if !passed.is_empty() {
            let _ = write!(self.answer, "; passed over: {}", passed.join(", "));
        }
        if let Some(end) = &self.end {
            let _ = write!(self.answer, "; ended early because {end}: narrow the pattern, the glob or the path");
        }
        self.answer.push(')');
        self.answer
    }
}

/// The line, or the part of it around a match.
fn around(line: &[u8], place: usize) -> String {
    let begin = if line.len() <= SHOWN { 0 } else { place.saturating_sub(BEFORE) };
    let end = line.len().min(begin + SHOWN);
    let text = String::from_utf8_lossy(&line[begin..end]).into_owned();
    let text = beginning(&text, SHOWN);
    let (before, after) = (if begin > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{text}{after}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn search(pattern: &str) -> Search {
        Search { pattern: pattern.to_owned(), glob: None, path: None, max: None, names: false }
    }

    fn answer(root: &Root, search: &Search) -> String {
        found(root, search, &GivenUp::default()).unwrap().text
    }

    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    #[test]
    fn lines_are_found_in_order_with_their_places() {
        let (_folder, root) = folder(&[("b.txt", "x\nneedle 1\r\n"), ("a/c.rs", "needle 2"), ("a/d.rs", "none\n\n")]);
        let reported = answer(&root, &search("needle"));
        assert_eq!(reported, "a/c.rs:1: needle 2\nb.txt:2: needle 1\n(2 found in 3 text files)");
        assert_eq!(answer(&root, &search("^$")), "a/d.rs:2: \n(1 found in 3 text files)");
        let by_glob = Search { glob: Some("*.rs".to_owned()), ..search("needle") };
        assert_eq!(answer(&root, &by_glob), "a/c.rs:1: needle 2\n(1 found in 2 text files)");
        let by_path = Search { path: Some("./a/".to_owned()), ..search("needle") };
        assert_eq!(answer(&root, &by_path), "a/c.rs:1: needle 2\n(1 found in 2 text files)");
        let in_file = Search { path: Some("b.txt".to_owned()), ..search("needle") };
        assert_eq!(answer(&root, &in_file), "b.txt:2: needle 1\n(1 found in 1 text files)");
        let names = Search { names: true, ..search("^a/.*s$") };
        assert_eq!(answer(&root, &names), "a/c.rs\na/d.rs\n(2 found in 3 files)");
    }

    #[test]
    fn what_is_ignored_is_passed_over_and_the_nearest_folder_decides() {
        let (_folder, root) = folder(&[
            (".git/x", "needle"),
            (".gitignore", "*.log\n/target/\n"),
            ("target/x", "needle"),
            ("a/target/x", "needle"),
            ("a/b.log", "needle"),
            ("c/.gitignore", "!kept.log\n/own\n[bad\n"),
            ("c/kept.log", "needle"),
            ("c/other.log", "needle"),
            ("c/own", "needle"),
        ]);
        let reported = answer(&root, &search("needle"));
        assert_eq!(reported, "a/target/x:1: needle\nc/kept.log:1: needle\n(2 found in 4 text files)");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = format!("{}needle{}", "ä".repeat(1000), "ö".repeat(1000));
        let shown = around(line.as_bytes(), 2000);
        assert!(shown.len() <= SHOWN + 6 && shown.contains("needle"), "{shown}");
        assert!(shown.starts_with('…') && shown.ends_with('…'));
        assert_eq!(around(b"needle", 0), "needle");
    }

    #[test]
    fn answers_are_bounded() {
        let (_folder, root) =
            folder(&[("a", &"needle\n".repeat(1000)), ("b", &format!("{}\n", "n".repeat(400)).repeat(300))]);
        let reported = answer(&root, &search("needle"));
        assert_eq!(reported.lines().count(), 201);
        assert!(reported.contains("more than 200 places"), "{reported}");
        let reported = answer(&root, &search("nnn"));
        assert!(reported.len() <= USUAL_OUTPUT && reported.contains("the answer is full"), "{}", reported.len());
        let reported = answer(&root, &Search { max: Some(3), ..search("needle") });
        assert_eq!(reported.lines().count(), 4);
    }

    #[test]
    fn patterns_are_bounded_and_defects_are_reported() {
        assert!(pattern("(a{1000}){1000}").unwrap_err().0.contains("memory"));
        assert!(pattern("(").unwrap_err().0.contains("unclosed group"));
        assert!(pattern(&"a".repeat(1001)).unwrap_err().0.contains("1001 bytes"));
        let wrong = |text: &str| glob(text).map(drop).unwrap_err().0;
        assert!(wrong("[").contains("unclosed character class"), "{}", wrong("["));
        assert!(wrong(&"a".repeat(1001)).contains("1001 bytes"));
    }

    #[test]
    fn a_search_that_is_given_up_ends() {
        let (_folder, root) = folder(&[("a", "needle")]);
        let given_up = GivenUp::default();
        given_up.give_up();
        assert_eq!(found(&root, &search("needle"), &given_up).unwrap_err().0, "it was given up");
    }
}
