//! How the folder of a site is replaced.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::facts::FactState;

fn base(text: &str) -> Base {
    Base { pages: vec![page("a.md", "A", &[("One", text)])], ..Base::default() }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_same_base_has_the_same_bytes() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    let first = publish(&base("same"), settings(), &out).unwrap();
    let files = files_of(&out);
    let second = publish(&base("same"), settings(), &out).unwrap();
    assert_eq!((first.is_unchanged, second.is_unchanged), (false, true));
    assert_eq!(files_of(&out), files);
    let third = publish(&base("other"), settings(), &out).unwrap();
    assert!(!third.is_unchanged && files_of(&out) != files);
    assert_eq!(names(place.path()), ["site"]);
}

#[test]
fn nothing_of_the_old_site_is_left() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    publish(&Base { pages: vec![page("old.md", "Old", &[])], ..Base::default() }, settings(), &out).unwrap();
    publish(&base("new"), settings(), &out).unwrap();
    assert!(!out.join("pages/old.md.html").exists() && out.join("pages/a.md.html").exists());
}

#[test]
fn a_site_that_is_not_finished_leaves_the_old_one_whole() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    publish(&base("old"), settings(), &out).unwrap();
    let old = files_of(&out);
    let mut outline = Outline::new();
    outline.add_page(&base("x").pages[0]);
    let mut writer = SiteWriter::create(&out, settings(), outline).unwrap();
    writer.add_page(&base("new").pages[0]).unwrap();
    assert_eq!(files_of(&out), old);
    drop(writer);
    assert_eq!((files_of(&out), names(place.path())), (old, vec!["site".to_owned()]));
}

/// Checks that a folder is refused for a reason, and that everything is as it was.
fn check_refused(place: &Path, name: &str, expected: &str) {
    let before = names(place);
    let error = publish(&base("x"), settings(), &place.join(name)).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(names(place), before);
}

#[test]
fn a_folder_that_has_something_else_is_refused_and_is_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let refused = |name: &str, expected: &str| check_refused(place.path(), name, expected);
    fs::create_dir(place.path().join("documents")).unwrap();
    fs::write(place.path().join("documents/thesis.md"), "x").unwrap();
    refused(
        "documents",
        "documents is not replaced, because it has thesis.md, which is not of the site; move what is yours elsewhere, or choose",
    );
    // What looks like a site, but is none.
    fs::create_dir_all(place.path().join("web/pages")).unwrap();
    fs::write(place.path().join("web/index.html"), "x").unwrap();
    refused("web", "it has index.html, which is not of the site");
    fs::write(place.path().join("web/callboard-site.txt"), "mine").unwrap();
    refused("web", "its callboard-site.txt is not that of a site");
    fs::write(place.path().join("file"), "x").unwrap();
    refused("file", "it is not a folder");
    // A site that somebody put a repository into.
    publish(&base("x"), settings(), &place.path().join("site")).unwrap();
    fs::create_dir(place.path().join("site/.git")).unwrap();
    refused("site", "it has .git");
    symlink(place.path().join("site"), place.path().join("link")).unwrap();
    refused("link", "it is a symbolic link");
    assert!(matches!(publish(&base("x"), settings(), Path::new("/")), Err(SiteError::NoName { .. })));
    assert!(matches!(publish(&base("x"), settings(), Path::new("..")), Err(SiteError::NoName { .. })));
    assert_eq!(fs::read(place.path().join("documents/thesis.md")).unwrap(), b"x");
}

/// Makes a pipe that nobody writes into.
fn make_pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
}

#[test]
fn what_somebody_put_into_a_site_or_changed_there_is_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let site = place.path().join("site");
    let put: [(&dyn Fn(), &str); 7] = [
        (
            &|| fs::write(site.join("pages/notes.txt"), "mine").unwrap(),
            "it has pages/notes.txt, which is not of the site",
        ),
        (
            &|| fs::write(site.join("pages/b.md.html"), "mine").unwrap(),
            "it has pages/b.md.html, which is not of the site",
        ),
        (&|| fs::create_dir(site.join("facts/drafts")).unwrap(), "it has facts/drafts, which is not of the site"),
        (&|| symlink("/", site.join("search/all")).unwrap(), "it has search/all, which is not of the site"),
        (&|| fs::write(site.join("style.css"), "mine").unwrap(), "style.css in it has been changed"),
        (
            &|| {
                fs::remove_file(site.join("style.css")).unwrap();
                make_pipe(&site.join("style.css"));
            },
            "style.css in it is no regular file",
        ),
        (
            &|| {
                fs::rename(site.join("pages"), site.join("facts/pages")).unwrap();
                symlink(site.join("facts/pages"), site.join("pages")).unwrap();
            },
            "it has pages, which is not of the site",
        ),
    ];
    for (put, expected) in put {
        publish(&base("x"), settings(), &site).unwrap();
        put();
        check_refused(place.path(), "site", expected);
        fs::remove_dir_all(&site).unwrap();
    }
}

#[test]
fn a_site_of_which_files_are_missing_is_replaced_and_has_changed() {
    let place = tempfile::tempdir().unwrap();
    let site = place.path().join("site");
    publish(&base("x"), settings(), &site).unwrap();
    fs::remove_dir_all(site.join("pages")).unwrap();
    let published = publish(&base("x"), settings(), &site).unwrap();
    assert!(!published.is_unchanged && site.join("pages/a.md.html").exists());
}

#[test]
fn a_marker_that_is_not_of_this_site_has_nothing_deleted() {
    let place = tempfile::tempdir().unwrap();
    let refused = |expected: &str| check_refused(place.path(), "mine", expected);
    publish(&base("x"), settings(), &place.path().join("site")).unwrap();
    let (mine, marker) = (place.path().join("mine"), place.path().join("mine/callboard-site.txt"));
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("index.html"), "mine").unwrap();
    // Copied from a site.
    fs::copy(place.path().join("site/callboard-site.txt"), &marker).unwrap();
    refused("index.html in it has been changed");
    // It lists what no site has.
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.clone() + &format!("{}  thesis.md\n", "0".repeat(64))).unwrap();
    refused("thesis.md\", which is not of a file of a site");
    // As it was before it had a list.
    fs::write(&marker, "This folder is a site that callboard wrote. It is replaced as a whole.\ncontents: sha256 0\n")
        .unwrap();
    refused("is that of an earlier version and does not list the files of the site");
    fs::remove_file(&marker).unwrap();
    make_pipe(&marker);
    refused("its callboard-site.txt is no regular file");
    for target in ["/dev/zero", "/dev/tty", "../site/callboard-site.txt"] {
        fs::remove_file(&marker).unwrap();
        symlink(target, &marker).unwrap();
        refused("its callboard-site.txt is no regular file");
    }
    fs::remove_file(&marker).unwrap();
    fs::create_dir(&marker).unwrap();
    refused("its callboard-site.txt is no regular file");
    assert_eq!(fs::read_to_string(mine.join("index.html")).unwrap(), "mine");
}

#[test]
fn an_empty_folder_is_replaced_and_its_permissions_stay() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o750)).unwrap();
    for _ in 0..2 {
        publish(&base("x"), settings(), &out).unwrap();
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o750);
    }
}

/// Begins a site as a process does that is killed then.
fn killed(out: &Path) -> std::path::PathBuf {
    let place = out.parent().unwrap();
    let before = names(place);
    let mut outline = Outline::new();
    outline.add_page(&base("x").pages[0]);
    let mut writer = SiteWriter::create(out, settings(), outline).unwrap();
    writer.add_page(&base("x").pages[0]).unwrap();
    let new = names(place).into_iter().find(|name| !before.contains(name)).unwrap();
    // Killed, it leaves the folder and no lock.
    let (folder, left) = (place.join(&new), place.join(new.clone() + "x"));
    fs::rename(&folder, &left).unwrap();
    drop(writer);
    left
}

#[test]
fn what_a_killed_process_left_is_deleted_and_what_another_writes_is_not() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    let left = killed(&out);
    // The file that it was writing.
    fs::write(left.join("site/pages/a.md.html"), "<!DOC").unwrap();
    let writer = SiteWriter::create(&out, settings(), Outline::new()).unwrap();
    assert!(!left.exists());
    publish(&base("x"), settings(), &out).unwrap();
    let published = writer.finish().unwrap().publish().unwrap().unwrap();
    assert_eq!((published.folder, published.files), (out.clone(), files_of(&out).len()));
    assert_eq!(names(place.path()), ["site"]);
}

#[test]
fn what_is_not_of_a_killed_process_is_kept_and_named() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    publish(&base("x"), settings(), &out).unwrap();
    let path = |name: &str| place.path().join(format!(".site.publish-{name}"));
    // A copy of a site.
    fs::rename(&out, path("copy")).unwrap();
    fs::create_dir_all(path("other").join("pages")).unwrap();
    fs::write(path("file"), "mine").unwrap();
    for (name, put) in [("note", "note.txt"), ("page", "site/pages/note.txt"), ("changed", "site/.nojekyll")] {
        let left = killed(&out);
        fs::write(left.join(put), "mine").unwrap();
        fs::rename(left, path(name)).unwrap();
    }
    let whole = killed(&out);
    fs::rename(&whole, path("elsewhere")).unwrap();
    fs::rename(path("elsewhere"), place.path().join("whole")).unwrap();
    symlink(place.path().join("whole"), path("link")).unwrap();
    fs::create_dir(path("pipe")).unwrap();
    make_pipe(&path("pipe").join("callboard-staging.txt"));
    fs::create_dir(path("zero")).unwrap();
    symlink("/dev/zero", path("zero").join("callboard-staging.txt")).unwrap();
    let before = names(place.path());
    let published = publish(&base("x"), settings(), &out).unwrap();
    let mut kept: Vec<(String, &str)> = published
        .kept
        .iter()
        .map(|(folder, why)| (folder.file_name().unwrap().to_str().unwrap().replace(".site.publish-", ""), &**why))
        .collect();
    kept.sort();
    let none = "it has no callboard-staging.txt";
    let expected = [
        ("changed", "it has .nojekyll, which is not of the site"),
        ("copy", none),
        ("file", "it is not a folder"),
        ("link", "it is a symbolic link"),
        ("note", "it has note.txt, which is not of the site"),
        ("other", none),
        ("page", "it has pages/note.txt, which is not of the site"),
        ("pipe", "its callboard-staging.txt is no regular file"),
        ("zero", "its callboard-staging.txt is no regular file"),
    ];
    assert_eq!(kept, expected.map(|(name, why)| (name.to_owned(), why)));
    let mut after = names(place.path());
    after.retain(|name| name != "site");
    assert_eq!(after, before);
    assert!(place.path().join("whole/site/pages/a.md.html").exists());
}

#[test]
fn what_does_not_match_the_outline_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    let document = &base("x").pages[0];
    let facts = ["a", "b"].map(|id| fact(id, id, FactState::Current));
    let begin = || {
        let mut outline = Outline::new();
        outline.add_page(&base("x").pages[0]);
        facts.iter().for_each(|fact| outline.add_fact(fact));
        outline.add_entity("e", "term");
        SiteWriter::create(&out, settings(), outline).unwrap()
    };
    let mut writer = begin();
    let error = writer.add_page(&page("b.md", "B", &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the document \"b.md\" is not in the outline; add it there before the writer is created"
    );
    assert!(matches!(writer.add_fact(&facts[1]), Err(SiteError::OutOfOrder { .. })));
    assert!(matches!(writer.add_entity(&entity("f")), Err(SiteError::NotInOutline { what: "entity", .. })));
    writer.add_page(document).unwrap();
    assert!(matches!(writer.add_page(document), Err(SiteError::Twice { .. })));
    drop(writer);
    let mut writer = begin();
    writer.add_fact(&facts[0]).unwrap();
    assert!(matches!(writer.add_fact(&facts[0]), Err(SiteError::OutOfOrder { .. })));
    assert!(matches!(writer.finish(), Err(SiteError::NotWritten { what: "document", .. })));
    let mut writer = begin();
    writer.add_page(document).unwrap();
    writer.add_fact(&facts[0]).unwrap();
    assert!(matches!(writer.finish(), Err(SiteError::NotWritten { what: "fact", name }) if name == "b"));
    assert_eq!(names(place.path()), [""; 0]);
}
