use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use callboard::messages::{Action, Intent, Json, Reconciled};
use callboard_text::{cut, quoted};
use cap_std::fs::{Dir, OpenOptions};
use futures::FutureExt;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::{Effect, Tool, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec, USUAL_OUTPUT, of_spec};
use super::blocking::{GivenUp, blocking};
use super::bounded::{beginning, whole};
use super::root::{PathError, Place, Root, Why, check_new, check_plain};

/// The largest file that is read, and the largest that is written, in bytes.
pub(super) const MAX_READ: usize = 2 << 20;
const MAX_WRITE: usize = 1 << 20;

/// The most bytes of a line that are shown.
const MAX_LINE: usize = 2000;

/// The name of the tool that writes files.
const WRITE: &str = "FileWrite";

/// The bytes that remain for the note below the lines.
const REMARKS: usize = 512;

/// The most temporary names that are tried for the new file.
const TRIES: u32 = 16;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The file, as seen from the folder that the tools work in, such as `src/main.rs`.
    path: String,
    /// The first line to show, from 1.
    #[schemars(range(min = 1))]
    from_line: Option<usize>,
    /// How many lines to show at most.
    #[schemars(range(min = 1))]
    lines: Option<usize>,
}

/// Reads a text file: its lines, each after its number and a tab. Name: `FileRead`.
///
/// At most 2 MiB of UTF-8; the answer has up to 32 KiB and says how to read on.
#[must_use]
pub fn file_read(root: &Root) -> impl Tool {
    let root = root.clone();
    let description = "Reads a text file (UTF-8, at most 2 MiB). Each line is shown after its number and a tab, which are not \
                       part of the file. What does not fit is left out, and the answer says how to read on.";
    let spec = ToolSpec::of::<Read>("FileRead", description, Effect::Reads).target("path");
    of_spec(spec, move |read: Read, _scope| {
        let root = root.clone();
        blocking(move |_| {
            let text = text_at(&root.find(&read.path)?, &read.path, MAX_READ)?;
            Ok(shown(&read, &text)?.into())
        })
    })
}

/// The text of a file, if it has at most so many bytes.
fn text_at(place: &Place, path: &str, most: usize) -> Result<String, ToolError> {
    let wrong = |why| PathError { path: path.to_owned(), why };
    let (file, _) = place.open().map_err(wrong)?;
    let bytes = whole(file, most).map_err(|error| wrong(error.into()))?.ok_or_else(|| {
        let advice = "FileSearch finds places in larger ones";
        ToolError(format!("{} has more than {} MiB; {advice}", quoted(path), most >> 20))
    })?;
    text(bytes).map_err(|problem| ToolError(format!("{} is no text: {problem}", quoted(path))))
}

/// The text, or an error with the position at which it is none.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    if let Some(place) = bytes.iter().position(|byte| *byte == 0) {
        return Err(format!("byte {} is NUL, as in programs, pictures or UTF-16", place + 1));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        format!("byte {} is not UTF-8", place + 1)
    })
}

fn shown(read: &Read, text: &str) -> Result<String, ToolError> {
    let all = text.lines().count();
    let first = read.from_line.unwrap_or(1).max(1);
    if text.is_empty() {
        return Ok("(the file is empty)".to_owned());
    }
    if first > all {
        return Err(ToolError(format!("{} has {all} lines; there is no line {first}", cut(&read.path))));
    }
    let wanted = read.lines.unwrap_or(usize::MAX).max(1);
    let (mut answer, mut last) = (String::new(), first - 1);
    for line in text.lines().skip(first - 1).take(wanted) {
        let cut = beginning(line, MAX_LINE);
        let mut entry = format!("{}\t{cut}", last + 1);
        if cut.len() < line.len() {
            let _ = write!(entry, "… (cut: the line has {} bytes)", line.len());
        }
        if answer.len() + entry.len() + 1 > USUAL_OUTPUT - REMARKS {
            break;
        }
        answer.push_str(&entry);
        answer.push('\n');
        last += 1;
    }
    if text.contains("\r\n") {
        answer.push_str("(lines end with \\r\\n)\n");
    }
    if last < all {
        let _ = writeln!(answer, "(lines {first} to {last} of {all}; read on with from_line: {})", last + 1);
    }
    Ok(answer)
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// The file, as seen from the folder that the tools work in. Folders that are missing are made.
    path: String,
    /// The whole new content.
    content: Option<String>,
    /// In place of `content`: a text that is in the file exactly once, as it is there, line breaks included.
    old: Option<String>,
    /// What stands in the place of `old` afterwards.
    new: Option<String>,
}

impl Write {
    fn wrong(&self, why: Why) -> PathError {
        PathError { path: self.path.clone(), why }
    }
}

/// The change of a file.
enum Change {
    Whole(String),
    Part { old: String, new: String },
}

impl Change {
    fn of(content: Option<String>, old: Option<String>, new: Option<String>) -> Result<Self, ToolError> {
        match (content, old, new) {
            (Some(content), None, None) => Ok(Self::Whole(content)),
            (None, Some(old), Some(new)) if !old.is_empty() => Ok(Self::Part { old, new }),
            (None, Some(_), Some(_)) => Err(ToolError("`old` is empty; give `content` for a whole file".to_owned())),
            (content, old, new) => {
                let has = [("content", content.is_some()), ("old", old.is_some()), ("new", new.is_some())];
                let given: Vec<_> = has.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
                let given = if given.is_empty() { "neither".to_owned() } else { given.join(" and ") };
                Err(ToolError(format!("give `content`, or `old` and `new`; here is {given}")))
            }
        }
    }
}

/// Writes a text file, or replaces one place of it. Name: `FileWrite`.
///
/// At most 1 MiB. The new content is written beside the old one, synced, and renamed into its place: whoever reads, also after
/// a crash, finds the old or the new one.
#[must_use]
pub fn file_write(root: &Root) -> impl Tool {
    let (root, written_root) = (root.clone(), root.clone());
    let description = "Writes a text file, with missing folders: the whole of it (`content`), or one place of it (`old`, \
                       which must be in the file exactly once, becomes `new`). At most 1 MiB.";
    let spec = ToolSpec::of::<Write>(WRITE, description, Effect::Writes).target("path");
    let tool = of_spec(spec, move |write: Write, _scope| {
        let root = root.clone();
        blocking(move |given_up| written(&root, write, given_up))
    });
    FileWrite { tool, root: written_root }
}

/// Writes files, and finds out whether an earlier write succeeded.
struct FileWrite<T> {
    tool: T,
    root: Root,
}

impl<T: Tool> Tool for FileWrite<T> {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn check(&self, arguments: &Json) -> Result<(), ToolError> {
        let path = arguments.get("path").and_then(|path| path.as_str());
        path.map_or(Ok(()), |path| self.root.check_text_to_change(path))?;
        let Ok(Write { content, old, new, .. }) = arguments.parse::<Write>() else { return Ok(()) };
        check_size(&Change::of(content, old, new)?)
    }

    fn look(&self, arguments: &Json) -> Option<BoxFuture<'static, Result<(), ToolError>>> {
        let path = arguments.get("path")?.as_str()?.to_owned();
        let root = self.root.clone();
        Some(blocking(move |_| Ok(root.check_to_change(&path)?)).boxed())
    }

    fn call(&self, arguments: Json, scope: ToolScope) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        self.tool.call(arguments, scope)
    }

    fn before(&self, arguments: Json) -> BoxFuture<'static, Json> {
        let root = self.root.clone();
        async move {
            let Ok(write) = arguments.parse::<Write>() else { return Json::null() };
            blocking(move |_| Ok(current_content(&root, &write.path).hash())).await.unwrap_or_default()
        }
        .boxed()
    }

    fn reconcile(
        &self,
        intent: Intent,
        arguments: Json,
        _: ToolScope,
    ) -> BoxFuture<'static, Result<Reconciled<ToolOutput>, ToolError>> {
        let root = self.root.clone();
        async move {
            let write: Write = arguments.parse()?;
            blocking(move |_| Ok(reconciled(&current_content(&root, &write.path), &intent.before, &write))).await
        }
        .boxed()
    }
}

/// The content of a file that is to be written.
enum CurrentContent {
    Nothing,
    Text(String),
    /// Content that cannot be compared.
    Other,
}

impl CurrentContent {
    /// Its SHA-256 in hexadecimal digits, `"missing"`, or null.
    fn hash(&self) -> Json {
        match self {
            Self::Nothing => "missing".into(),
            Self::Text(text) => hash(text),
            Self::Other => Json::null(),
        }
    }
}

fn hash(text: &str) -> Json {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn current_content(root: &Root, path: &str) -> CurrentContent {
    let is_missing = |why: &Why| matches!(why, Why::Missing);
    let place = match root.find(path) {
        Ok(place) => place,
        Err(error) if is_missing(&error.why) => return CurrentContent::Nothing,
        Err(_) => return CurrentContent::Other,
    };
    match place.open() {
        Ok(_) => text_at(&place, path, MAX_WRITE).map_or(CurrentContent::Other, CurrentContent::Text),
        Err(why) if is_missing(&why) => CurrentContent::Nothing,
        Err(_) => CurrentContent::Other,
    }
}

/// The text of the file that a use of `FileWrite` changes, as it is now, or why it cannot be shown; empty where a new file is written, and
/// `None` for other actions. It reads the file: whoever decides about the action may see what is lost.
#[must_use]
pub fn changed_text(root: &Root, action: &Action) -> Option<Result<String, ToolError>> {
    let write: Write = action.arguments.parse().ok().filter(|_| &*action.action == WRITE)?;
    let is_whole = write.content.is_some();
    match root.find(&write.path).and_then(|place| place.open().map(|_| place).map_err(|why| write.wrong(why))) {
        Ok(place) => Some(text_at(&place, &write.path, MAX_WRITE)),
        Err(PathError { why: Why::Missing, .. }) if is_whole => Some(Ok(String::new())),
        Err(error) => Some(Err(error.into())),
    }
}

/// The outcome of a write whose result was lost. A file is replaced as a whole, so it has the old or the new content; if it has
/// neither, another writer has changed it since, and the outcome is unknown.
fn reconciled(current: &CurrentContent, before: &Json, write: &Write) -> Reconciled<ToolOutput> {
    if !before.is_null() && current.hash() == *before {
        // Writing the same content again has no effect.
        return Reconciled::NotDone;
    }
    let CurrentContent::Text(text) = current else { return Reconciled::Unknown };
    let is_done = match (&write.content, &write.old, &write.new) {
        (Some(content), None, None) => content == text,
        (None, Some(old), Some(new)) if !new.is_empty() => text.match_indices(&**new).any(|(place, _)| {
            let undone = [&text[..place], old, &text[place + new.len()..]].concat();
            hash(&undone) == *before
        }),
        _ => false,
    };
    if is_done { Reconciled::Done(format!("{} was written", cut(&write.path)).into()) } else { Reconciled::Unknown }
}

fn written(root: &Root, write: Write, given_up: &GivenUp) -> Result<ToolOutput, ToolError> {
    let path = write.path;
    let change = Change::of(write.content, write.old, write.new)?;
    let wrong = |why| PathError { path: path.clone(), why };
    if path.ends_with('/') {
        return Err(wrong(Why::Folder).into());
    }
    check_size(&change)?;
    let _change = root.change.lock();
    let place = match &change {
        Change::Whole(_) => root.find_or_make(&path)?,
        Change::Part { .. } => root.find_to_change(&path)?,
    };
    let name = place.name.as_deref().ok_or_else(|| wrong(Why::Folder))?;
    let existing = match place.folder.symlink_metadata(name) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(wrong(error.into()).into()),
    };
    match &existing {
        Some(found) => check_plain(found.file_type()).map_err(wrong)?,
        None => check_new(name).map_err(wrong)?,
    }
    let shown = cut(&path);
    let (content, summary) = match change {
        Change::Whole(content) => {
            let before = if existing.is_some() { before(&place) } else { Some(String::new()) };
            let summary = match (existing.is_some(), before) {
                (false, _) => format!("{shown} is new: {} lines", content.lines().count()),
                (true, Some(before)) => format!("{shown}: {}", difference(&before, &content)),
                (true, None) => format!("{shown}: all of it is new, {} lines", content.lines().count()),
            };
            (content, summary)
        }
        Change::Part { old, new } => {
            let before = text_at(&place, &path, MAX_WRITE)?;
            let content = replaced(&before, &old, &new).map_err(|problem| ToolError(format!("{shown}: {problem}")))?;
            let summary = format!("{shown}: {}", difference(&before, &content));
            (content, summary)
        }
    };
    if content.len() > MAX_WRITE {
        return Err(ToolError(format!("{shown} would have {} bytes; at most {MAX_WRITE} are written", content.len())));
    }
    given_up.check()?;
    put(&place.folder, name, content.as_bytes(), existing.map(|found| found.permissions()))
        .map_err(|error| wrong(error.into()))?;
    Ok(summary.into())
}

fn check_size(change: &Change) -> Result<(), ToolError> {
    let size = match change {
        Change::Whole(content) => content.len(),
        Change::Part { old, new } => old.len().max(new.len()),
    };
    if size > MAX_WRITE {
        return Err(ToolError(format!("{size} bytes are too many; at most {MAX_WRITE} are written")));
    }
    Ok(())
}

/// The content of the file, if it is text that can be compared.
fn before(place: &Place) -> Option<String> {
    let (file, _) = place.open().ok()?;
    text(whole(file, MAX_READ).ok()??).ok()
}

fn replaced(text: &str, old: &str, new: &str) -> Result<String, String> {
    match text.matches(old).count() {
        1 if overlaps(text, old) => {
            Err("`old` is there more than once, overlapping; give more of what is around".to_owned())
        }
        1 => Ok(text.replacen(old, new, 1)),
        0 => Err("`old` is not there; it must be exactly as in the file, without line numbers".to_owned()),
        times => Err(format!("`old` is there {times} times; give more of what is around the one that is meant")),
    }
}

/// Whether a second occurrence overlaps the first, as `aa` in `aaa`.
fn overlaps(text: &str, old: &str) -> bool {
    text.find(old).is_some_and(|first| {
        let next = first + old.chars().next().map_or(1, char::len_utf8);
        text[next..].contains(old)
    })
}

/// The number of removed and added lines, between the first and the last difference.
fn difference(before: &str, after: &str) -> String {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(old, new)| old == new).count();
    let (before, after) = (&before[same..], &after[same..]);
    let same_end = before.iter().rev().zip(after.iter().rev()).take_while(|(old, new)| old == new).count();
    let (removed, added) = (before.len() - same_end, after.len() - same_end);
    match (removed, added) {
        (0, 0) => "no line differs".to_owned(),
        (removed, added) => format!("{added} lines added, {removed} removed, from line {}", same + 1),
    }
}

/// Writes a temporary file in the same folder, and renames it.
fn put(
    folder: &Dir,
    name: &str,
    content: &[u8],
    permissions: Option<cap_std::fs::Permissions>,
) -> Result<(), std::io::Error> {
    let (beside, mut file) = new_file(folder)?;
    let done = (|| {
        file.write_all(content)?;
        if let Some(permissions) = permissions {
            file.set_permissions(without_set_id(permissions))?;
        }
        file.sync_all()?;
        folder.rename(&beside, folder, name)
    })();
    if done.is_err() {
        // A remaining temporary file does no harm, and the first error is the one to report.
        let _ = folder.remove_file(&beside);
    }
    done
}

/// The mode without the setuid and setgid bits: a tool has written the present content.
#[cfg(unix)]
fn without_set_id(permissions: cap_std::fs::Permissions) -> cap_std::fs::Permissions {
    use cap_std::fs::PermissionsExt as _;
    cap_std::fs::Permissions::from_mode(permissions.mode() & 0o1777)
}

#[cfg(not(unix))]
fn without_set_id(permissions: cap_std::fs::Permissions) -> cap_std::fs::Permissions {
    permissions
}

fn new_file(folder: &Dir) -> std::io::Result<(String, cap_std::fs::File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut tries = 0;
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".callboard-{}-{count}.tmp", std::process::id());
        match folder.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from_line: Option<usize>, lines: Option<usize>) -> Read {
        Read { path: "a".to_owned(), from_line, lines }
    }

    #[test]
    fn lines_have_numbers_and_what_is_left_out_is_reported() {
        let text = "one\ntwo\n\nfour";
        assert_eq!(shown(&read(None, None), text).unwrap(), "1\tone\n2\ttwo\n3\t\n4\tfour\n");
        assert_eq!(
            shown(&read(Some(2), Some(1)), text).unwrap(),
            "2\ttwo\n(lines 2 to 2 of 4; read on with from_line: 3)\n"
        );
        assert_eq!(shown(&read(Some(5), None), text).unwrap_err().0, "a has 4 lines; there is no line 5");
        assert_eq!(shown(&read(None, None), "").unwrap(), "(the file is empty)");
        assert_eq!(shown(&read(None, None), "a\r\n").unwrap(), "1\ta\n(lines end with \\r\\n)\n");
    }

    #[test]
    fn what_is_shown_is_bounded_and_reading_on_shows_all_of_it() {
        let text: String = (1..=20_000).map(|line| format!("line {line}\n")).collect();
        let (mut seen, mut from) = (Vec::new(), 1);
        while from <= 20_000 {
            let answer = shown(&read(Some(from), None), &text).unwrap();
            assert!(answer.len() <= USUAL_OUTPUT);
            let lines = answer.lines().filter_map(|line| Some(line.split_once('\t')?.1.to_owned()));
            seen.extend(lines);
            from = seen.len() + 1;
        }
        assert_eq!(seen, text.lines().collect::<Vec<_>>());
        let long = shown(&read(None, None), &"ä".repeat(500_000)).unwrap();
        assert!(long.len() < 2100 && long.contains("(cut: the line has 1000000 bytes)"), "{long}");
    }

    #[test]
    fn what_is_no_text_is_reported_with_its_place() {
        assert_eq!(text(b"ab\xffc".to_vec()).unwrap_err(), "byte 3 is not UTF-8");
        assert_eq!(text(b"a\0\xff".to_vec()).unwrap_err(), "byte 2 is NUL, as in programs, pictures or UTF-16");
        assert_eq!(text("grün".into()).unwrap(), "grün");
    }

    #[test]
    fn one_place_is_replaced_and_no_other() {
        assert_eq!(replaced("a b c", "b", "B").unwrap(), "a B c");
        assert!(replaced("a b c", "x", "B").unwrap_err().contains("not there"));
        assert!(replaced("a b b", "b", "B").unwrap_err().contains("2 times"));
        assert!(replaced("aaa", "aa", "B").unwrap_err().contains("overlapping"));
        assert!(replaced("äää", "ää", "B").unwrap_err().contains("overlapping"));
    }

    #[test]
    fn the_difference_counts_lines() {
        assert_eq!(difference("a\nb\nc\n", "a\nx\ny\nc\n"), "2 lines added, 1 removed, from line 2");
        assert_eq!(difference("a\n", "a\n"), "no line differs");
        assert_eq!(difference("", "a\nb"), "2 lines added, 0 removed, from line 1");
        assert_eq!(difference("a\na\n", "a\n"), "0 lines added, 1 removed, from line 2");
    }

    #[test]
    fn files_are_replaced_whole_and_keep_their_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let write = |path: &str, content: &str| Write {
            path: path.to_owned(),
            content: Some(content.to_owned()),
            old: None,
            new: None,
        };
        let output = written(&root, write("a/b/run.sh", "one\n"), &GivenUp::default()).unwrap();
        assert_eq!(output.text, "a/b/run.sh is new: 1 lines");
        let file = folder.path().join("a/b/run.sh");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
        let open = std::fs::File::open(&file).unwrap();
        let output = written(&root, write("a/b/run.sh", "one\ntwo\n"), &GivenUp::default()).unwrap();
        assert_eq!(output.text, "a/b/run.sh: 1 lines added, 0 removed, from line 2");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(whole(open, 100).unwrap().unwrap(), b"one\n", "who reads the old one still has all of it");
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_is_replaced_runs_as_its_owner_no_more() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let file = folder.path().join("run");
        for (old, new) in [(None, None), (Some("one"), Some("two"))] {
            std::fs::write(&file, "one").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o6755)).unwrap();
            let content = old.is_none().then(|| "two".to_owned());
            let [old, new] = [old, new].map(|text| text.map(str::to_owned));
            written(&root, Write { path: "run".to_owned(), content, old, new }, &GivenUp::default()).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
        }
    }

    #[test]
    fn whether_a_file_was_written_is_found_out_from_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let whole = |content: &str| Write { path: "a".into(), content: Some(content.into()), old: None, new: None };
        let part = |old: &str, new: &str| Write {
            path: "a".into(),
            content: None,
            old: Some(old.into()),
            new: Some(new.into()),
        };
        // The content before, the write, and the content afterwards.
        let cases = [
            (None, whole("x\n"), "x\n"),
            (Some("one\n"), whole("x\n"), "x\n"),
            (Some("one two\n"), part("two", "2"), "one 2\n"),
            (Some("2 two\n"), part("two", "2"), "2 2\n"),
        ];
        for (there, write, after) in cases {
            let file = folder.path().join("a");
            match there {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => drop(std::fs::remove_file(&file)),
            }
            let before = current_content(&root, "a").hash();
            let came_of_it = || reconciled(&current_content(&root, "a"), &before, &write);
            assert_eq!(came_of_it(), Reconciled::NotDone, "{there:?}");
            written(&root, write.clone(), &GivenUp::default()).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
            assert_eq!(came_of_it(), Reconciled::Done("a was written".into()), "{there:?}");
            std::fs::write(&file, "what somebody else wrote later\n").unwrap();
            assert_eq!(came_of_it(), Reconciled::Unknown, "{there:?}");
            std::fs::remove_file(&file).unwrap();
            let deleted = if there.is_none() { Reconciled::NotDone } else { Reconciled::Unknown };
            assert_eq!(came_of_it(), deleted, "{there:?}");
        }
        std::fs::write(folder.path().join("a"), [0, 255]).unwrap();
        let before = current_content(&root, "a").hash();
        assert_eq!(reconciled(&current_content(&root, "a"), &before, &whole("x")), Reconciled::Unknown);
    }

    #[test]
    fn a_change_that_was_given_up_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let write = Write { path: "a".to_owned(), content: Some("x".to_owned()), old: None, new: None };
        let given_up = GivenUp::default();
        given_up.give_up();
        assert_eq!(written(&root, write, &given_up).unwrap_err().0, "it was given up");
        assert!(!folder.path().join("a").exists());
    }
}
