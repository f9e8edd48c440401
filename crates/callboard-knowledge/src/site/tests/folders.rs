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

#[test]
fn a_folder_that_has_something_else_is_refused_and_is_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let refused = |name: &str, expected: &str| {
        let before = names(place.path());
        let error = publish(&base("x"), settings(), &place.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(names(place.path()), before);
    };
    fs::create_dir(place.path().join("documents")).unwrap();
    fs::write(place.path().join("documents/thesis.md"), "x").unwrap();
    refused("documents", "documents is not replaced, because it has thesis.md; choose a folder that");
    // What looks like a site, but is none.
    fs::create_dir_all(place.path().join("web/pages")).unwrap();
    fs::write(place.path().join("web/index.html"), "x").unwrap();
    refused("web", "it has no callboard-site.txt");
    fs::write(place.path().join("web/callboard-site.txt"), "mine").unwrap();
    refused("web", "it has no callboard-site.txt");
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

#[test]
fn what_a_killed_process_left_is_deleted_and_what_another_writes_is_not() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("site");
    let left = place.path().join(".site.publish-killed");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("callboard-site.txt"), "").unwrap();
    // Of the same name, but without a marker.
    let other = place.path().join(".site.publish-other");
    fs::create_dir(&other).unwrap();
    let writer = SiteWriter::create(&out, settings(), Outline::new()).unwrap();
    assert!(!left.exists() && other.exists());
    publish(&base("x"), settings(), &out).unwrap();
    let published = writer.finish().unwrap().publish().unwrap().unwrap();
    assert_eq!((published.folder, published.files), (out.clone(), files_of(&out).len()));
    assert_eq!(names(place.path()), [".site.publish-other", "site"]);
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
