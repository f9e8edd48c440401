//! Conversations on the command line: real processes, and a state folder of their own.

#![cfg(unix)]

use std::fs;

use crate::model::Asked;
use crate::place::{Place, ended};
use serde_json::Value;

impl Place {
    /// Runs a task, and returns the messages that the model received, but for what it is told about its part.
    fn talk(&self, conversation: &str, words: &str, answer: &str) -> Vec<String> {
        self.model.says(answer);
        let said = self.said(&["run", words, "--conversation", conversation]);
        assert_eq!((said.code, said.out), (Some(0), format!("{answer}\n")), "{}", said.error);
        messages(&self.model.asked())
    }
}

fn messages(asked: &Asked) -> Vec<String> {
    let all = asked.body["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
    all.map(|message| format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
        .collect()
}

#[test]
fn runs_of_a_conversation_see_each_other_over_processes_and_are_listed_shown_and_deleted() {
    let place = Place::new();
    assert_eq!(place.talk("ann", "Good morning.", "Hello."), ["user: Good morning."]);
    let seen = place.talk("ann", "Are you there?", "Yes.");
    assert_eq!(seen, ["user: Good morning.", "assistant: Hello.", "user: Are you there?"]);
    assert_eq!(place.talk("bob", "Who am I?", "Bob."), ["user: Who am I?"]);

    let listed = place.said(&["conversations", "list", "--json"]);
    let rows: Value = serde_json::from_str(&listed.out).unwrap();
    let row =
        |row: &Value| (row["conversation"].clone(), row["owner"].clone(), row["runs"].clone(), row["messages"].clone());
    assert_eq!(row(&rows[0]), ("ann".into(), "writer".into(), 2.into(), 4.into()), "{}", listed.out);
    let shown = place.said(&["conversations", "show", "ann"]).out;
    let messages = "  user: Are you there?\n  assistant: Yes.\n";
    assert!(shown.contains("  user: Good morning.\n  assistant: Hello.\n") && shown.ends_with(messages), "{shown}");

    assert_eq!(place.said(&["conversations", "delete", "ann"]).out, "conversation ann is deleted\n");
    let gone = place.said(&["conversations", "show", "ann"]);
    assert!(gone.code == Some(1) && gone.error.contains("there is no conversation ann"), "{}", gone.error);
    assert_eq!(place.talk("ann", "And now?", "Anew."), ["user: And now?"]);
}

#[test]
fn a_conversation_whose_store_another_process_has_open_is_named_with_the_process() {
    let place = Place::new();
    place.talk("ann", "Good morning.", "Hello.");
    let slow = place.command(&["run", "Wait.", "--conversation", "ann"]).spawn().unwrap();
    place.model.asked();
    let refused = place.said(&["run", "Quick.", "--conversation", "ann"]);
    let reason = format!("which process {} has open", slow.id());
    assert_eq!(refused.code, Some(2), "{}", refused.error);
    assert!(
        refused.error.contains("conversation ann is in the store") && refused.error.contains(&reason),
        "{}",
        refused.error
    );
    place.model.says("Done.");
    assert_eq!(ended(slow).code, Some(0));
    assert_eq!(place.talk("ann", "Quick.", "Now.").len(), 5);
}

#[test]
fn a_run_that_a_killed_process_left_in_a_conversation_is_named_with_the_lines_that_end_it() {
    let place = Place::new();
    let mut killed = place.command(&["run", "Wait.", "--conversation", "ann"]).spawn().unwrap();
    place.model.asked();
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The answer that the killed process was to have.
    place.model.says("lost");
    let refused = place.said(&["run", "Next.", "--conversation", "ann"]);
    assert_eq!(refused.code, Some(2), "{}", refused.error);
    let line = refused.error.split("callboard run --resume ").nth(1).unwrap();
    let run = line.split([';', ' ']).next().unwrap().to_owned();
    assert!(refused.error.contains(&format!("has not ended; to continue it: callboard run --resume {run}")));
    assert!(refused.error.contains(&format!("callboard runs delete {run}")), "{}", refused.error);
    let kept = place.said(&["conversations", "delete", "ann"]);
    let ways = format!("callboard run --resume {run} continues the run, and callboard runs delete {run} removes it\n");
    assert!(kept.code == Some(2) && kept.error.ends_with(&ways), "{}", kept.error);
    place.model.says("Here.");
    assert_eq!(place.said(&["run", "--resume", &run]).out, "Here.\n");
    place.model.asked();
    let seen = place.talk("ann", "Next.", "Good.");
    assert_eq!(seen, ["user: Wait.", "assistant: Here.", "user: Next."]);
}

#[test]
fn a_conversation_names_the_agent_and_is_refused_to_others() {
    let place = Place::new();
    place.talk("ann", "Good morning.", "Hello.");
    fs::write(place.project.path().join("agents/other.toml"), "[agent]\nname = \"other\"\n").unwrap();
    assert_eq!(place.talk("ann", "Again.", "Yes.").len(), 3, "no --to is needed");
    let refused = place.said(&["run", "x", "--conversation", "ann", "--to", "other"]);
    assert!(
        refused.code == Some(2) && refused.error.contains("conversation ann belongs to writer"),
        "{}",
        refused.error
    );
    for wrong in [&["--ephemeral"][..], &["--conversation", ""]] {
        let arguments = [&["run", "x", "--conversation", "ann"], wrong].concat();
        assert_eq!(place.said(&arguments).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn what_is_no_file_where_the_store_of_a_conversation_is_named_is_an_error_at_once() {
    let place = Place::new();
    place.talk("ann", "Good morning.", "Hello.");
    let homes = place.stores().join("conversations");
    let home = fs::read_dir(&homes).unwrap().next().unwrap().unwrap().path();
    let makes: [(&str, &dyn Fn()); 5] = [
        ("it is not a file", &|| {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &home, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }),
        ("it is not a file", &|| fs::create_dir(&home).unwrap()),
        ("it is not a file", &|| std::os::unix::fs::symlink("/dev/zero", &home).unwrap()),
        ("it holds no number of a store", &|| fs::write(&home, "x").unwrap()),
        ("it holds no number of a store", &|| fs::File::create(&home).unwrap().set_len(1 << 42).unwrap()),
    ];
    for (why, make) in makes {
        fs::remove_file(&home).or_else(|_| fs::remove_dir(&home)).unwrap();
        make();
        let refused = place.said(&["run", "Again.", "--conversation", "ann"]);
        let is_named = refused.error.contains(why) && refused.error.contains(&*home.to_string_lossy());
        assert!(refused.code == Some(2) && is_named && refused.error.contains("remove it"), "{}", refused.error);
    }
    fs::remove_file(&home).unwrap();
    assert_eq!(place.talk("ann", "Again.", "Yes.").len(), 3);
}

#[test]
fn a_retry_leaves_its_messages_after_those_of_the_run_that_failed() {
    let place = Place::new();
    place.talk("ann", "Good morning.", "Hello.");
    let failed = place.said(&["run", "Write.", "--conversation", "ann", "--limits", r#"{"tokens": 10}"#]);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    place.model.says("Written.");
    let again = place.said(&["run", "--retry", "@last", "--limits", "complex"]);
    assert_eq!((again.code, &*again.out), (Some(0), "Written.\n"), "{}", again.error);
    let before = ["user: Good morning.", "assistant: Hello."];
    assert_eq!(messages(&place.model.asked()), [&before[..], &["user: Write."]].concat());
    let seen = place.talk("ann", "And now?", "Done.");
    let failed = ["user: Write.", "assistant: [There is no answer: the run failed.]"];
    let retried = ["user: Write.", "assistant: Written.", "user: And now?"];
    assert_eq!(seen, [&before[..], &failed, &retried].concat());
}

#[test]
fn runs_of_a_workflow_share_a_conversation() {
    let place = Place::new();
    let run = |words: &str, answer: &str| {
        place.model.says(answer);
        let input = serde_json::to_string(words).unwrap();
        let run = ["workflow", "run", "--line", "writer", "--agents", "agents", "--conversation", "ann"];
        let said = place.said(&[&run[..], &["--input-json", &input]].concat());
        assert_eq!((said.code, said.out), (Some(0), format!("{answer}\n")), "{}", said.error);
        messages(&place.model.asked())
    };
    assert_eq!(run("Good morning.", "Hello."), ["user: Good morning."]);
    assert_eq!(run("Again.", "Yes."), ["user: Good morning.", "assistant: Hello.", "user: Again."]);
    let rows: Value = serde_json::from_str(&place.said(&["conversations", "list", "--json"]).out).unwrap();
    assert_eq!((&rows[0]["owner"], &rows[0]["runs"]), (&"workflow workflow".into(), &2.into()), "{rows}");

    // A run that was left is named with the line that continues it.
    let waits =
        ["workflow", "run", "--line", "writer(interrupt=\"before\")", "--agents", "agents", "--conversation", "bob"];
    assert_eq!(place.said(&waits).code, Some(3));
    let refused = place.said(&waits);
    assert_eq!(refused.code, Some(2), "{}", refused.error);
    assert!(
        refused.error.contains("of conversation bob has not ended")
            && refused.error.contains("callboard workflow resume "),
        "{}",
        refused.error
    );
    let refused = place.said(&["conversations", "delete", "bob"]);
    assert!(refused.code == Some(2) && refused.error.contains("callboard workflow resume "), "{}", refused.error);
    let both = place.said(&[&waits[..], &["--ephemeral"]].concat());
    assert_eq!(both.code, Some(2), "{}", both.error);
}

#[test]
fn a_conversation_is_forked_up_to_a_run_and_both_are_continued() {
    let place = Place::new();
    place.talk("ann", "One.", "1");
    place.talk("ann", "Two.", "2");
    let shown = place.said(&["conversations", "show", "ann", "--json"]).out;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let first = shown["runs"][0]["run"].as_str().unwrap();
    let fork = place.said(&["conversations", "fork", "ann", "other", "--until", first, "--json"]);
    let fork: Value = serde_json::from_str(&fork.out).unwrap();
    assert_eq!(
        (&fork["conversation"], &fork["forked_from"], &fork["runs"]),
        (&"other".into(), &"ann".into(), &1.into())
    );
    assert_eq!(fork["until"], first);
    assert_eq!(place.talk("other", "Two, another way.", "2'").len(), 3);
    assert_eq!(place.talk("ann", "Three.", "3").len(), 5, "the old one is as it was");
    let whole = place.said(&["conversations", "fork", "ann", "whole"]);
    assert!(
        whole.code == Some(0) && whole.out.contains("conversation whole is a copy of ann: 3 runs"),
        "{}",
        whole.out
    );
    assert_eq!(place.talk("whole", "Four.", "4").len(), 7);

    for (arguments, code, says) in [
        (&["ann", "other"][..], 2, "there is a conversation other already"),
        (&["nobody", "new"], 1, "there is no conversation nobody"),
        (&["ann", "new", "--until", "0000"], 1, "there is no run \"0000\""),
    ] {
        let refused = place.said(&[&["conversations", "fork"], arguments].concat());
        assert!(refused.code == Some(code) && refused.error.contains(says), "{arguments:?}: {}", refused.error);
    }
    assert_eq!(place.said(&["conversations", "show", "new"]).code, Some(1), "nothing was written");
}

#[test]
fn a_fork_of_a_conversation_stays_where_it_is_while_another_process_has_its_store() {
    let place = Place::new();
    place.talk("ann", "One.", "1");
    assert_eq!(place.said(&["conversations", "fork", "ann", "other"]).code, Some(0));
    let slow = place.command(&["run", "Wait.", "--conversation", "ann"]).spawn().unwrap();
    place.model.asked();
    let refused = place.said(&["run", "Two.", "--conversation", "other", "--limits", r#"{"tokens": 10}"#]);
    assert!(
        refused.code == Some(2) && refused.error.contains("conversation other is in the store"),
        "{:?} {}",
        refused.code,
        refused.error
    );
    place.model.says("2");
    assert_eq!(ended(slow).code, Some(0));
}
