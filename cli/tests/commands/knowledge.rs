//! `callboard kb`: real processes, each in a project with a state folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::support::model::{Model, Request};
use crate::support::{Printed, command, ended, output_of};

/// A project with a folder of documents.
pub(crate) struct Project {
    pub(crate) folder: TempDir,
    pub(crate) state: TempDir,
}

impl Project {
    pub(crate) fn new(documents: &[(&str, &str)]) -> Self {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(folder.path().join("notes")).unwrap();
        for (path, text) in documents {
            fs::write(folder.path().join("notes").join(path), text).unwrap();
        }
        Self { folder, state }
    }

    pub(crate) fn kb(&self, arguments: &[&str]) -> Printed {
        let arguments: Vec<&str> = ["kb"].iter().chain(arguments).copied().collect();
        output_of(command(&self.folder, &arguments).env("XDG_STATE_HOME", self.state.path()))
    }

    /// As [`Project::kb`]; it has to succeed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let printed = self.kb(arguments);
        assert_eq!(printed.code, Some(0), "{arguments:?}: {}", printed.error);
        printed.out
    }
}

#[test]
fn documents_are_indexed_found_and_read_again_where_they_have_changed() {
    let project =
        Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n"), ("keys.md", "# Keys\n\nKeys rotate.\n")]);
    assert_eq!(project.done(&["init", "notes"]), "2 documents: 2 passages new, 0 as before, 0 gone\n");
    assert!(project.done(&["query", "token"]).starts_with("1. notes/auth.md:1  Auth\n"));
    fs::write(project.folder.path().join("notes/auth.md"), "# Auth\n\nA badge is checked.\n").unwrap();
    assert_eq!(project.done(&["init", "notes"]), "2 documents: 1 passage new, 1 as before, 1 gone\n");
    let gone = project.kb(&["query", "token"]);
    assert_eq!((gone.code, &*gone.out), (Some(3), ""), "{}", gone.error);
    assert!(gone.error.starts_with("nothing is known about it"), "{}", gone.error);
}

#[test]
fn documents_of_two_folders_have_names_of_their_own_and_those_of_files_that_are_gone_end() {
    let project =
        Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n"), ("keys.md", "# Keys\n\nKeys rotate.\n")]);
    fs::create_dir(project.folder.path().join("more")).unwrap();
    fs::write(project.folder.path().join("more/auth.md"), "# Auth\n\nA badge is shown.\n").unwrap();
    project.done(&["init", "notes"]);
    project.done(&["init", "more"]);
    assert!(project.done(&["query", "token"]).starts_with("1. notes/auth.md:1"));
    assert!(project.done(&["query", "badge"]).starts_with("1. more/auth.md:1"));
    fs::remove_file(project.folder.path().join("notes/auth.md")).unwrap();
    assert_eq!(project.done(&["init", "notes"]), "1 document: 0 passages new, 1 as before, 1 gone\n");
    assert_eq!(project.kb(&["query", "token"]).code, Some(3));
    assert!(project.done(&["query", "badge"]).starts_with("1. more/auth.md:1"));
}

#[test]
fn a_document_that_is_no_longer_trusted_is_marked_though_its_file_has_not_changed() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    project.done(&["init", "notes"]);
    assert!(!project.done(&["query", "token"]).contains("(untrusted)"));
    project.done(&["init", "notes", "--untrusted"]);
    assert!(project.done(&["query", "token"]).contains("(untrusted)"));
}

#[test]
fn what_was_indexed_as_untrusted_stays_so_in_a_folder_around_it_until_it_is_trusted() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    let file = |path: &str, text: &str| {
        let path = project.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("notes/mail/old.md", "# Old\n\nA badge is shown.\n");
    file("notes/mail/kept.md", "# Kept\n\nA ladder is here.\n");
    project.done(&["init", "notes/mail", "--untrusted"]);
    // One is as it was, one has changed, and one is new, in a folder of its own.
    file("notes/mail/old.md", "# Old\n\nThe badge is green.\n");
    file("notes/mail/2/new.md", "# New\n\nThe wall is high.\n");
    let is_untrusted = |word: &str| project.done(&["query", word]).lines().next().unwrap().ends_with("(untrusted)");
    for path in ["notes", "."] {
        let printed = project.kb(&["init", path]);
        assert_eq!(printed.code, Some(0), "{}", printed.error);
        let line = format!("3 documents; to trust all of these files: callboard kb init {path} --trusted\n");
        let remark = format!("untrusted as before, or because their folder was indexed with --untrusted: {line}");
        assert!(printed.error.contains(&remark), "{}", printed.error);
        assert_eq!(["token", "badge", "ladder", "wall"].map(is_untrusted), [false, true, true, true]);
    }
    // Of the rest, a part is trusted, also what is new there.
    project.done(&["init", "notes/mail/2", "--trusted"]);
    file("notes/mail/2/more.md", "# More\n\nThe bell rings.\n");
    let printed = project.kb(&["init", "notes", "--json"]);
    assert_eq!(printed.json()["kept_untrusted"], 2, "{}", printed.error);
    assert_eq!(["token", "badge", "wall", "bell"].map(is_untrusted), [false, true, false, false]);
    // An export has it too.
    project.done(&["export", "facts.jsonl"]);
    project.done(&["import", "facts.jsonl", "--store", "other"]);
    let other = project.kb(&["init", "notes", "--store", "other", "--json"]);
    assert_eq!(other.json()["kept_untrusted"], 2, "{}", other.error);
    let trusted = project.kb(&["init", "notes", "--trusted"]);
    assert!(trusted.code == Some(0) && !trusted.error.contains("untrusted as before"), "{}", trusted.error);
    assert_eq!(["token", "badge", "ladder", "wall", "bell"].map(is_untrusted), [false; 5]);
    file("notes/mail/3.md", "# Three\n\nThe lamp is lit.\n");
    project.done(&["init", "."]);
    assert!(!is_untrusted("lamp"));
    let both = project.kb(&["init", "notes", "--trusted", "--untrusted"]);
    assert_eq!(both.code, Some(2), "{}", both.error);
}

#[test]
fn facts_documents_predicates_and_namespaces_are_listed() {
    let project = Project::new(&[("a.md", "# A\n\nText.\n"), ("b.md", "# B\n\nText.\n")]);
    let none = project.kb(&["facts"]);
    assert!(none.code == Some(3) && none.error.contains("callboard kb init"), "{}", none.error);
    project.done(&["init", "notes"]);
    let none = project.kb(&["facts"]);
    assert_eq!((none.code, &*none.out, &*none.error), (Some(0), "", "there are no facts\n"));
    let submit = |value: &str, more: &[&str]| {
        let statement = format!("The gate opens at {value}.");
        let triple = ["submit", &statement, "--subject", "gate", "--predicate", "opens at", "--value", value];
        project.done(&[&triple[..], more].concat())
    };
    submit("nine", &["--single", "--from", "notes/a.md:1"]);
    submit("ten", &[]);
    project.done(&["submit", "The wall is high.", "--namespace", "walls"]);
    let facts = project.done(&["facts"]);
    let lines: Vec<&str> = facts.lines().collect();
    assert!(lines.len() == 3 && lines[1].contains("disputed") && lines[2].contains("current"), "{facts}");
    assert!(
        lines[2].trim().starts_with("fact-") && lines[2].ends_with("The gate opens at nine.  notes/a.md:1"),
        "{facts}"
    );
    assert!(lines[1].ends_with("The gate opens at ten.   ann"), "{facts}");
    let one = project.kb(&["facts", "--limit", "1"]);
    assert_eq!((one.out.lines().count(), &*one.error), (2, "1 fact more; a higher --limit lists them\n"));
    assert_eq!(project.done(&["facts", "--disputed"]).lines().count(), 2);
    assert_eq!(project.done(&["facts", "--invalid"]), "");
    project.done(&["accept", "the gate opens at ten", "--yes"]);
    assert!(project.done(&["facts", "--invalid"]).contains("The gate opens at nine."));
    let json = project.kb(&["facts", "--disputed", "--invalid", "--json"]).json();
    assert_eq!((&json["count"], &json["facts"][0]["state"]), (&1.into(), &"invalid".into()), "{json}");
    assert_eq!(json["facts"][0]["sources"][0]["place"], "notes/a.md:1");

    let documents = project.done(&["documents"]);
    assert!(documents.lines().nth(1).unwrap().trim().starts_with("notes/a.md         1  "), "{documents}");
    let json = project.kb(&["documents", "--limit", "1", "--json"]).json();
    assert_eq!((&json["count"], &json["documents"][0]["document"]), (&2.into(), &"notes/a.md".into()), "{json}");
    let predicates = project.done(&["predicates"]);
    assert!(predicates.lines().nth(1).unwrap().starts_with(" opens at   one                   1"), "{predicates}");
    let json = project.kb(&["predicates", "--json"]).json();
    assert_eq!(json["predicates"][0], serde_json::json!({ "predicate": "opens at", "is_single": true, "facts": 1 }));
    let namespaces = project.kb(&["namespaces", "--json"]).json();
    let walls = serde_json::json!({ "namespace": "walls", "documents": 0, "current": 1, "disputed": 0, "invalid": 0 });
    assert_eq!((&namespaces["count"], &namespaces["namespaces"][1]), (&2.into(), &walls));
    assert!(project.done(&["namespaces"]).contains("walls"));
}

#[test]
fn a_query_prints_the_places_of_facts_and_the_namespace_and_a_log_the_parts() {
    let project = Project::new(&[]);
    let parts = ["--subject", "keys", "--predicate", "rotate on", "--value", "the first"];
    let at = |place: &'static str| [&["submit", "Keys rotate.", "--from", place][..], &parts].concat();
    for place in ["a.md:1", "b.md", "c.md", "d.md"] {
        project.done(&at(place));
    }
    assert!(project.done(&["query", "keys"]).contains("  current · from a.md:1, b.md, c.md and 1 more\n"));
    let log = project.done(&["log", "keys rotate"]);
    assert!(log.contains("Keys rotate.\nsubject: keys\npredicate: rotate on\nvalue: the first\n\n"), "{log}");
    let id = log.split_whitespace().next().unwrap();
    for named in [id, &id[..12]] {
        assert!(project.done(&["query", named]).starts_with(&format!("1. {}", &id[..12])), "{named}");
    }
    project.done(&["submit", "The wall is high.", "--namespace", "walls"]);
    let other = project.kb(&["query", "wall", "--namespace", "walls"]);
    assert!(other.error.starts_with("1 result in the namespace walls"), "{}", other.error);
    let none = project.kb(&["query", "wall"]);
    assert!(none.code == Some(3) && none.error.starts_with("nothing is known about it after"), "{}", none.error);
}

#[test]
fn what_is_stated_again_is_printed_with_what_it_was() {
    let project = Project::new(&[]);
    let submit = |statement: &str| {
        let parts = ["--subject", "gate", "--predicate", "opens at", "--value", "nine"];
        project.done(&[&["submit", statement][..], &parts].concat())
    };
    submit("The gate opens at nine.");
    let words = submit("At nine they open it.");
    assert!(words.contains("was known; it has 2 sources now\n"), "{words}");
    assert!(words.contains("it keeps the words in which it was known: The gate opens at nine.\n"), "{words}");
    project.done(&["invalidate", "the gate opens at nine", "--yes", "--reason", "it was moved"]);
    let again = submit("The gate opens at nine.");
    let then = again.split_once("  current  was invalid since ").unwrap().1;
    assert!(then.ends_with("Z (invalidated by ann: it was moved); it is current now, with 3 sources\n"), "{again}");
}

#[test]
fn a_second_base_names_the_one_of_the_folder_around_or_of_the_project_before_it_was_moved() {
    let project = Project::new(&[("a.md", "# A\n")]);
    let kb = |folder: &std::path::Path, arguments: &[&str]| {
        let mut command = command(folder, &[&["kb"][..], arguments].concat());
        output_of(command.env("XDG_STATE_HOME", project.state.path()))
    };
    let (around, within) = (project.folder.path().join("notes"), project.folder.path().join("notes/within"));
    fs::create_dir(&within).unwrap();
    let first = kb(&around, &["submit", "The gate opens at nine."]);
    assert_eq!((first.code, &*first.error), (Some(0), ""));
    let shown = around.canonicalize().unwrap();
    let hint = format!(
        "the folder around this one, {}, has a base of facts; to use that: callboard kb COMMAND",
        shown.display()
    );
    let missing = kb(&within, &["query", "gate"]);
    assert!(missing.code == Some(3) && missing.error.contains(&hint), "{}", missing.error);
    let store = missing.error.trim().rsplit(' ').next().unwrap();
    assert!(kb(&within, &["query", "gate", "--store", store]).out.contains("The gate opens at nine."));
    for (arguments, is_new) in [(&["submit", "The wall is high."][..], true), (&["submit", "The wall is old."], false)]
    {
        let printed = kb(&within, arguments);
        assert_eq!((printed.code, printed.error.contains(&hint)), (Some(0), is_new), "{}", printed.error);
    }
    let moved = project.folder.path().join("moved");
    fs::rename(&around, &moved).unwrap();
    let init = kb(&moved, &["init", "a.md"]);
    let hint =
        format!("this project was at {} before, and its base of facts is still there; to have that", shown.display());
    assert!(init.code == Some(0) && init.error.contains(&hint), "{}", init.error);
    let line = init.error.split("kept beside: callboard kb ").nth(1).unwrap().lines().next().unwrap();
    let restored = kb(&moved, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(restored.code, Some(0), "{line}: {}", restored.error);
    assert!(kb(&moved, &["query", "gate"]).out.contains("The gate opens at nine."));
}

#[test]
fn what_ended_is_counted_apart_in_an_export() {
    let project = Project::new(&[("a.md", "# A\n"), ("b.md", "# B\n")]);
    project.done(&["init", "notes"]);
    project.done(&["remove", "notes/b.md"]);
    let exported = project.done(&["export", "facts.jsonl"]);
    assert!(exported.starts_with("exported: 1 document with 1 passage, 0 facts, "), "{exported}");
    assert!(exported.ends_with("; and of the past 1 document and 1 passage\n"), "{exported}");
    let imported = project.done(&["import", "facts.jsonl", "--store", "other"]);
    assert_eq!(imported, exported.replacen("exported", "imported", 1));
    let refused = project.kb(&["export", "again.jsonl", "--namespace", "walls"]);
    assert!(refused.code == Some(2) && refused.error.contains("--namespace"), "all are exported: {}", refused.error);
}

#[test]
fn what_cannot_be_indexed_is_named_with_the_reason() {
    let project = Project::new(&[("empty.md", ""), ("a.md", "# A\n")]);
    fs::write(project.folder.path().join("notes/picture.png"), [0x89, b'P', b'N', b'G', 0, 0, 0, 1, 2]).unwrap();
    let printed = project.kb(&["init", "notes"]);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    for file in ["left out: notes/empty.md: ", "left out: notes/picture.png: "] {
        assert!(printed.error.contains(file), "{}", printed.error);
    }
    // The others are of files that are indexed, but for a part.
    fs::write(project.folder.path().join("notes/a.md"), "# A\n\n[one](../../../1.md) [two](../../../2.md)\n").unwrap();
    let printed = project.kb(&["init", "notes"]);
    let line =
        "left out: notes/a.md: only its links that lead out of the folder (2); the rest of the file is indexed\n";
    assert!(printed.error.contains(line), "{}", printed.error);
    let missing = project.kb(&["init", "nowhere"]);
    assert_eq!((missing.code, &*missing.error), (Some(2), "error: nowhere: there is no such file or folder\n"));
    let json = project.kb(&["init", "notes", "--json"]).json();
    assert_eq!((&json["left_out"][1][0], &json["left_out_count"]), (&"notes/empty.md".into(), &3.into()), "{json}");
}

#[test]
fn a_hidden_file_that_was_named_is_read_again_with_its_folder_until_it_is_gone() {
    let project =
        Project::new(&[(".plan.md", "# Plan\n\nThe gate opens.\n"), ("a.md", "# A\n"), (".gitignore", "sub\n")]);
    let notes = project.folder.path().join("notes");
    fs::create_dir(notes.join("sub")).unwrap();
    fs::write(notes.join("sub/b.md"), "# B\n\nThe bolt closes.\n").unwrap();
    project.done(&["init", "notes/.plan.md"]);
    project.done(&["init", "notes/sub/b.md"]);
    let again = project.kb(&["init", "."]);
    assert_eq!(again.out, "3 documents: 1 passage new, 2 as before, 0 gone\n", "{}", again.error);
    assert!(again.error.contains("2 documents of hidden or ignored files"), "{}", again.error);
    assert!(project.done(&["query", "gate"]).starts_with("1. notes/.plan.md:1"));
    fs::write(notes.join(".plan.md"), "# Plan\n\nThe door opens.\n").unwrap();
    fs::remove_file(notes.join("sub/b.md")).unwrap();
    assert_eq!(project.done(&["init", "notes"]), "2 documents: 1 passage new, 1 as before, 2 gone\n");
    assert!(project.done(&["query", "door"]).starts_with("1. notes/.plan.md:1"));
    assert_eq!(project.kb(&["query", "bolt"]).code, Some(3));
}

#[test]
fn the_documents_of_a_folder_that_is_gone_are_ended_by_its_path() {
    let project =
        Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n"), ("keys.md", "# Keys\n\nA token is old.\n")]);
    let elsewhere = tempfile::Builder::new().prefix("elsewhere").tempdir().unwrap();
    fs::write(elsewhere.path().join("key.md"), "# Key\n\nA token is new.\n").unwrap();
    let path = elsewhere.path().canonicalize().unwrap();
    project.done(&["init", "notes"]);
    project.done(&["init", path.to_str().unwrap()]);
    fs::remove_dir_all(project.folder.path().join("notes")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    let refused = project.kb(&["init", "notes"]);
    let line = "the base has 2 documents of it; to end them: callboard kb remove notes\n";
    assert!(refused.code == Some(2) && refused.error.ends_with(line), "{}", refused.error);
    assert_eq!(project.done(&["remove", "notes/../notes/keys.md"]), "1 document with 1 passage ended\n");
    assert_eq!(project.done(&["remove", "notes/"]), "1 document with 1 passage ended\n");
    let found = project.done(&["query", "token"]);
    assert!(found.starts_with(&format!("1. {}/key.md:1", path.display())) && !found.contains("2. "), "{found}");
    let json = project.kb(&["remove", path.to_str().unwrap(), "--json"]).json();
    assert_eq!(json, serde_json::json!({ "documents": 1, "passages": 1 }));
    let none = project.kb(&["remove", "notes"]);
    assert_eq!((none.code, &*none.error), (Some(3), "error: the base has no document of notes\n"));
}

#[test]
fn a_long_passage_is_shown_where_it_has_the_words_of_the_question() {
    let filler = "Nothing is said here. ".repeat(25);
    let project = Project::new(&[("a.md", &format!("# A\n\n{filler}Keys rotate each month. {filler}\n"))]);
    project.done(&["init", "notes"]);
    let found = project.done(&["query", "when do keys rotate?"]);
    assert!(found.contains("   …") && found.contains("Keys rotate each month."), "{found}");
    let json = project.kb(&["query", "when do keys rotate?", "--json"]).json();
    let text = json["result"]["found"]["retrieved"]["results"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("# A") && text.len() > 1_000, "{text}");
}

#[test]
fn without_a_base_a_query_names_the_command_that_makes_one() {
    let project = Project::new(&[]);
    for arguments in [&["query", "x"][..], &["log", "fact-1"], &["invalidate", "fact-1", "--yes"]] {
        let printed = project.kb(arguments);
        assert!(printed.code == Some(3) && printed.error.contains("callboard kb init"), "{}", printed.error);
    }
}

#[test]
fn a_query_of_the_second_that_a_log_prints_finds_what_was_submitted_in_it() {
    let project = Project::new(&[]);
    project.done(&["submit", "The gate opens at nine."]);
    let log = project.done(&["log", "the gate opens at nine"]);
    let at = log.lines().find_map(|line| line.strip_prefix("source: ann  ")).unwrap().replace(' ', "T");
    assert!(project.done(&["query", "gate", "--as-of", &at]).contains("The gate opens at nine."));
    assert_eq!(project.kb(&["query", "gate", "--as-of", "2020-01-31"]).code, Some(3));
}

#[test]
fn a_text_that_begins_with_two_ats_begins_with_one() {
    let project = Project::new(&[]);
    project.done(&["submit", "@@app.route names a handler."]);
    assert!(project.done(&["query", "@@app.route"]).contains("   @app.route names a handler."));
    let file = project.kb(&["query", "@app.route"]);
    assert!(file.code == Some(2) && file.error.contains("there is no such file"), "{}", file.error);
}

#[test]
fn a_widened_query_gives_as_many_results_as_its_limit_and_says_that_there_are_more() {
    let project = Project::new(&[]);
    for number in 0..4 {
        fs::write(project.folder.path().join(format!("notes/{number}.md")), format!("# Gate\n\nGate {number}.\n"))
            .unwrap();
    }
    project.done(&["init", "notes"]);
    let query = ["query", "gate", "--limit", "1"];
    let json = project.kb(&[&query[..], &["--json"]].concat()).json();
    let results = json["result"]["found"]["retrieved"]["results"].as_array().unwrap();
    assert_eq!((&json["escalated"], results.len()), (&true.into(), 1), "{json}");
    let shown = project.kb(&query);
    let remark = "4 results after 2 passes, ";
    assert!(shown.error.contains(remark) && shown.error.contains("a higher --limit shows more"), "{}", shown.error);
}

#[test]
fn without_permission_for_the_folder_of_facts_a_base_is_denied() {
    let project = Project::new(&[("a.md", "# A\n")]);
    let closed = project.folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    for arguments in [&["init", "notes"][..], &["submit", "x"]] {
        let printed = project.kb(&[arguments, &["--store", "closed/store", "--json"]].concat());
        // No permission binds root.
        if !geteuid().is_root() {
            assert_eq!((printed.code, &printed.json()["code"]), (Some(4), &4.into()), "{}", printed.out);
        }
    }
}

#[test]
fn a_change_is_shown_first_and_applied_by_its_hash_or_not_at_all() {
    let project = Project::new(&[]);
    project.done(&["submit", "The gate opens at nine."]);
    for arguments in
        [&["invalidate", "the gate opens at nine"][..], &["invalidate", "the gate opens at nine", "--json"]]
    {
        let shown = project.kb(arguments);
        assert_eq!(shown.code, Some(5), "nobody was asked: {}", shown.error);
    }
    let shown = project.kb(&["invalidate", "the gate opens at NINE"]).out;
    assert!(shown.contains("current → invalid  The gate opens at nine."), "{shown}");
    let line =
        shown.lines().find_map(|line| line.strip_prefix("nothing was changed; to apply it: callboard kb ")).unwrap();
    let arguments: Vec<&str> = line.split(' ').collect();
    project.done(&["submit", "The gate opens at nine.", "--from", "notes.md:1"]);
    let changed = project.kb(&arguments);
    assert!(changed.code == Some(1) && changed.error.contains("no longer what was shown"), "{}", changed.error);
    let applied = project.done(&["invalidate", "the gate opens at nine", "--yes", "--reason", "it was moved"]);
    assert!(applied.ends_with("invalid  The gate opens at nine.\n"), "{applied}");
    let log = project.done(&["log", "the gate opens at nine"]);
    assert!(log.contains("it was moved") && log.contains("source: ann  notes.md:1"), "{log}");
    assert_eq!(project.kb(&["query", "gate"]).code, Some(3));
    let again = project.kb(&["invalidate", "the gate opens at nine", "--yes"]);
    assert!(again.code == Some(1) && again.error.contains("is invalid already"), "{}", again.error);
    let accepted = project.kb(&["accept", "the gate opens at nine", "--yes"]);
    let why = "is invalid, and disputed facts alone are accepted; nothing was changed: submit its statement again";
    assert!(accepted.code == Some(1) && accepted.error.contains(why), "{}", accepted.error);
    assert_eq!(project.kb(&["accept", "fact-12345", "--yes"]).code, Some(3));
}

#[test]
fn the_same_words_with_another_value_are_an_error_and_not_a_source() {
    let project = Project::new(&[]);
    let submit = |value: &str, more: &[&str]| {
        let triple = ["submit", "Port is 80", "--subject", "x", "--predicate", "port", "--value", value];
        project.kb(&[&triple[..], more].concat())
    };
    assert_eq!(submit("80", &[]).code, Some(0));
    let other = submit("81", &[]);
    let why = "in the same words (its words state that \"port\" of \"x\" is \"80\"): nothing was changed; write a statement that says what differs";
    assert!(other.code == Some(1) && other.error.contains(why), "{}", other.error);
    let single = submit("81", &["--single", "--on-contradiction", "supersede"]);
    assert!(single.code == Some(1) && single.error.contains("it contradicts fact-"), "{}", single.error);
    assert!(submit("80", &[]).out.contains("was known; it has 2 sources now"));
    let log = project.done(&["log", "port is 80"]);
    assert!(log.contains("another source") && log.matches("source: ").count() == 2, "{log}");
}

#[test]
fn a_contradiction_is_printed_with_the_commands_that_decide_it() {
    let project = Project::new(&[]);
    let submit = |value: &str| {
        let statement = format!("The gate opens at {value}.");
        let triple = ["--subject", "gate", "--predicate", "opens at", "--value", value, "--single"];
        project.done(&[&["submit", &*statement][..], &triple].concat())
    };
    submit("nine");
    let printed = submit("ten");
    let line = printed.lines().find_map(|line| line.strip_prefix("to decide: callboard kb ")).unwrap();
    let accept: Vec<&str> = line.split("  or  ").next().unwrap().split(' ').chain(["--yes"]).collect();
    let accepted = project.done(&accept);
    assert!(
        accepted.contains("current  The gate opens at ten.") && accepted.contains("invalid  The gate opens at nine.")
    );
}

#[test]
fn what_a_command_line_lacks_is_an_error_of_the_command_line() {
    let project = Project::new(&[]);
    for (arguments, error) in [
        (&["submit", " . "][..], "the statement is empty"),
        (&["submit", "x", "--subject", "y"], "--predicate"),
        (&["predicate", "", "single"], "the predicate is empty"),
        (&["predicate", " . ", "several"], "the predicate is empty"),
        (&["submit", "x", "--single"], "--predicate"),
        (&["query", "x", "--as-of", "yesterday"], "2026-01-31"),
        (&["query", "x", "--limit", "0"], "1..=640"),
        (&["query", " ..."], "the question has no words"),
        (&["query", "x", "--namespace", "a\nb"], "namespace"),
        (&["--limit", "3", "query", "x"], "tip: write --limit behind the command: callboard kb query --limit 3 x"),
        (&["--store", "s", "query", "x"], "tip: write --store behind the command: callboard kb query --store s x"),
    ] {
        let printed = project.kb(arguments);
        assert!(printed.code == Some(2) && printed.error.contains(error), "{arguments:?}: {}", printed.error);
    }
}

#[test]
fn a_site_has_the_documents_and_facts_and_replaces_nothing_else() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    project.done(&["init", "notes"]);
    project.done(&["submit", "Keys rotate each month.", "--from", "notes/auth.md:1"]);
    let published = project.done(&["publish", "site", "--title", "Notes"]);
    assert!(published.starts_with("site is written: "), "{published}");
    let page = |file: &str| fs::read_to_string(project.folder.path().join("site").join(file)).unwrap();
    assert!(page("index.html").contains("Notes"));
    assert!(page("pages/notes/auth.md.html").contains("A token is checked."));
    assert!(project.done(&["publish", "site", "--title", "Notes"]).starts_with("site is as it was: "));
    let refused = project.kb(&["publish", "notes"]);
    assert!(refused.code == Some(2) && refused.error.contains("is not replaced"), "{}", refused.error);
    // The site is no document of its project.
    let again = project.kb(&["init", "."]);
    assert_eq!(
        (again.code, again.out.as_str()),
        (Some(0), "1 document: 0 passages new, 1 as before, 0 gone\n"),
        "{}",
        again.error
    );
    assert!(again.error.contains("left out: site: it is a site that `callboard kb publish` wrote"), "{}", again.error);
    let mine = project.folder.path().join("site/pages/mine.txt");
    fs::write(&mine, "mine").unwrap();
    let refused = project.kb(&["publish", "site"]);
    assert!(refused.code == Some(2) && refused.error.contains("it has pages/mine.txt, which"), "{}", refused.error);
    fs::remove_file(mine).unwrap();
    fs::create_dir_all(project.folder.path().join(".site.publish-mine/drafts")).unwrap();
    let published = project.kb(&["publish", "site"]);
    let kept = ".site.publish-mine looks like a folder of an interrupted publication and is kept, because it has no callboard-staging.txt;";
    assert!(published.code == Some(0) && published.error.contains(kept), "{}", published.error);
}

#[test]
fn the_check_of_a_base_finds_an_index_that_differs_and_builds_it_again() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    project.done(&["init", "notes"]);
    let sound = project.done(&["doctor"]);
    assert!(sound.starts_with("1 document with 1 passage"), "{sound}");
    let base = walk(project.state.path());
    let damage = rusqlite::Connection::open(base).unwrap();
    damage.execute_batch("INSERT INTO kb_text (kb_text) VALUES ('delete-all')").unwrap();
    drop(damage);
    let found = project.kb(&["doctor"]);
    assert!(
        found.code == Some(1) && found.out.contains("to build it again: callboard kb doctor --repair"),
        "{}",
        found.out
    );
    project.done(&["doctor", "--repair"]);
    assert!(project.done(&["query", "token"]).starts_with("1. notes/auth.md:1"));
    let foreign = rusqlite::Connection::open(walk(project.state.path())).unwrap();
    foreign.execute_batch("CREATE TABLE mine (x); DROP TABLE kb_predicates").unwrap();
    drop(foreign);
    let found = project.kb(&["doctor", "--repair"]);
    let lines: Vec<&str> = found.out.lines().collect();
    let named = [
        "wrong: the base lacks the table kb_predicates",
        "wrong: the base has the table mine, which no base has",
        "what it has is not counted: its tables are not those of a base",
    ];
    assert_eq!((found.code, &lines[..]), (Some(1), &named[..]), "{}", found.error);
}

/// The file of the base below a state folder.
fn walk(folder: &std::path::Path) -> std::path::PathBuf {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("knowledge/facts.db") {
                return path;
            }
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    panic!("there is no base");
}

#[test]
fn an_export_is_imported_into_another_project_or_refused_whole() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    project.done(&["init", "notes"]);
    project.done(&["submit", "Keys rotate each month."]);
    let exported = project.done(&["export", "facts.jsonl"]);
    assert!(exported.starts_with("exported: 1 document with 1 passage, 1 fact"), "{exported}");
    let text = fs::read_to_string(project.folder.path().join("facts.jsonl")).unwrap();
    assert_eq!(project.done(&["export"]), text);
    let again = project.kb(&["export", "facts.jsonl"]);
    assert!(again.code == Some(2) && again.error.contains("cannot be written to facts.jsonl"), "{}", again.error);
    let full = project.kb(&["import", "facts.jsonl"]);
    assert!(full.code == Some(2) && full.error.contains("the base is not empty"), "{}", full.error);
    let other = Project::new(&[]);
    fs::write(other.folder.path().join("cut.jsonl"), &text[..text.len() - 9]).unwrap();
    let cut = other.kb(&["import", "cut.jsonl"]);
    assert!(cut.code == Some(2) && cut.error.contains("truncated; nothing was imported"), "{}", cut.error);
    fs::write(other.folder.path().join("facts.jsonl"), &text).unwrap();
    assert_eq!(other.done(&["import", "facts.jsonl"]), exported.replacen("exported", "imported", 1));
    assert_eq!(other.done(&["export", "-"]), text);
    other.done(&["backup", "copy.db"]);
    let twice = other.kb(&["backup", "copy.db"]);
    assert!(twice.code == Some(2) && twice.error.contains("copy.db: it exists already"), "{}", twice.error);
}

#[test]
fn a_backup_takes_the_place_of_a_base_that_no_process_has_open() {
    let project = Project::new(&[]);
    project.done(&["submit", "Keys rotate each month."]);
    project.done(&["backup", "copy.db"]);
    project.done(&["submit", "The gate opens at nine."]);
    let base = walk(project.state.path());
    let lock = fs::File::open(format!("{}-lock", base.display())).unwrap();
    lock.lock_shared().unwrap();
    let held = project.kb(&["restore", "copy.db"]);
    assert!(held.code == Some(6) && held.error.contains("stop it (such as `callboard serve`)"), "{}", held.error);
    drop(lock);
    let restored = project.done(&["restore", "copy.db"]);
    let kept = restored.lines().find_map(|line| line.strip_prefix("the earlier one is ")).unwrap();
    assert!(restored.starts_with("the base is that of copy.db: 0 documents, 1 fact\n"), "{restored}");
    assert!(project.done(&["doctor"]).contains("1 fact"));
    fs::write(project.folder.path().join("text.txt"), "no base").unwrap();
    let refused = project.kb(&["restore", "text.txt"]);
    let why = "text.txt cannot be restored: it is damaged (file is not a database); nothing was changed";
    assert!(refused.code == Some(2) && refused.error.contains(why), "{}", refused.error);
    project.done(&["restore", kept]);
    assert!(project.done(&["doctor"]).contains("2 facts"));
}

#[test]
fn every_command_names_a_damaged_base_and_how_a_backup_is_put_in_its_place() {
    let project = Project::new(&[]);
    project.done(&["submit", "Keys rotate each month.", "--store", "facts"]);
    project.done(&["backup", "copy.db", "--store", "facts"]);
    let base = project.folder.path().join("facts/knowledge/facts.db");
    let whole = fs::read(&base).unwrap();
    fs::write(project.folder.path().join("one.md"), "# One\n").unwrap();
    for damaged in
        [&b"no database, but a text that is long enough to be read as one".repeat(9)[..], &whole[..5000], b""]
    {
        let _ = fs::remove_file(format!("{}-wal", base.display()));
        fs::write(&base, damaged).unwrap();
        for arguments in [
            &["query", "keys"][..],
            &["submit", "Keys rotate."],
            &["invalidate", "keys rotate each month", "--yes"],
            &["accept", "fact-1", "--yes"],
            &["log", "fact-1"],
            &["init", "notes"],
            &["doctor"],
            &["predicate", "opens at", "single"],
            &["publish", "site"],
            &["export", "facts.jsonl"],
            &["import", "one.md"],
            &["backup", "other.db"],
        ] {
            let printed = project.kb(&[arguments, &["--store", "facts"]].concat());
            let line = "`callboard kb restore FILE --store facts` puts a backup in its place";
            let is_told = printed.error.contains("facts/knowledge/facts.db is ") && printed.error.contains(line);
            assert!(printed.code == Some(1) && is_told, "{arguments:?}: {:?} {}", printed.code, printed.error);
        }
        assert!(fs::read(&base).unwrap() == damaged, "the file was changed");
        project.done(&["restore", "copy.db", "--store", "facts"]);
        assert!(project.done(&["query", "keys", "--store", "facts"]).contains("Keys rotate each month."));
    }
    let missing = project.kb(&["query", "keys", "--store", "others"]);
    let line = "`callboard kb init PATH --store others` makes one";
    assert!(missing.code == Some(3) && missing.error.contains(line), "{}", missing.error);
}

#[test]
fn the_base_of_a_store_is_copied_exported_imported_and_checked_with_it() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    let callboard =
        |arguments: &[&str]| output_of(command(&project.folder, arguments).env("XDG_STATE_HOME", project.state.path()));
    let done = |arguments: &[&str]| {
        let printed = callboard(arguments);
        assert_eq!(printed.code, Some(0), "{arguments:?}: {}", printed.error);
        printed.out
    };
    project.done(&["init", "notes"]);
    project.done(&["submit", "Keys rotate each month."]);
    let facts = project.done(&["export"]);
    assert!(done(&["store", "backup", "copy"]).ends_with("copied: the base of facts, 1 document, 1 fact\n"));
    fs::create_dir(project.folder.path().join("empty")).unwrap();
    done(&["store", "backup", "empty"]);
    done(&["store", "export", "whole.jsonl", "--store", "copy"]);
    done(&["store", "import", "whole.jsonl", "--store", "new"]);
    fs::create_dir(project.folder.path().join("other")).unwrap();
    let imported = callboard(&["store", "import", "whole.jsonl", "--store", "other", "--json"]).json();
    assert_eq!((&imported["knowledge"]["current"], &imported["knowledge"]["documents"]), (&1.into(), &1.into()));
    for store in ["copy", "empty", "new", "other"] {
        assert_eq!(project.done(&["export", "--store", store]), facts, "{store}");
    }
    let again = callboard(&["store", "import", "whole.jsonl", "--again"]);
    assert_eq!(again.code, Some(0), "the project has the same base: {}", again.error);
    project.done(&["submit", "The gate opens at nine."]);
    let others = callboard(&["store", "import", "whole.jsonl", "--again"]);
    assert!(
        others.code == Some(2) && others.error.contains("has other facts than that of the export"),
        "{}",
        others.error
    );
    let whole = fs::read_to_string(project.folder.path().join("whole.jsonl")).unwrap();
    let cut = facts.len() - 9;
    fs::write(project.folder.path().join("cut.jsonl"), format!("{}{}", &whole[..cut], &whole[facts.len()..])).unwrap();
    let refused = callboard(&["store", "import", "cut.jsonl", "--store", "none"]);
    assert!(refused.code == Some(2) && refused.error.contains("cut.jsonl: line "), "{}", refused.error);
    fs::write(project.folder.path().join("cut.jsonl"), &whole[..whole.len() - 9]).unwrap();
    let refused = callboard(&["store", "import", "cut.jsonl", "--store", "none"]);
    assert!(refused.code == Some(2) && !project.folder.path().join("none").exists(), "{}", refused.error);

    let checked = done(&["store", "check", "--store", "copy"]);
    assert!(checked.ends_with("copy/knowledge/facts.db: 1 document, 1 fact, no damage\n"), "{checked}");
    let looked_at = callboard(&["doctor", "--store", "copy"]).out;
    assert!(
        looked_at.lines().any(|line| line.contains("facts ") && line.ends_with("1 document, 1 fact")),
        "{looked_at}"
    );
    let damage = rusqlite::Connection::open(project.folder.path().join("copy/knowledge/facts.db")).unwrap();
    damage.execute_batch("DELETE FROM kb_sources").unwrap();
    drop(damage);
    let damaged = callboard(&["store", "check", "--store", "copy"]);
    let line = "damaged: the base of facts: facts without a source: 1, such as fact-";
    assert!(damaged.code == Some(1) && damaged.out.contains(line), "{}", damaged.out);
    fs::write(project.folder.path().join("copy/knowledge/facts.db"), "text").unwrap();
    let unread = callboard(&["store", "check", "--store", "copy", "--json"]);
    assert!(
        unread.code == Some(1) && unread.json()[1]["error"].as_str().unwrap().contains("kb restore"),
        "{}",
        unread.out
    );
}

#[test]
fn a_file_is_indexed_by_its_name_and_read_again_where_it_has_changed() {
    let project =
        Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n"), ("keys.md", "# Keys\n\nKeys rotate.\n")]);
    assert_eq!(project.done(&["init", "notes/auth.md"]), "1 document: 1 passage new, 0 as before, 0 gone\n");
    assert!(project.done(&["query", "token"]).starts_with("1. notes/auth.md:1"));
    assert_eq!(project.kb(&["query", "rotate"]).code, Some(3));
    assert_eq!(project.done(&["init", "notes"]), "2 documents: 1 passage new, 1 as before, 0 gone\n");
    fs::write(project.folder.path().join("notes/auth.md"), "").unwrap();
    let empty = project.kb(&["init", "notes/auth.md"]);
    assert_eq!(
        (empty.code, &*empty.out),
        (Some(0), "0 documents: 0 passages new, 0 as before, 1 gone\n"),
        "{}",
        empty.error
    );
    assert!(empty.error.contains("left out: notes/auth.md: "), "{}", empty.error);
    assert!(project.done(&["query", "rotate"]).starts_with("1. notes/keys.md:1"));
}

#[test]
fn a_refused_command_leaves_no_base_that_it_has_made() {
    let project = Project::new(&[]);
    fs::write(project.folder.path().join("text.txt"), "no export\n").unwrap();
    // The rows of this export are refused, and not its text.
    let rows = "{\"callboard_knowledge\":1}\n{\"predicate\":{\"namespace\":\"n\",\"form\":\"X\",\"is_single\":true}}\n";
    let sha256: String = Sha256::digest(rows).iter().map(|byte| format!("{byte:02x}")).collect();
    let counts = "{\"entities\":0,\"documents\":0,\"passages\":0,\"facts\":0,\"contradictions\":0,\"predicates\":1}";
    let end = format!("{{\"end\":{{\"counts\":{counts},\"sha256\":\"{sha256}\"}}}}\n");
    fs::write(project.folder.path().join("rows.jsonl"), format!("{rows}{end}")).unwrap();
    for (arguments, why) in [
        (&["submit", " . "][..], "the statement is empty"),
        (&["import", "text.txt"], "line 1 of the export"),
        (&["import", "rows.jsonl"], "line 2 of the export: the predicate is not in normal form"),
        (&["init", "nowhere"], "nowhere"),
    ] {
        let refused = project.kb(arguments);
        assert!(refused.code == Some(2) && refused.error.contains(why), "{arguments:?}: {}", refused.error);
        let missing = project.kb(&["query", "x"]);
        assert!(
            missing.code == Some(3) && missing.error.contains("there is no base"),
            "{arguments:?}: {}",
            missing.error
        );
    }
    for command in ["import", "restore"] {
        let refused = project.kb(&[command, "text.txt", "--store", "folder/new"]);
        assert_eq!(refused.code, Some(2), "{}", refused.error);
        assert!(!project.folder.path().join("folder").exists(), "{command} left a folder");
        let kept = project.folder.path().join("kept/knowledge");
        fs::create_dir_all(&kept).unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(project.kb(&[command, "text.txt", "--store", "kept"]).code, Some(2));
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 0, "the folder was there before");
    }
    project.done(&["submit", "The gate is open."]);
    assert_eq!(project.kb(&["submit", " . "]).code, Some(2));
    project.done(&["query", "gate"]);
}

#[test]
fn a_name_that_is_not_utf8_does_not_keep_documents_whose_files_are_gone() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let project = Project::new(&[("a.md", "# A\n\nThe gate is open.\n"), ("b.md", "# B\n")]);
    project.done(&["init", "notes"]);
    let notes = project.folder.path().join("notes");
    fs::write(notes.join(OsStr::from_bytes(b"b\xe9d.md")), "x").unwrap();
    fs::remove_file(notes.join("a.md")).unwrap();
    assert_eq!(project.done(&["init", "notes"]), "1 document: 0 passages new, 1 as before, 1 gone\n");
    assert_eq!(project.kb(&["query", "gate"]).code, Some(3));
}

#[test]
fn an_initialisation_that_has_ended_is_not_continued() {
    let project = Project::new(&[("a.md", "# A\n")]);
    for round in 0..12 {
        fs::write(project.folder.path().join("notes/a.md"), format!("# A\n\nround{round}\n")).unwrap();
        let printed = project.kb(&["init", "notes"]);
        assert!(printed.code == Some(0) && !printed.error.contains("continued"), "{round}: {}", printed.error);
        assert!(printed.out.starts_with("1 document: 1 passage new"), "{round}: {}", printed.out);
    }
}

#[test]
fn a_folder_elsewhere_has_its_whole_path_as_name_and_ends_no_document_of_the_project() {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked.\n")]);
    // No part of the path is hidden.
    let elsewhere = tempfile::Builder::new().prefix("elsewhere").tempdir().unwrap();
    let path = elsewhere.path().canonicalize().unwrap();
    fs::write(path.join("key.md"), "# Key\n\nA key is old. See [the lock](lock.md).\n").unwrap();
    fs::write(path.join("lock.md"), "# Lock\n\nA lock is new.\n").unwrap();
    // The same name, but for the slash at its beginning.
    let same = project.folder.path().join(path.strip_prefix("/").unwrap());
    fs::create_dir_all(&same).unwrap();
    fs::write(same.join("key.md"), "# Key\n\nA bolt is here.\n").unwrap();
    let text = path.to_str().unwrap();
    project.done(&["init", "."]);
    project.done(&["init", text]);
    assert!(project.done(&["query", "old key"]).starts_with(&format!("1. {text}/key.md:1")));
    assert!(project.done(&["query", "bolt"]).starts_with(&format!("1. {}/key.md:1", &text[1..])));
    project.done(&["init", "."]);
    assert!(project.done(&["query", "old key"]).starts_with(&format!("1. {text}/key.md:1")));
    project.done(&["publish", "site"]);
    assert_eq!(project.done(&["doctor"]).lines().count(), 1);
}

/// A project whose model is on this machine.
fn project_with(model: &Model) -> Project {
    let project = Project::new(&[("auth.md", "# Auth\n\nA token is checked by the gate.\n")]);
    fs::write(project.folder.path().join("models.toml"), model.catalog()).unwrap();
    project
}

/// What a request asks for: the JSON in its last message.
fn asked(request: &Request) -> serde_json::Value {
    let text = request.body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    let asked = text.find('{').map(|start| &text[start..]).unwrap_or_default();
    serde_json::Deserializer::from_str(asked).into_iter().next().unwrap().unwrap()
}

#[test]
fn an_answer_of_a_model_is_printed_with_what_its_claims_cite_or_that_it_is_not_known() {
    let model = Model::start();
    let project = project_with(&model);
    project.done(&["init", "notes"]);
    let query = ["query", "who checks a token?", "--model", "m", "--models", "models.toml"];
    for (claims, expected) in [
        (r#"[{ "text": "The gate does.", "cites": ["notes/auth.md:1"] }]"#, "The gate does. [notes/auth.md:1]\n"),
        ("[]", "not known\n"),
        (r#"[{ "text": "Bob does.", "cites": ["notes/bob.md:1"] }]"#, "refused: "),
    ] {
        model.answers(&format!("```json\n{{ \"claims\": {claims} }}\n```"));
        let printed = project.kb(&query);
        let question = asked(&model.request());
        assert_eq!(question["question"], "who checks a token?");
        assert!(printed.out.contains(expected), "{claims}: {}{}", printed.out, printed.error);
    }
    let unknown = project.kb(&["query", "x", "--model", "unknown", "--models", "models.toml"]);
    assert!(unknown.code == Some(2) && unknown.error.contains("--model"), "{}", unknown.error);
}

#[test]
fn an_initialisation_with_a_model_that_was_killed_is_continued_by_the_same_command() {
    let model = Model::start();
    let project = project_with(&model);
    let init = ["kb", "init", "notes", "--model", "m", "--models", "models.toml", "--topic", "tokens", "--no-input"];
    let start = || {
        let mut command = command(&project.folder, &init);
        command.env("XDG_STATE_HOME", project.state.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = start();
    assert_eq!(asked(&model.request())["task"], "Write a document");
    child.kill().unwrap();
    child.wait().unwrap();
    // One file is another since it was read, and one is new.
    fs::write(project.folder.path().join("notes/auth.md"), "# Auth\n\nA token is checked by the wall.\n").unwrap();
    fs::write(project.folder.path().join("notes/more.md"), "# More\n").unwrap();
    // For the process that was killed.
    model.answers("{}");
    let claim = |text: &str| format!(r#"{{ "text": "{text}", "cites": ["notes/auth.md:1"] }}"#);
    model.answers(&format!(r#"{{ "title": "Tokens", "claims": [{}] }}"#, claim("Tokens are checked.")));
    model.answers("{}");
    model.answers(&format!(r#"{{ "claims": [{}], "entities": ["gate"] }}"#, claim("The gate checks them.")));
    model.answers("{}");
    let printed = ended(start());
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    assert!(printed.error.contains("is continued"), "{}", printed.error);
    let line = init.join(" ");
    let changed = format!("read them: 2 files; to read them again: callboard {line}\n");
    assert!(printed.error.contains(&changed), "{}", printed.error);
    assert!(printed.out.ends_with("1 document with 2 claims by the model\n"), "{}", printed.out);
    let tasks: Vec<_> = (0..4).map(|_| asked(&model.request())["task"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tasks, ["Write a document", "Find what is missing", "Enrich a document", "Review documents"]);
    let found = project.done(&["query", "who checks tokens?"]);
    assert!(found.contains("summary:notes/tokens:1") && found.contains("The gate checks them. [notes/auth.md:1]"));
}
