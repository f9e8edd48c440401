use std::fs;
use std::path::Path;

use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// The paths that are found, and the errors, in their order.
fn found(folder: &Path) -> Vec<String> {
    files(folder).map(|file| file.map_or_else(|error| format!("error: {error}"), |file| file.path)).collect()
}

#[test]
fn files_are_found_in_the_order_of_their_names() {
    let folder = folder(&[("b.md", "b"), ("a/z.md", "z"), ("a/b/c.md", "c"), ("a.md", "a"), ("B.md", "B")]);
    assert_eq!(found(folder.path()), ["B.md", "a/b/c.md", "a/z.md", "a.md", "b.md"]);
}

#[test]
fn what_is_ignored_or_hidden_is_not_found() {
    let folder = folder(&[
        (".gitignore", "/build\n*.log\n!kept.log\n"),
        (".git/config", "x"),
        (".env", "SECRET=1"),
        ("build/a.md", "a"),
        ("sub/.gitignore", "inner.md\n"),
        ("sub/inner.md", "i"),
        ("sub/a.log", "l"),
        ("sub/kept.log", "k"),
        ("a.md", "a"),
    ]);
    assert_eq!(found(folder.path()), ["a.md", "sub/kept.log"]);
}

#[test]
fn files_are_ignored_without_a_repository() {
    let folder = folder(&[(".gitignore", "*.log\n"), ("a.log", "a"), ("a.md", "a")]);
    assert_eq!(found(folder.path()), ["a.md"]);
}

#[test]
fn a_file_is_read_by_its_path_below_the_folder() {
    let folder = folder(&[("sub/a.md", "# A\n")]);
    let file = files(folder.path()).next().unwrap().unwrap();
    assert_eq!((file.path.as_str(), file.bytes), ("sub/a.md", 4));
    assert_eq!(file.read(&ReadLimits::default()).unwrap(), b"# A\n");
    let error = file.read(&ReadLimits { bytes: 3, ..ReadLimits::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sub/a.md: the file has 4 bytes, and at most 3 are read, a limit that no option raises: split it"
    );
}

#[test]
fn a_folder_that_is_not_there_is_one_error() {
    let folder = folder(&[("a.md", "a")]);
    for path in ["none", "a.md"] {
        let found: Vec<_> = files(&folder.path().join(path)).collect();
        assert!(matches!(&found[..], [Err(FileError::Folder { .. })]), "{found:?}");
    }
}

#[test]
fn a_published_site_below_the_folder_is_left_out_and_reported() {
    let folder = folder(&[
        ("a.md", "a"),
        ("out/site/callboard-site.txt", "x"),
        ("out/site/pages/a.md.html", "a"),
        ("out/z.md", "z"),
        ("z/callboard-site.txt/a.md", "a"),
    ]);
    let why = "error: the folder out/site is left out, because it is a site that `callboard kb publish` wrote";
    assert_eq!(found(folder.path()), ["a.md", why, "out/z.md", "z/callboard-site.txt/a.md"]);
    // One that is named is read.
    assert_eq!(found(&folder.path().join("out/site")), ["callboard-site.txt", "pages/a.md.html"]);
}

#[test]
fn a_folder_whose_ignore_file_is_too_large_is_left_out_and_reported() {
    let folder = folder(&[("a.md", "a"), ("m/.gitignore", &"x\n".repeat(40_000)), ("m/b.md", "b"), ("z.md", "z")]);
    let why = "error: the folder of m/.gitignore is left out, because that is no file of at most 65536 bytes";
    assert_eq!(found(folder.path()), ["a.md", why, "z.md"]);
    let found = found(&folder.path().join("m"));
    assert_eq!(found, ["error: the folder of .gitignore is left out, because that is no file of at most 65536 bytes"]);
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_reported_and_links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = folder(&[("secret.md", "s"), ("folder/secret.md", "s")]);
    let folder = folder(&[("a.md", "a"), ("sub/b.md", "b")]);
    symlink(outside.path().join("secret.md"), folder.path().join("link.md")).unwrap();
    symlink(outside.path().join("folder"), folder.path().join("linked")).unwrap();
    symlink(folder.path(), folder.path().join("sub/loop")).unwrap();
    for (name, kind) in [("pipe", rustix::fs::FileType::Fifo), ("socket", rustix::fs::FileType::Socket)] {
        rustix::fs::mknodat(rustix::fs::CWD, folder.path().join(name), kind, 0o600.into(), 0).unwrap();
    }
    let link = |name: &str| format!("error: {name}: it is a symbolic link");
    let (pipe, socket) = ("error: pipe: it is a pipe".to_owned(), "error: socket: it is a socket".to_owned());
    let all =
        ["a.md".to_owned(), link("link.md"), link("linked"), pipe, socket, "sub/b.md".to_owned(), link("sub/loop")];
    assert_eq!(found(folder.path()), all);
    // The folder itself may be named by a link.
    symlink(folder.path(), outside.path().join("named")).unwrap();
    assert_eq!(found(&outside.path().join("named")), all);
}

#[cfg(unix)]
#[test]
fn a_file_that_has_become_a_link_or_a_pipe_is_not_read() {
    use std::os::unix::fs::symlink;
    let outside = folder(&[("secret.md", "s"), ("sub/c.md", "s")]);
    let folder = folder(&[(".env", "s"), ("a.md", "a"), ("b.md", "b"), ("d.md", "d"), ("sub/c.md", "c")]);
    let files: Vec<_> = files(folder.path()).map(Result::unwrap).collect();
    fs::remove_file(folder.path().join("a.md")).unwrap();
    symlink(outside.path().join("secret.md"), folder.path().join("a.md")).unwrap();
    fs::remove_file(folder.path().join("b.md")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("b.md"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    fs::remove_file(folder.path().join("d.md")).unwrap();
    symlink(".env", folder.path().join("d.md")).unwrap();
    fs::remove_dir_all(folder.path().join("sub")).unwrap();
    symlink(outside.path().join("sub"), folder.path().join("sub")).unwrap();
    let read: Vec<_> =
        files.iter().map(|file| file.read(&ReadLimits::default()).map_err(|error| error.to_string())).collect();
    assert!(read[0].as_ref().is_err_and(|error| error.starts_with("cannot read a.md: ")), "{read:?}");
    assert_eq!(read[1], Err("b.md: it is no file".to_owned()));
    assert!(read[2].as_ref().is_err_and(|error| error.starts_with("cannot read d.md: ")), "{read:?}");
    assert!(read[3].as_ref().is_err_and(|error| error.starts_with("cannot read sub/c.md: ")), "{read:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_utf8_is_reported() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = folder(&[("b.md", "b")]);
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff.md")), "a").unwrap();
    assert_eq!(found(folder.path()), ["error: the name of a\u{fffd}.md is not UTF-8: rename it", "b.md"]);
}
