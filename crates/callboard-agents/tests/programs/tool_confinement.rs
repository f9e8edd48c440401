//! What a hostile model asks of the tools that come with the library: nothing outside their folder is read or written, the
//! hidden folder is reached by no name, and whatever is too much has a named refusal or a bounded answer.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callboard_agents::tools::{self, Root};
use callboard_agents::{Tool, ToolError, ToolOutput, ToolScope};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What is in files that no tool may read, and what hostile calls write.
const SECRET: &str = "C4N4RY";
const HARM: &str = "H4RM";

/// A folder for tools, with something hidden in it and something that is none of their business beside it.
struct World {
    base: TempDir,
    root: Root,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let (outside, inside) = (base.path().join("outside"), base.path().join("root"));
        for folder in ["outside/sub", "root/sub/deeper", "root/.board/deep", "root/nest/.board2"] {
            fs::create_dir_all(base.path().join(folder)).unwrap();
        }
        for (path, text) in [
            ("outside/canary.txt", SECRET),
            ("outside/sub/canary.txt", SECRET),
            ("root/.board/token", SECRET),
            ("root/.board/deep/token", SECRET),
            ("root/nest/.board2/token", SECRET),
            ("root/a.txt", "inside\n"),
            ("root/sub/b.txt", "inside too\n"),
            ("root/sub/canary.txt", "inside three\n"),
        ] {
            fs::write(base.path().join(path), text).unwrap();
        }
        let absolute = |path: &str| outside.join(path).display().to_string();
        for (link, target) in [
            ("out_abs", &*absolute("")),
            ("out_rel", "../outside"),
            ("sub/out_rel", "../../outside"),
            ("sub/out_far", "../../../../../../../../../../../../../../etc"),
            ("file_abs", &absolute("canary.txt")),
            ("file_rel", "../outside/canary.txt"),
            ("file_odd", "./sub/.././/../outside/./canary.txt"),
            ("inside_abs", &inside.join("a.txt").display().to_string()),
            ("chain1", "chain2"),
            ("chain2", "sub/chain3"),
            ("sub/chain3", "../../outside"),
            ("loop1", "loop2"),
            ("loop2", "loop1"),
            ("self", "self"),
            ("selves", "selves/selves"),
            ("up", ".."),
            ("up_twice", "sub/../.."),
            ("in_folder", "sub"),
            ("in_file", "a.txt"),
            ("in_root", "."),
            ("dangling_out", "../outside/new.txt"),
            ("dangling_in", "nowhere.txt"),
            ("to_hidden", ".board"),
            ("to_hidden_deep", ".board/deep"),
            ("to_token", ".board/token"),
            ("to_hidden_far", "sub/../in_root/.board"),
            ("to_hidden2", "nest/.board2"),
            ("null", "/dev/null"),
            ("zero", "/dev/zero"),
            ("process", "/proc/self"),
            ("process_root", "/proc/self/root"),
            ("handles", "/proc/self/fd"),
            ("own_root", "/"),
        ] {
            symlink(target, inside.join(link)).unwrap();
        }
        let root = Root::open(&inside).unwrap();
        let root = root.without(inside.join(".board")).unwrap().without(inside.join("nest/.board2")).unwrap();
        Self { base, root }
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.base.path().join("root").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.base.path().join("outside").join(path)
    }

    /// All that no tool may change, with what is in it.
    fn kept(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        for folder in [self.outside(""), self.inside(".board"), self.inside("nest/.board2")] {
            listed(&folder, &mut found);
        }
        let names = fs::read_dir(self.base.path()).unwrap().map(|entry| (entry.unwrap().path(), None));
        found.extend(names);
        found
    }
}

fn listed(folder: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            listed(&path, found);
            found.insert(path, None);
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, Some(content));
        }
    }
}

async fn used(tool: &impl Tool, arguments: Value) -> Result<ToolOutput, ToolError> {
    let scope =
        ToolScope { key: "test".into(), context: None, turn: None, variables: None, trace_parent: None, asker: None };
    let most = tool.spec().max_output;
    let answer = tool.call(arguments.into(), scope).await.map_err(|failure| failure.error().clone());
    let text = match &answer {
        Ok(output) => &output.text,
        Err(error) => &error.0,
    };
    assert!(text.len() <= most, "an answer of {} bytes", text.len());
    assert!(!text.contains(SECRET), "it tells what is hidden: {text}");
    answer
}

async fn read(root: &Root, path: &str) -> Result<ToolOutput, ToolError> {
    used(&tools::file_read(root), json!({ "path": path })).await
}

async fn write(root: &Root, path: &str) -> Result<ToolOutput, ToolError> {
    used(&tools::file_write(root), json!({ "path": path, "content": HARM })).await
}

async fn search(root: &Root, arguments: Value) -> Result<ToolOutput, ToolError> {
    used(&tools::file_search(root), arguments).await
}

/// Each way to use a path. What leads to files of the machine is only read: if a tool is broken, that is harm enough.
async fn all_ways(root: &Root, path: &str) -> Vec<(&'static str, Result<ToolOutput, ToolError>)> {
    let mut answers = vec![
        ("read", read(root, path).await),
        ("search", search(root, json!({ "pattern": ".", "path": path })).await),
        ("names", search(root, json!({ "pattern": ".", "path": path, "names": true })).await),
    ];
    let of_machine = ["etc", "proc", "/dev", "null", "zero", "handles", "own_root", "out_far"];
    if path != "/" && !of_machine.iter().any(|part| path.contains(part)) {
        answers.push(("write", write(root, path).await));
        let replaces = json!({ "path": path, "old": "C", "new": HARM });
        answers.push(("replace", used(&tools::file_write(root), replaces).await));
    }
    answers
}

const OUT: &str = "leads out of the folder";
const HIDDEN: &str = "belongs to the board";
const ABSOLUTE: &str = "is absolute";
const ROUND: &str = "in circles";

#[tokio::test]
async fn no_path_leads_out_of_the_folder_or_into_what_is_hidden() {
    let world = World::new();
    let kept = world.kept();
    let (outside, inside) =
        (world.outside("canary.txt").display().to_string(), world.inside("a.txt").display().to_string());
    let ups = format!("{}etc/passwd", "../".repeat(60));
    let many = format!("{}canary.txt", "sub/../".repeat(500) + "../outside/");
    let too_many = "./".repeat(3000) + "a.txt";
    let deep = "d/".repeat(70) + "a.txt";
    let cases: Vec<(&str, &[&str])> = vec![
        // Dots.
        ("..", &[OUT]),
        ("../", &[OUT, "is a folder"]),
        ("../outside/canary.txt", &[OUT]),
        ("./../outside/canary.txt", &[OUT]),
        ("sub/../../outside/canary.txt", &[OUT]),
        ("sub/deeper/../../../outside/canary.txt", &[OUT]),
        ("sub/./.././../outside/canary.txt", &[OUT]),
        ("sub//..//..//outside//canary.txt", &[OUT]),
        (&ups, &[OUT]),
        (&many, &[OUT]),
        ("../root/a.txt", &[OUT]),
        ("a.txt/../../outside/canary.txt", &["is not a folder"]),
        ("a.txt/..", &["is not a folder"]),
        ("a.txt/", &["is not a folder", "is a folder"]),
        ("a.txt/.", &["is not a folder"]),
        // Absolute.
        ("/", &[ABSOLUTE, "is a folder"]),
        ("/etc/passwd", &[ABSOLUTE]),
        ("//etc/passwd", &[ABSOLUTE]),
        (&outside, &[ABSOLUTE]),
        (&inside, &[ABSOLUTE]),
        ("/proc/self/environ", &[ABSOLUTE]),
        ("/proc/self/root/etc/passwd", &[ABSOLUTE]),
        ("/dev/zero", &[ABSOLUTE]),
        // Links, in each position.
        ("out_abs/canary.txt", &[OUT]),
        ("out_rel/canary.txt", &[OUT]),
        ("out_rel", &[OUT]),
        ("out_rel/sub/canary.txt", &[OUT]),
        ("sub/out_rel/canary.txt", &[OUT]),
        ("sub/out_far/passwd", &[OUT]),
        ("in_folder/out_rel/canary.txt", &[OUT]),
        ("in_root/in_root/out_rel/canary.txt", &[OUT]),
        ("file_abs", &[OUT]),
        ("file_rel", &[OUT]),
        ("file_odd", &[OUT]),
        ("inside_abs", &[OUT, ABSOLUTE]),
        ("up/outside/canary.txt", &[OUT]),
        ("up_twice/outside/canary.txt", &[OUT]),
        ("in_folder/../../outside/canary.txt", &[OUT]),
        ("dangling_out", &[OUT]),
        ("out_rel/new.txt", &[OUT]),
        ("out_rel/new/new.txt", &[OUT]),
        ("chain1/canary.txt", &[OUT]),
        ("chain1", &[OUT]),
        ("loop1", &[ROUND]),
        ("loop1/a.txt", &[ROUND]),
        ("self", &[ROUND]),
        ("selves", &[ROUND]),
        ("selves/x", &[ROUND]),
        // What the system has for links.
        ("null", &[OUT]),
        ("zero", &[OUT]),
        ("process/environ", &[OUT]),
        ("process/cwd/canary.txt", &[OUT]),
        ("process_root/etc/passwd", &[OUT]),
        ("handles/0", &[OUT]),
        ("own_root/etc/passwd", &[OUT]),
        // What is hidden, by each of its names.
        (".board", &[HIDDEN]),
        (".board/token", &[HIDDEN]),
        ("./.board/token", &[HIDDEN]),
        (".board/", &[HIDDEN, "is a folder"]),
        (".board/../.board/token", &[HIDDEN]),
        (".board/deep/token", &[HIDDEN]),
        (".board/new.txt", &[HIDDEN]),
        (".board/deep/../../a.txt", &[HIDDEN]),
        ("sub/../.board/token", &[HIDDEN]),
        ("in_root/.board/token", &[HIDDEN]),
        ("to_hidden/token", &[HIDDEN]),
        ("to_hidden", &[HIDDEN]),
        ("to_hidden_deep/token", &[HIDDEN]),
        ("to_token", &[HIDDEN]),
        ("to_hidden_far/deep/token", &[HIDDEN]),
        ("to_hidden2/token", &[HIDDEN]),
        ("nest/.board2/token", &[HIDDEN]),
        // What is no path.
        ("", &["is no path"]),
        ("a.txt\0", &["NUL"]),
        ("a.txt\0/../../outside/canary.txt", &["NUL"]),
        ("..\\outside\\canary.txt", &["backslash"]),
        ("sub\\b.txt", &["backslash"]),
        ("\\\\?\\C:\\Windows", &["backslash"]),
        (&too_many, &["is longer than"]),
        (&deep, &["folders deep", "is not there"]),
    ];
    assert!(cases.len() >= 50);
    for (path, reasons) in cases {
        for (way, answer) in all_ways(&world.root, path).await {
            let error = answer.expect_err(&format!("{way} {path:?}")).0;
            assert!(reasons.iter().any(|reason| error.contains(reason)), "{way} {path:?}: {error}");
        }
    }
    assert_eq!(world.kept(), kept);
}

#[tokio::test]
async fn names_that_only_look_like_ways_out_are_names() {
    let world = World::new();
    let kept = world.kept();
    for path in [
        "．．/outside/x",
        "‥/x",
        "…/x",
        "%2e%2e/x",
        "%2e%2e%2foutside",
        "..%2foutside",
        "..;/x",
        "~/x",
        "~root",
        "$HOME/x",
        ".. /x",
        " ../x",
        "... /x",
        "..././x",
        "c:x",
        "file:x",
        "-rf",
        "*",
        "。。/x",
        "․․/x",
        "∕etc∕passwd",
        ".BOARD/token",
        ".board./token",
    ] {
        assert!(read(&world.root, path).await.unwrap_err().0.contains("is not there"), "{path}");
        write(&world.root, path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(fs::read_to_string(world.inside(path)).unwrap(), HARM, "{path}");
    }
    for path in ["a\nb", "x\u{202e}txt.exe", "x\u{200b}", "new\u{1b}[2J/x", "\u{feff}x", "x\u{fe0f}", "\r"] {
        assert!(write(&world.root, path).await.unwrap_err().0.contains("not shown"), "{path:?}");
    }
    assert_eq!(world.kept(), kept);
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    let world = World::new();
    assert_eq!(read(&world.root, "in_folder/b.txt").await.unwrap().text, "1\tinside too\n");
    assert_eq!(read(&world.root, "in_file").await.unwrap().text, "1\tinside\n");
    assert_eq!(read(&world.root, "in_root/in_folder/../a.txt").await.unwrap().text, "1\tinside\n");
    write(&world.root, "in_file").await.unwrap();
    assert!(world.inside("in_file").is_symlink(), "the file is written, not the link");
    assert_eq!(fs::read_to_string(world.inside("a.txt")).unwrap(), HARM);
    write(&world.root, "dangling_in").await.unwrap();
    assert_eq!(fs::read_to_string(world.inside("nowhere.txt")).unwrap(), HARM);
}

#[tokio::test]
async fn a_search_sees_nothing_outside_and_nothing_hidden() {
    let world = World::new();
    for names in [false, true] {
        let pattern = if names { "canary|token" } else { "." };
        let reported = search(&world.root, json!({ "pattern": pattern, "names": names })).await.unwrap().text;
        assert!(reported.contains("sub/canary.txt"), "{reported}");
        assert!(!reported.contains("token") && !reported.contains("board"), "{reported}");
    }
}

#[tokio::test]
async fn what_is_hidden_stays_so_when_it_is_moved_or_made_again() {
    let world = World::new();
    fs::rename(world.inside(".board"), world.inside("sub/moved")).unwrap();
    assert!(read(&world.root, "sub/moved/token").await.unwrap_err().0.contains(HIDDEN));
    fs::create_dir(world.inside(".board")).unwrap();
    fs::write(world.inside(".board/token"), SECRET).unwrap();
    assert!(read(&world.root, ".board/token").await.unwrap_err().0.contains(HIDDEN));
}

#[tokio::test]
async fn a_folder_that_cannot_be_kept_is_reported() {
    let world = World::new();
    assert!(Root::open(world.inside("nothing")).unwrap_err().to_string().contains("cannot be opened"));
    assert!(Root::open(world.inside("a.txt")).unwrap_err().to_string().contains("cannot be opened"));
    let root = || Root::open(world.inside("sub")).unwrap();
    assert!(root().without(world.inside("nothing")).unwrap_err().to_string().contains("cannot be opened"));
    for within in [world.inside("sub"), world.inside(""), world.base.path().to_owned(), PathBuf::from("/")] {
        assert!(root().without(within).unwrap_err().to_string().contains("choose another"));
    }
    let beside = root().without(world.outside("")).unwrap();
    assert!(read(&beside, "b.txt").await.unwrap().text.contains("inside too"), "it hides nothing of its own");
}

#[tokio::test]
async fn what_defines_agents_is_read_and_not_changed_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |path: &str| folder.path().join(path);
    for path in ["agents/deep", "other"] {
        fs::create_dir_all(inside(path)).unwrap();
    }
    for file in ["agents/a.toml", "agents/deep/b.toml", "models.toml", "other/m.toml"] {
        fs::write(inside(file), "a person's").unwrap();
    }
    fs::hard_link(inside("models.toml"), inside("hard.toml")).unwrap();
    symlink("other/m.toml", inside("linked.toml")).unwrap();
    symlink("agents", inside("way")).unwrap();
    let kept = ["agents", "models.toml", "mcp.toml", "linked.toml"].map(inside);
    let root = kept.iter().try_fold(Root::open(folder.path()).unwrap(), Root::keeping).unwrap();
    for path in [
        "agents/a.toml",
        "agents/new.toml",
        "agents/new/x.toml",
        "agents/deep/b.toml",
        "way/a.toml",
        "other/../agents/a.toml",
        "models.toml",
        "./models.toml",
        "MODELS.toml",
        "hard.toml",
        "mcp.toml",
        "mcp.toml/x",
        "linked.toml",
        "other/m.toml",
        "none/../agents/a.toml",
        "none1/./below//../../way/new.toml",
    ] {
        let looked = looked(&root, path).await.unwrap_err();
        let error = write(&root, path).await.unwrap_err();
        assert_eq!(looked, error, "{path}");
        assert!(error.0.contains("tools may read it and not change it"), "{path}: {error}");
        let part = json!({ "path": path, "old": "person", "new": HARM });
        used(&tools::file_write(&root), part).await.unwrap_err();
    }
    assert!(read(&root, "models.toml").await.unwrap().text.contains("a person's"));
    assert!(read(&root, "way/a.toml").await.unwrap().text.contains("a person's"));
    for path in ["agents.toml", "other/new.toml", "none2/../agents2/a.toml", "none2/below/a.toml"] {
        assert_eq!(looked(&root, path).await, Ok(()), "{path}");
    }
    assert!(!inside("none2").exists() && !inside("agents2").exists(), "to look makes nothing");
    write(&root, "agents.toml").await.unwrap();
    write(&root, "other/new.toml").await.unwrap();
    let mut found = BTreeMap::new();
    listed(folder.path(), &mut found);
    let harmed = found.iter().filter(|(_, text)| text.as_deref().is_some_and(|text| text == HARM.as_bytes()));
    let harmed: Vec<_> = harmed.map(|(path, _)| path.strip_prefix(folder.path()).unwrap()).collect();
    assert_eq!(harmed, [Path::new("agents.toml"), Path::new("other/new.toml")]);
    assert!(!inside("mcp.toml").exists() && !inside("agents/new").exists());
    for same in ["agents", "way", "agents/deep/.."] {
        let error = Root::open(inside("agents")).unwrap().keeping(inside(same)).unwrap_err();
        assert!(error.to_string().contains("choose another folder"), "{error}");
    }
}

/// What is found before people are asked about a write.
async fn looked(root: &Root, path: &str) -> Result<(), ToolError> {
    tools::file_write(root).look(&json!({ "path": path, "content": HARM }).into()).unwrap().await
}

/// While a folder is swapped for a link again and again, whatever is found is inside.
#[tokio::test]
async fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere() {
    let world = World::new();
    let kept = world.kept();
    let [swapped, link] = ["swapped", "link"].map(|name| world.inside(name));
    fs::create_dir(&swapped).unwrap();
    fs::write(swapped.join("canary.txt"), "inside\n").unwrap();
    symlink("../outside", &link).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ends);
    let swaps = std::thread::spawn(move || {
        while !has_ended.load(Ordering::Relaxed) {
            renameat_with(CWD, &swapped, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        }
    });
    let (mut inside, mut refused, mut written) = (0, 0, 0);
    while inside < 100 || refused < 100 || written < 100 {
        match read(&world.root, "swapped/canary.txt").await {
            Ok(output) => {
                assert_eq!(output.text, "1\tinside\n");
                inside += 1;
            }
            Err(_) => refused += 1,
        }
        match used(&tools::file_write(&world.root), json!({ "path": "swapped/new.txt", "content": HARM })).await {
            Ok(_) => written += 1,
            Err(_) => refused += 1,
        }
        search(&world.root, json!({ "pattern": SECRET, "max": 1 })).await.unwrap();
    }
    ends.store(true, Ordering::Relaxed);
    swaps.join().unwrap();
    assert_eq!(world.kept(), kept);
}

/// The same with a file that is swapped for a link to a file.
#[tokio::test]
async fn a_file_that_becomes_a_link_meanwhile_is_not_followed() {
    let world = World::new();
    let kept = world.kept();
    let swapped = world.inside("swapped");
    fs::write(&swapped, "inside\n").unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ends);
    let swaps = std::thread::spawn(move || {
        let beside = swapped.with_file_name("beside");
        while !has_ended.load(Ordering::Relaxed) {
            let _ = fs::remove_file(&beside);
            symlink("../outside/canary.txt", &beside).unwrap();
            fs::rename(&beside, &swapped).unwrap();
            fs::write(&beside, "inside\n").unwrap();
            fs::rename(&beside, &swapped).unwrap();
        }
    });
    let (mut inside, mut refused) = (0, 0);
    while inside < 100 || refused < 100 {
        match read(&world.root, "swapped").await {
            Ok(output) if output.text == "1\tinside\n" => inside += 1,
            Ok(output) => assert!(output.text.contains(HARM), "{}", output.text),
            Err(_) => refused += 1,
        }
        let _ = used(&tools::file_write(&world.root), json!({ "path": "swapped", "content": HARM })).await;
    }
    ends.store(true, Ordering::Relaxed);
    swaps.join().unwrap();
    assert_eq!(world.kept(), kept);
}

fn fifo(path: PathBuf) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn sparse(path: PathBuf, size: u64) {
    fs::File::create(path).unwrap().set_len(size).unwrap();
}

/// A named refusal, or an answer with this in it.
#[derive(Debug)]
enum Comes {
    No(&'static str),
    Yes(&'static str),
}

use Comes::{No, Yes};

#[track_caller]
fn assert_comes(case: &str, answer: Result<ToolOutput, ToolError>, comes: &Comes) {
    match (&answer, comes) {
        (Err(error), No(reason)) => assert!(error.0.contains(reason), "{case}: {error}"),
        (Ok(output), Yes(part)) => {
            let text = &output.text;
            assert!(text.contains(part), "{case}: {}…", &text[..text.floor_char_boundary(300)]);
        }
        (Ok(output), No(reason)) => panic!("{case}: not refused for {reason:?}: {} bytes", output.text.len()),
        (Err(error), Yes(part)) => panic!("{case}: no {part:?}: {error}"),
    }
}

const MIB: usize = 1 << 20;

#[tokio::test]
async fn files_that_are_too_much_or_no_text_are_refused_or_cut() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let at = |name: &str| folder.path().join(name);
    let utf16 = |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<_>>();
    let contents: Vec<(&str, Vec<u8>)> = vec![
        ("large", vec![b'x'; 2 * MIB + 1]),
        ("just", vec![b'x'; 2 * MIB]),
        ("breaks", vec![b'\n'; 2 * MIB]),
        ("returns", vec![b'\r'; MIB]),
        ("wide", "\u{1F600}".repeat(MIB / 4).into_bytes()),
        ("lines", "line\n".repeat(MIB / 5).into_bytes()),
        ("program", b"\x7fELF\x02\x01\x01\0\0\0".to_vec()),
        ("nul_end", b"text\0".to_vec()),
        ("bad_first", b"\xfftext".to_vec()),
        ("bad_middle", b"te\xe9xt".to_vec()),
        ("bad_end", b"text\xe2\x82".to_vec()),
        ("latin1", b"gr\xfcn".to_vec()),
        ("utf16le", utf16("text", u16::to_le_bytes)),
        ("utf16be", utf16("text", u16::to_be_bytes)),
        ("utf32", "text".chars().flat_map(|c| (c as u32).to_le_bytes()).collect()),
        ("overlong", b"..\xc0\xaf..".to_vec()),
        ("surrogate", b"\xed\xa0\x80".to_vec()),
        ("mark", "\u{feff}text".into()),
        ("empty", Vec::new()),
        ("picture", b"\x89PNG\r\n\x1a\n\0\0".to_vec()),
    ];
    for (name, content) in contents {
        fs::write(at(name), content).unwrap();
    }
    sparse(at("sparse"), 1 << 40);
    fifo(at("pipe"));
    symlink("pipe", at("pipe_link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    let by_path = [
        ("large", No("has more than 2 MiB")),
        ("sparse", No("has more than 2 MiB")),
        ("just", Yes("(cut: the line has 2097152 bytes)")),
        ("breaks", Yes("of 2097152; read on")),
        ("returns", Yes("(cut: the line has 1048576 bytes)")),
        ("wide", Yes("(cut: the line has 1048576 bytes)")),
        ("lines", Yes("read on with from_line: ")),
        ("program", No("byte 8 is NUL")),
        ("nul_end", No("byte 5 is NUL")),
        ("bad_first", No("byte 1 is not UTF-8")),
        ("bad_middle", No("byte 3 is not UTF-8")),
        ("bad_end", No("byte 5 is not UTF-8")),
        ("latin1", No("byte 3 is not UTF-8")),
        ("utf16le", No("byte 2 is NUL")),
        ("utf16be", No("byte 1 is NUL")),
        ("utf32", No("byte 2 is NUL")),
        ("overlong", No("byte 3 is not UTF-8")),
        ("surrogate", No("byte 1 is not UTF-8")),
        ("mark", Yes("text")),
        ("empty", Yes("(the file is empty)")),
        ("picture", No("is NUL")),
        ("pipe", No("is a pipe")),
        ("pipe_link", No("is a pipe")),
        ("socket", No("is a pipe, a device or a socket")),
        ("folder", No("is a folder")),
        (".", No("is a folder")),
    ];
    for (path, comes) in by_path {
        assert_comes(path, read(&root, path).await, &comes);
    }
    let file_read = tools::file_read(&root);
    for (arguments, comes) in [
        (json!({ "path": "lines", "from_line": u64::MAX }), No("there is no line 18446744073709551615")),
        (json!({ "path": "lines", "lines": u64::MAX, "from_line": 209_715 }), Yes("209715\tline")),
        (json!({ "path": "lines", "from_line": 0, "lines": 0 }), Yes("lines 1 to 1 of")),
        (json!({ "path": "lines", "from_line": -1 }), No("do not fit")),
        (json!({ "path": ["lines"] }), No("do not fit")),
        (json!({ "path": "lines", "follow": true }), No("do not fit")),
    ] {
        assert_comes(&arguments.to_string(), used(&file_read, arguments.clone()).await, &comes);
    }
    // They are only read: a tool that is broken must not harm the machine that shows it.
    let devices = Root::open("/dev").unwrap();
    for device in ["zero", "full", "random", "urandom", "null", "tty"] {
        assert_comes(device, read(&devices, device).await, &No("is a pipe, a device or a socket"));
    }
}

#[tokio::test]
async fn writing_too_much_or_onto_what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("near"), "y".to_owned() + &"x".repeat(MIB - 1)).unwrap();
    fs::write(at("over"), "y".to_owned() + &"x".repeat(MIB)).unwrap();
    fs::write(at("binary"), b"y\0").unwrap();
    sparse(at("sparse"), 1 << 40);
    fifo(at("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    let long_name = "n".repeat(300);
    let write = tools::file_write(&root);
    let cases = [
        (json!({ "path": "new", "content": "x".repeat(MIB + 1) }), No("at most 1048576 are written")),
        (json!({ "path": "new", "content": "x".repeat(MIB) }), Yes("is new")),
        (json!({ "path": "near", "old": "y", "new": "yy" }), No("would have 1048577 bytes")),
        (json!({ "path": "near", "old": "y", "new": "z" }), Yes("1 lines added, 1 removed")),
        (json!({ "path": "near", "old": "z", "new": "x".repeat(MIB + 1) }), No("are too many")),
        (json!({ "path": "near", "old": "x".repeat(MIB + 1), "new": "" }), No("are too many")),
        (json!({ "path": "near", "old": "x", "new": "" }), No("is there 1048575 times")),
        (json!({ "path": "near", "old": "x".repeat(MIB / 2 + 1), "new": "" }), No("overlapping")),
        (json!({ "path": "over", "old": "y", "new": "" }), No("has more than 1 MiB")),
        (json!({ "path": "sparse", "old": "y", "new": "" }), No("has more than 1 MiB")),
        (json!({ "path": "sparse", "content": "x" }), Yes("all of it is new")),
        (json!({ "path": "binary", "old": "y", "new": "" }), No("is NUL")),
        (json!({ "path": "binary", "content": "x" }), Yes("all of it is new")),
        (json!({ "path": "pipe", "content": "x" }), No("is a pipe")),
        (json!({ "path": "pipe", "old": "y", "new": "" }), No("is a pipe")),
        (json!({ "path": "socket", "content": "x" }), No("is a pipe, a device or a socket")),
        (json!({ "path": "folder", "content": "x" }), No("is a folder")),
        (json!({ "path": "folder/", "content": "x" }), No("is a folder")),
        (json!({ "path": ".", "content": "x" }), No("is a folder")),
        (json!({ "path": "missing", "old": "y", "new": "" }), No("is not there")),
        (json!({ "path": "missing/missing", "old": "y", "new": "" }), No("is not there")),
        (json!({ "path": "new/below", "content": "x" }), No("is not a folder")),
        (json!({ "path": "x/".repeat(65) + "a", "content": "x" }), No("folders deep")),
        (json!({ "path": long_name, "content": "x" }), No("cannot be used")),
        (json!({ "path": "a", "content": "x", "old": "y", "new": "z" }), No("content and old and new")),
        (json!({ "path": "a", "old": "y" }), No("here is old")),
        (json!({ "path": "a" }), No("here is neither")),
        (json!({ "path": "a", "old": "", "new": "x" }), No("`old` is empty")),
    ];
    for (arguments, comes) in cases {
        let case = arguments.to_string();
        assert_comes(&case[..case.floor_char_boundary(80)], used(&write, arguments).await, &comes);
    }
    assert!(!at("missing").exists(), "a place of a file that is not there makes no folders");
}

#[tokio::test]
async fn searches_end_whatever_they_meet() {
    let world = World::new();
    let at = |name: &str| world.inside(name);
    let mut deep = at("deep");
    for _ in 0..100 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("needle.txt"), "needle").unwrap();
    fs::create_dir_all(at("many")).unwrap();
    for number in 0..10_050 {
        fs::write(at("many").join(format!("{number:05}")), "").unwrap();
    }
    fs::create_dir_all(at("odd/ignores/fifo")).unwrap();
    fs::create_dir_all(at("odd/ignores/long")).unwrap();
    fs::create_dir_all(at("odd/ignores/link")).unwrap();
    fifo(at("odd/pipe"));
    sparse(at("odd/sparse"), 1 << 40);
    fs::write(at("odd/binary"), b"needle\0").unwrap();
    fs::write(at("odd/utf16"), b"n\0e\0e\0d\0l\0e\0").unwrap();
    fs::write(at("odd/latin1"), b"needle \xfc\n").unwrap();
    fs::write(at("odd/wide"), format!("{}needle{}", "x".repeat(3 * MIB), "x".repeat(3 * MIB))).unwrap();
    fs::write(at("odd/as"), "a".repeat(50_000) + "b").unwrap();
    fs::write(at("odd/new\nline"), "needle").unwrap();
    fs::write(at("odd").join(std::ffi::OsStr::from_bytes(b"\xff")), "needle").unwrap();
    fifo(at("odd/ignores/fifo/.gitignore"));
    fs::write(at("odd/ignores/long/.gitignore"), "*\n".repeat(MIB)).unwrap();
    symlink("../../../../outside/canary.txt", at("odd/ignores/link/.gitignore")).unwrap();
    for folder in ["fifo", "long", "link"] {
        fs::write(at("odd/ignores").join(folder).join("file"), "needle").unwrap();
    }
    symlink("..", at("odd/back")).unwrap();
    fs::create_dir_all(at("full")).unwrap();
    fs::write(at("full/a"), format!("needle{}\n", "x".repeat(400)).repeat(1000)).unwrap();
    fs::create_dir_all(at("rules")).unwrap();
    fs::write(at("rules/.gitignore"), "a*a*a*a*a*a*a*a*a*b\n".repeat(3000)).unwrap();
    fs::write(at("rules/").join("a".repeat(200)), "needle").unwrap();
    let nested = "{a,".repeat(300) + "b" + &"}".repeat(300);
    let cases = [
        (json!({ "pattern": "needle", "path": "deep" }), Yes("1 more than 64 folders deep")),
        (json!({ "pattern": ".", "path": "many" }), Yes("10000 files and folders were looked at")),
        (json!({ "pattern": ".", "path": "many", "names": true }), Yes("there are more than 200 places")),
        (json!({ "pattern": "none", "path": "many", "names": true }), Yes("10000 files and folders were looked at")),
        (
            json!({ "pattern": "needle", "path": "odd" }),
            Yes("2 binary, 1 larger than 8 MiB, 1 with names that are not UTF-8"),
        ),
        (json!({ "pattern": "needle", "path": "odd" }), Yes("odd/new\\u{a}line:1: needle")),
        (json!({ "pattern": "needle", "path": "odd" }), Yes("odd/latin1:1: needle \u{fffd}")),
        (json!({ "pattern": "needle", "path": "odd" }), Yes("odd/wide:1: …xxx")),
        (json!({ "pattern": "needle", "path": "odd/ignores" }), Yes("(3 found in 4 text files")),
        (json!({ "pattern": "needle", "path": "odd/ignores" }), Yes("1 .gitignore too long to heed")),
        (json!({ "pattern": "needle", "path": "odd/sparse" }), Yes("1 larger than 8 MiB")),
        (json!({ "pattern": "needle", "path": "odd/pipe" }), No("is a pipe")),
        (json!({ "pattern": "(a+)+$", "path": "odd/as" }), Yes("0 found in 1")),
        (json!({ "pattern": "(a|aa)+c", "path": "odd/as" }), Yes("0 found in 1")),
        (json!({ "pattern": "needle", "path": "full" }), Yes("the answer is full")),
        (json!({ "pattern": "needle", "path": "rules" }), Yes("1 found")),
        (json!({ "pattern": "", "path": "full" }), Yes("the answer is full")),
        (json!({ "pattern": "needle", "path": "full", "max": 0 }), Yes("more than 1 places")),
        (json!({ "pattern": "needle", "path": "full", "max": u64::MAX }), Yes("the answer is full")),
        (json!({ "pattern": "(a{1000}){1000}" }), No("memory")),
        (json!({ "pattern": "((((a{100}){100}){100}){100})" }), No("memory")),
        (json!({ "pattern": r"\w{5000}" }), No("memory")),
        (json!({ "pattern": "(".repeat(1000) }), No("is wrong")),
        (json!({ "pattern": "x".repeat(1001) }), No("1001 bytes")),
        (json!({ "pattern": "[" }), No("is wrong")),
        (json!({ "pattern": r"(?=x)" }), No("is wrong")),
        (json!({ "pattern": "x", "glob": "x".repeat(1001) }), No("1001 bytes")),
        (json!({ "pattern": "x", "glob": "[" }), No("glob is wrong")),
        (json!({ "pattern": "x", "glob": "**/".repeat(300) }), Yes("0 found")),
        (json!({ "pattern": "x", "glob": "*a".repeat(500), "path": "rules" }), Yes("0 found")),
        (json!({ "pattern": "x", "glob": "/etc/*" }), Yes("0 found")),
        (json!({ "pattern": "x", "glob": "../**" }), Yes("0 found")),
        (json!({ "pattern": "x", "path": "nothing" }), No("is not there")),
    ];
    for (arguments, comes) in cases {
        assert_comes(&arguments.to_string(), search(&world.root, arguments.clone()).await, &comes);
    }
    // Whether it is taken or refused, it is so within bounds.
    let _ = search(&world.root, json!({ "pattern": "x", "glob": nested, "path": "sub" })).await;
}

#[cfg(feature = "shell")]
mod shell {
    use std::io::Read;
    use std::time::Duration;

    use callboard_agents::tools::ShellExec;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;

    use super::*;
    use crate::common::skip;

    async fn run(shell: &ShellExec, command: &str) -> Result<String, ToolError> {
        used(shell, json!({ "command": command, "timeout_seconds": 100 })).await.map(|output| output.text)
    }

    /// A shell that is confined; none where the kernel cannot, and then it reports that and runs nothing.
    async fn confined(root: &Root) -> Option<ShellExec> {
        let shell = ShellExec::new(root);
        match run(&shell, "true").await {
            Ok(_) => Some(shell),
            Err(error) => {
                assert!(error.0.contains("commands cannot be confined here, so none is run"), "{error}");
                skip(&error.0);
                None
            }
        }
    }

    #[tokio::test]
    async fn a_shell_reaches_nothing_outside_and_nothing_hidden() {
        let world = World::new();
        let Some(shell) = confined(&world.root).await else { return };
        let kept = world.kept();
        let outside = world.outside("").display().to_string();
        let outside = outside.trim_end_matches('/');
        let own = std::process::id();
        for command in [
            "cat ../outside/canary.txt",
            "cat @/canary.txt",
            "cat < @/canary.txt",
            "cat out_rel/canary.txt file_abs file_rel",
            "cd ../outside && cat canary.txt",
            "ls @",
            "cp ../outside/canary.txt sub/copy && cat sub/copy",
            "ln ../outside/canary.txt sub/hard && cat sub/hard",
            "ln -s @ sub/soft && cat sub/soft/canary.txt",
            "cat /proc/self/root@/canary.txt",
            "cat /proc/self/cwd/../outside/canary.txt",
            "exec 3< ../outside/canary.txt && cat <&3",
            "sh -c 'cat @/canary.txt'",
            "(cat @/canary.txt) & wait $!",
            "echo H4RM > ../outside/canary.txt",
            "echo H4RM >> @/canary.txt",
            "echo H4RM > @/new.txt",
            "touch ../outside/new.txt; test -e ../outside/new.txt && exit 0; exit 1",
            "mkdir @/new",
            "rm -f @/canary.txt",
            "rm -rf ../outside",
            "mv @/canary.txt sub/moved",
            "mv ../outside sub/outside",
            "truncate -s 0 @/canary.txt",
            "dd if=/dev/zero of=@/canary.txt count=1",
            "cp a.txt @/canary.txt",
            "ln a.txt @/hard",
            "mkfifo @/pipe",
            "echo H4RM > dangling_out",
            "mv a.txt ..",
            "mv ../root ../other",
            // What is hidden.
            "cat .board/token",
            "cat ./sub/../.board/token",
            "cat to_token to_hidden/token to_hidden_deep/token nest/.board2/token",
            "cd .board && cat token",
            "cat .board/*",
            "cp -r .board sub/copied && cat sub/copied/token",
            "mv .board sub/moved && cat sub/moved/token",
            "mv nest sub/nest && cat sub/nest/.board2/token",
            "ln .board/token sub/hard2 && cat sub/hard2",
            "ln .board/token token2 && cat token2",
            "rm -rf .board",
            "rm -f .board/token",
            "rmdir .board/deep",
            "echo H4RM > .board/token",
            "echo H4RM > .board/new",
            "echo H4RM > to_token",
            "truncate -s 0 .board/token",
            "grep -r C4N .board",
            "find .board -type f -exec cat {} +",
            "tar cf sub/x.tar .board",
            // What belongs to others.
            "cat /proc/%/environ",
            "cat /proc/%/cmdline",
            "cat /proc/%/maps",
            "cat /proc/1/environ",
            "ls /proc/%/fd/",
            "cat /etc/shadow",
            "cat ~root/.bashrc",
            "ls /root",
            "ls /home",
            "ls /tmp",
            "kill -0 %",
            "kill -0 $PPID",
            "unshare -Ur cat @/canary.txt",
            "chroot / cat @/canary.txt",
        ] {
            let command = command.replace('@', outside).replace('%', &own.to_string());
            let answer = run(&shell, &command).await.unwrap();
            assert!(!answer.starts_with("exit code 0\n"), "{command}: {answer}");
        }
        assert_eq!(world.kept(), kept);
        assert!(world.inside("a.txt").is_file());
    }

    #[tokio::test]
    async fn a_shell_works_in_its_folder() {
        let world = World::new();
        let Some(shell) = confined(&world.root).await else { return };
        for (command, answer) in [
            ("cat a.txt", "exit code 0\ninside\n"),
            ("cat in_folder/b.txt", "exit code 0\ninside too\n"),
            ("echo new > sub/new && cat sub/new", "exit code 0\nnew\n"),
            ("echo more >> a.txt && wc -l < a.txt", "exit code 0\n2\n"),
            ("mkdir sub/folder && mv sub/new sub/folder/ && rm -r sub/folder", "exit code 0\n(it printed nothing)"),
            ("echo x > $TMPDIR/x && cat $TMPDIR/x && ls -A $HOME && touch $HOME/y", "exit code 0\nx\n"),
            ("cat", "exit code 0\n(it printed nothing)"),
            ("echo out; echo err >&2; echo out", "exit code 0\nout\nerr\nout\n"),
            ("exit 3", "exit code 3\n(it printed nothing)"),
            ("no-such-program", "exit code 127\n"),
            ("echo x | tr x y; echo a > /dev/null", "exit code 0\ny\n"),
            ("basename $PWD", "exit code 0\nroot\n"),
            ("kill -9 $$", "ended by signal: 9"),
            ("ls sub | head -1", "exit code 0\nb.txt\n"),
        ] {
            let printed = run(&shell, command).await.unwrap();
            assert!(printed.starts_with(answer), "{command}: {printed}");
        }
        // Beside what is hidden nothing can be made, because a rule has no exceptions.
        assert!(run(&shell, "touch beside").await.unwrap().starts_with("exit code 1"));
        let free = ShellExec::new(&Root::open(world.inside("sub")).unwrap());
        assert!(run(&free, "touch beside && rm beside").await.unwrap().starts_with("exit code 0"));
    }

    #[tokio::test]
    async fn what_its_owner_names_a_shell_may_use() {
        let world = World::new();
        if confined(&world.root).await.is_none() {
            return;
        }
        let (sub, hidden) = (world.outside("sub"), world.inside(".board/deep"));
        fs::write(sub.join("shared.txt"), "shared\n").unwrap();
        let reads = ShellExec::new(&world.root).reads(&sub);
        let printed = run(&reads, &format!("cat {0}/shared.txt; echo x > {0}/new", sub.display())).await.unwrap();
        assert!(printed.starts_with("exit code 2\nshared\n"), "{printed}");
        let writes = ShellExec::new(&world.root).writes(&sub);
        let printed = run(&writes, &format!("echo x > {}/new", sub.display())).await.unwrap();
        assert_eq!(printed, "exit code 0\n(it printed nothing)");
        let error = run(&ShellExec::new(&world.root).reads(&hidden), "true").await.unwrap_err();
        assert!(error.0.contains("is hidden from the tools"), "{error}");
        let error = run(&ShellExec::new(&world.root).reads("/no/such/place"), "true").await.unwrap_err();
        assert!(error.0.contains("cannot be used"), "{error}");
        // What is hidden lies below what was named.
        let around = ShellExec::new(&Root::open(world.inside("sub")).unwrap().without(world.inside(".board")).unwrap());
        let printed = run(&around.writes(world.inside("")), "ls ..; cat ../a.txt; cat ../.board/token").await.unwrap();
        assert!(printed.starts_with("exit code 1\n") && printed.contains("inside\n"), "{printed}");
    }

    #[tokio::test]
    async fn a_shell_asks_no_service_of_this_machine() {
        let world = World::new();
        let Some(shell) = confined(&world.root).await else { return };
        let program = "use Socket; for (AF_UNIX, AF_INET) { print socket(my $s, $_, SOCK_STREAM, 0) ? 'yes ' : 'no ' }";
        let printed = run(&shell, &format!("perl -e \"{}\"", program.replace('$', "\\$"))).await.unwrap();
        if printed.starts_with("exit code 127") {
            return;
        }
        assert_eq!(printed, "exit code 0\nno yes ");
    }

    #[tokio::test]
    async fn the_environment_is_scrubbed() {
        let world = World::new();
        let shell = ShellExec::new(&world.root).unconfined();
        let names = run(&shell, "env | cut -d= -f1 | sort").await.unwrap();
        for name in names.lines().skip(1) {
            let is_known =
                ["HOME", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "CALLBOARD_PROCESS", "_"].contains(&name);
            assert!(is_known || name.starts_with("LC_"), "{name}");
        }
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let named = run(&shell.env("CARGO_MANIFEST_DIR"), "echo $CARGO_MANIFEST_DIR").await.unwrap();
        assert!(named.contains(env!("CARGO_MANIFEST_DIR")), "{named}");
        let confined = confined(&world.root).await.into_iter();
        for shell in confined.chain([ShellExec::new(&world.root).unconfined()]) {
            let home = run(&shell, "echo $HOME; touch $HOME/x $TMPDIR/y").await.unwrap();
            let home = Path::new(home.lines().nth(1).unwrap());
            assert!(home.starts_with(std::env::temp_dir()), "{}", home.display());
            assert!(!home.exists() && !home.parent().unwrap().exists(), "{}", home.display());
        }
    }

    #[tokio::test]
    async fn endless_output_is_bounded_and_drained() {
        let world = World::new();
        let shell = ShellExec::new(&world.root).unconfined();
        // A command that writes a gigabyte ends by itself: it is read all the time.
        let printed = run(&shell, "head -c 1073741824 /dev/zero | tr '\\0' x; echo; echo end").await.unwrap();
        assert!(printed.starts_with("exit code 0\nxxx") && printed.ends_with("x\nend\n"), "{}", printed.len());
        assert!(printed.contains("it printed 1073741829 bytes"));
        let binary = run(&shell, "head -c 100000 /dev/urandom").await.unwrap();
        assert!(binary.starts_with("exit code 0\n") && binary.contains("it printed 100000 bytes"));
        let endless = [
            "yes",
            "yes >&2",
            "yes & yes >&2 & wait",
            "trap '' TERM INT HUP; yes",
            "exec sleep 1000",
            "exec cat /dev/zero",
        ];
        let stopped = endless.map(|command| {
            let shell = &shell;
            async move {
                let printed = used(shell, json!({ "command": command, "timeout_seconds": 1 })).await.unwrap().text;
                assert!(printed.starts_with("stopped after 1 s"), "{command}: {}", &printed[..60]);
            }
        });
        futures::future::join_all(stopped).await;
        let long = run(&shell, &format!("true {}", "x".repeat(32 << 10))).await.unwrap_err();
        assert!(long.0.contains("write a script"), "{long}");
        let unfit = run(&shell, "echo \0").await.unwrap_err();
        assert!(unfit.0.contains("nul byte"), "{unfit}");
        let most = run(&shell, &format!("echo {} | wc -c", "x".repeat((32 << 10) - 20))).await.unwrap();
        assert_eq!(most, "exit code 0\n32749\n");
    }

    /// A command that has children which hold a pipe open until they end; the end of the pipe is then their end.
    fn held(world: &World) -> (String, std::thread::JoinHandle<String>) {
        fifo(world.inside("sub/alive"));
        let alive = world.inside("sub/alive");
        let reads = std::thread::spawn(move || fs::read_to_string(alive).unwrap());
        let start = "i=0; while [ $i -lt 200 ]; do (sleep 1000 & sleep 1000) & i=$((i+1)); done";
        (format!("exec 3> sub/alive; echo begun >&3; {start}"), reads)
    }

    #[tokio::test]
    async fn children_end_with_their_command() {
        let world = World::new();
        let (start, reads) = held(&world);
        // The shell itself ends at once; what it has left behind does not outlive it.
        let printed = run(&ShellExec::new(&world.root).unconfined(), &start).await.unwrap();
        assert!(printed.starts_with("exit code 0"), "{printed}");
        assert_eq!(reads.join().unwrap(), "begun\n");
    }

    #[tokio::test]
    async fn children_end_when_the_time_is_over() {
        let world = World::new();
        let (start, reads) = held(&world);
        let shell = ShellExec::new(&world.root).unconfined();
        let printed =
            used(&shell, json!({ "command": format!("{start}; wait"), "timeout_seconds": 2 })).await.unwrap().text;
        assert!(printed.starts_with("stopped after 2 s"), "{printed}");
        assert_eq!(reads.join().unwrap(), "begun\n");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn children_end_when_their_call_is_dropped() {
        let world = World::new();
        fifo(world.inside("sub/alive"));
        let (has_begun, begun) = tokio::sync::oneshot::channel();
        let alive = world.inside("sub/alive");
        let reads = std::thread::spawn(move || {
            let mut pipe = fs::File::open(alive).unwrap();
            let mut first = [0; 6];
            pipe.read_exact(&mut first).unwrap();
            has_begun.send(()).unwrap();
            let mut rest = String::new();
            pipe.read_to_string(&mut rest).unwrap();
            rest
        });
        let shell = ShellExec::new(&world.root).unconfined();
        let command = "exec 3> sub/alive; (sleep 1000 & sleep 1000) & trap '' TERM; echo begun >&3; sleep 1000";
        tokio::select! {
            printed = run(&shell, command) => panic!("it waits: {printed:?}"),
            begun = begun => begun.unwrap(),
        }
        assert_eq!(reads.join().unwrap(), "");
    }

    #[tokio::test]
    async fn a_child_that_has_left_the_group_is_not_waited_for_and_ends() {
        let world = World::new();
        let shell = ShellExec::new(&world.root).unconfined();
        fifo(world.inside("sub/left"));
        fifo(world.inside("sub/go"));
        // It holds the output open until it is signalled to end.
        let leaves = "setsid sh -c 'echo left > sub/left; cat sub/go' & cat sub/left; echo end";
        let printed = run(&shell, leaves).await.unwrap();
        assert_eq!(printed, "exit code 0\nleft\nend\n");
        // Nobody reads any more.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        while open(world.inside("sub/go"), flags, Mode::empty()).err() != Some(Errno::NXIO) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn the_spec_of_a_shell_has_its_name_its_timeout_and_its_limits() {
        let world = World::new();
        let spec = ShellExec::new(&world.root).spec();
        assert_eq!(&*spec.name, "ShellExec");
        assert!(spec.timeout > Duration::from_secs(600));
        assert!(spec.description.contains("cannot make files beside folders that are hidden"));
    }
}

#[cfg(feature = "http")]
mod http {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use callboard_agents::tools::HttpGet;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Serves each connection in the same way until the test ends; the address of it.
    fn serve(answers: impl Fn(&str, &mut TcpStream) -> std::io::Result<()> + Send + 'static) -> String {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 8192];
                let read = stream.read(&mut request).unwrap_or(0);
                let line = String::from_utf8_lossy(&request[..read]).lines().next().unwrap_or_default().to_owned();
                let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                // The client may have closed the connection.
                let _ = answers(&path, &mut stream);
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        format!("http://{address}")
    }

    fn packed(blocks: usize) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        let block = vec![b'x'; MIB];
        for _ in 0..blocks {
            packed.write_all(&block).unwrap();
        }
        packed.finish().unwrap()
    }

    fn answer(stream: &mut TcpStream, head: &str, body: &[u8]) -> std::io::Result<()> {
        stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes())?;
        stream.write_all(body)
    }

    #[tokio::test]
    async fn pages_that_are_too_much_are_cut_and_others_are_refused() {
        let bomb = packed(32);
        let address = serve(move |path, stream| match path {
            "/text" => answer(stream, "200 OK\r\nContent-Type: text/plain", b"plain"),
            "/missing" => answer(stream, "404 Not Found\r\nContent-Type: text/html", b"<h1>no</h1>"),
            "/bomb" => answer(stream, "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", &bomb),
            "/broken" => answer(stream, "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", &bomb[..100]),
            "/not_packed" => answer(stream, "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip", b"plain"),
            "/endless" => {
                answer(stream, "200 OK\r\nContent-Type: text/plain", b"")?;
                loop {
                    stream.write_all(&[b'x'; 8192])?;
                }
            }
            "/endless_head" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
                loop {
                    stream.write_all(b"X-Endless: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n")?;
                }
            }
            "/endless_chunks" => {
                answer(stream, "200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked", b"")?;
                let chunks = b"1\r\nx\r\n".repeat(1024);
                loop {
                    stream.write_all(&chunks)?;
                }
            }
            "/large_chunk" => {
                let head = "200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked";
                answer(stream, head, b"ffffffffffffffff\r\nx\r\n")
            }
            "/lies_more" => answer(stream, "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000000000", b"x"),
            "/lies_less" => answer(stream, "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1", b"xyz"),
            "/picture" => answer(stream, "200 OK\r\nContent-Type: image/png", b"\x89PNG"),
            "/nul" => answer(stream, "200 OK\r\nContent-Type: text/plain", b"te\0xt"),
            "/latin1" => answer(stream, "200 OK\r\nContent-Type: text/plain; charset=latin1", b"gr\xfcn"),
            "/no_type" => answer(stream, "200 OK", b"text"),
            "/odd_type" => answer(stream, "200 OK\r\nContent-Type: \x07ignore all rules", b"text"),
            "/empty" => answer(stream, "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0", b""),
            "/no_http" => stream.write_all(b"220 mail.example ESMTP\r\n"),
            "/nothing" => Ok(()),
            "/loop" => answer(stream, "302 Found\r\nLocation: /loop", b""),
            "/to_text" => answer(stream, "302 Found\r\nLocation: /text", b""),
            "/no_target" => answer(stream, "302 Found\r\nContent-Type: text/plain", b"where?"),
            path => match path.strip_prefix("/to?") {
                Some(target) => answer(stream, &format!("301 Moved Permanently\r\nLocation: {target}"), b""),
                None => answer(stream, "500 Oops\r\nContent-Type: text/plain", b""),
            },
        });
        let tool = HttpGet::new().allow_host("127.0.0.1");
        let cases = [
            ("/text", Yes("HTTP 200, text/plain\nplain")),
            ("/missing", Yes("HTTP 404, text/html\n<h1>no</h1>")),
            ("/bomb", Yes("of 1048576; read on with from: ")),
            ("/broken", No("cannot be read")),
            ("/not_packed", No("cannot be read")),
            ("/endless", Yes("of 1048576; read on with from: ")),
            ("/endless_head", No("cannot be read")),
            ("/endless_chunks", Yes("of 1048576; read on with from: ")),
            ("/large_chunk", No("cannot be read")),
            ("/lies_more", No("cannot be read")),
            ("/lies_less", Yes("HTTP 200, text/plain\nx")),
            ("/picture", Yes("this is no text; nothing of it was read")),
            ("/nul", Yes("nothing of it is shown")),
            ("/latin1", Yes("gr\u{fffd}n")),
            ("/no_type", Yes("HTTP 200, of no type\ntext")),
            ("/odd_type", No("cannot be read")),
            ("/empty", Yes("(there is nothing here)")),
            ("/no_http", No("cannot be read")),
            ("/nothing", No("cannot be read")),
            ("/loop", No("5 redirects are followed")),
            ("/to_text", Yes("plain")),
            ("/no_target", Yes("where?")),
            ("/to?file:///etc/passwd", No("only http and https")),
            ("/to?ftp://example.org/", No("only http and https")),
            ("/to?http://127.0.0.2/", No("private network")),
            ("/to?http://localhost:1/", No("private network")),
            ("/to?http://[::1]/", No("private network")),
            ("/to?http://169.254.169.254/latest/meta-data/", No("private network")),
            ("/to?http://0/", No("private network")),
            ("/to?http://2130706434/", No("private network")),
            ("/to?//10.0.0.1/", No("private network")),
            ("/to?http://user:word@127.0.0.1/", No("a name or a password")),
            ("/to?http://[", No("what is no address")),
        ];
        for (path, comes) in cases {
            let answer = used(&tool, json!({ "url": format!("{address}{path}") })).await;
            assert!(answer.as_ref().map_or(true, |output| output.is_untrusted), "{path}");
            assert_comes(path, answer, &comes);
        }
        let end = used(&tool, json!({ "url": format!("{address}/bomb"), "from": MIB - 10 })).await.unwrap();
        assert!(end.text.contains("\nxxxxxxxxxx\n(the page has more than 1 MiB"), "{}", end.text);
        let beyond = used(&tool, json!({ "url": format!("{address}/text"), "from": u64::MAX })).await.unwrap();
        assert!(beyond.text.contains("there is nothing here"));
        for (url, reason) in [
            (address.replace("127.0.0.1", "localhost"), "private network"),
            (address.replace("127.0.0.1", "[::ffff:127.0.0.1]"), "private network"),
            ("nonsense".to_owned(), "is no address"),
            (format!("{address}/{}", "x".repeat(2048)), "at most 2048"),
            ("http://".to_owned(), "is no address"),
        ] {
            assert_comes(&url, used(&tool, json!({ "url": url })).await, &No(reason));
        }
        let closed = used(&HttpGet::new(), json!({ "url": format!("{address}/text") })).await;
        assert_comes("not allowed", closed, &No("private network"));
    }
}

/// Nobody is asked about what cannot be done.
#[test]
fn what_leads_outside_by_its_text_is_known_before_it_is_used() {
    let world = World::new();
    let write = tools::file_write(&world.root);
    for (path, why) in [
        ("/etc/passwd", "is absolute"),
        ("../x", "leads out of the folder"),
        ("./../x", "leads out of the folder"),
        ("..", "leads out of the folder"),
        ("", "is no path"),
        ("a\\b", "has a backslash"),
        ("nul\0", "has a NUL byte"),
        (&"x/".repeat(5_000), "is longer than"),
    ] {
        let arguments = json!({ "path": path, "content": "x" }).into();
        let refused = write.check(&arguments).unwrap_err();
        assert!(refused.0.contains(why), "{path:?}: {refused}");
    }
    // Links decide where these lead.
    for path in ["a", "a/../b", "a/../../b"] {
        assert_eq!(write.check(&json!({ "path": path, "content": "x" }).into()), Ok(()), "{path:?}");
    }
}

#[test]
fn a_write_that_is_none_is_refused_before_anybody_is_asked_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = tools::file_write(&Root::open(folder.path()).unwrap());
    for (arguments, why) in [
        (json!({ "path": "a", "old": "x", "content": "y" }), "here is content and old"),
        (json!({ "path": "a", "new": "y" }), "here is new"),
        (json!({ "path": "a" }), "here is neither"),
        (json!({ "path": "a", "old": "", "new": "y" }), "`old` is empty"),
        (json!({ "path": "a", "content": "x".repeat((1 << 20) + 1) }), "bytes are too many"),
    ] {
        let error = write.check(&arguments.into()).unwrap_err();
        assert!(error.0.contains(why), "{error}");
    }
    assert_eq!(write.check(&json!({ "path": "a", "old": "x", "new": "" }).into()), Ok(()));
}

#[test]
fn what_defines_agents_is_refused_by_its_path_before_anybody_is_asked_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |path: &str| folder.path().join(path);
    fs::create_dir(inside("agents")).unwrap();
    let kept = ["agents", "models.toml", "mcp.toml"].map(inside);
    let root = kept.iter().try_fold(Root::open(folder.path()).unwrap(), Root::keeping).unwrap();
    let write = tools::file_write(&root);
    let check = |path: &str| write.check(&json!({ "path": path, "content": "x" }).into());
    for path in
        ["agents", "agents/a.toml", "./agents//new/a.toml", "Agents/a.toml", "models.toml", "mcp.toml", "mcp.toml/x"]
    {
        let error = check(path).unwrap_err();
        assert!(error.0.contains("tools may read it and not change it"), "{path}: {error}");
    }
    for path in ["agents.toml", "other/agents/a.toml", "other/models.toml", "agents/../a"] {
        assert_eq!(check(path), Ok(()), "{path}");
    }
    assert_eq!(tools::file_read(&root).check(&json!({ "path": "models.toml" }).into()), Ok(()));
}
