//! `callboard kb publish`, killed at system calls in the midst of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sha2::{Digest as _, Sha256};

use crate::knowledge::Project;
use crate::skipping::skip;
use crate::support::{CALLBOARD, command};

/// The files of a site by its list, which has to be that of what is there. Returns its title.
fn whole(site: &Path) -> String {
    let list = fs::read_to_string(site.join("callboard-site.txt")).unwrap();
    let listed: BTreeMap<String, String> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sha256, path)| (path.to_owned(), sha256.to_owned()))
        .collect();
    let (mut there, mut open) = (BTreeMap::new(), vec![site.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(site).unwrap().to_str().unwrap().to_owned();
            let sha256 = Sha256::digest(fs::read(path).unwrap());
            there.insert(name, sha256.iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
    there.remove("callboard-site.txt").unwrap();
    assert_eq!(there, listed);
    let index = fs::read_to_string(site.join("index.html")).unwrap();
    let (_, title) = index.split_once("<title>").unwrap();
    title.split_once("</title>").unwrap().0.to_owned()
}

fn beside(project: &Project) -> Vec<String> {
    let names = fs::read_dir(project.folder.path()).unwrap();
    let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Publishes, and kills the process when one of its threads has made so many of these system calls. Whether it was killed; `None` where that
/// cannot be done.
fn killed(project: &Project, title: &str, call: &str, times: u32) -> Option<bool> {
    let plain = command(&project.folder, &[]);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qqq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=KILL:when={times}"), CALLBOARD]);
    strace.args(["kb", "publish", "site", "--title", title]).current_dir(&project.folder).stdin(Stdio::null());
    strace.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.env("XDG_STATE_HOME", project.state.path());
    let ended = strace.output().ok()?;
    let is_killed = ended.status.signal() == Some(9);
    if !is_killed && !ended.status.success() {
        println!("strace: {}", String::from_utf8_lossy(&ended.stderr));
        return None;
    }
    Some(is_killed)
}

#[test]
fn a_publication_that_is_killed_leaves_a_whole_site_and_the_next_one_leaves_nothing_else() {
    let project =
        Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n"), ("keys.md", "# Keys\n\nKeys rotate.\n")]);
    project.done(&["init", "notes"]);
    project.done(&["publish", "site", "--title", "t"]);
    let (site, undisturbed) = (project.folder.path().join("site"), beside(&project));
    let mut before = whole(&site);
    let mut reached = BTreeSet::new();
    let points = [
        ("mkdir", [2, 3, 5, 12]),
        ("rename", [1, 2, 3, 4]),
        ("renameat2", [1, 2, 3, 4]),
        ("unlinkat", [1, 2, 7, 13]),
        ("rmdir", [1, 2, 3, 4]),
    ];
    let points = points.iter().flat_map(|(call, all)| all.iter().map(move |times| (*call, *times)));
    for (number, (call, times)) in points.enumerate() {
        let title = format!("Notes {call} {times}");
        let Some(is_killed) = killed(&project, &title, call, times) else {
            return skip("`strace` is not there or may not trace");
        };
        let after = whole(&site);
        assert!(after == before || after.contains(&title), "{call} {times}: {after}");
        let is_left = beside(&project) != undisturbed;
        assert!(is_killed || (!is_left && after != before), "{call} {times}: {:?}", beside(&project));
        reached.insert((is_killed, is_left, after != before));
        // The same run is continued, or another one finds what was left.
        let next = if number.is_multiple_of(2) { title } else { title + " again" };
        let published = project.kb(&["publish", "site", "--title", &next]);
        assert_eq!(
            (published.code, beside(&project)),
            (Some(0), undisturbed.clone()),
            "{call} {times}: {}",
            published.error
        );
        assert!(!published.error.contains("is kept"), "{call} {times}: {}", published.error);
        before = whole(&site);
        assert!(before.contains(&next), "{call} {times}: {before}");
    }
    // What was left was a part of the new site, or the old one.
    for state in [(true, true, false), (true, true, true)] {
        assert!(reached.contains(&state), "{state:?} of {reached:?}");
    }
}
