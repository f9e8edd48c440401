//! Conversations on the command line: real processes, in a project with a state folder of its own.

#![cfg(unix)]

use std::fs;

use serde_json::Value;

use crate::support::model::Request;
use crate::support::project::Project;
use crate::support::{ended, make_pipe};

impl Project {
    /// Runs a task in a conversation, and returns the messages that the model received, without the system prompt.
    fn talk(&self, conversation: &str, words: &str, answer: &str) -> Vec<String> {
        self.model.answers(answer);
        let printed = self.callboard(&["run", words, "--conversation", conversation]);
        assert_eq!((printed.code, printed.out), (Some(0), format!("{answer}\n")), "{}", printed.error);
        messages(&self.model.request())
    }
}

fn messages(request: &Request) -> Vec<String> {
    let all = request.body["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
    all.map(|message| format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
        .collect()
}

#[test]
fn runs_of_a_conversation_in_several_processes_receive_its_messages_and_it_is_listed_shown_and_deleted() {
    let project = Project::new();
    assert_eq!(project.talk("ann", "Good morning.", "Hello."), ["user: Good morning."]);
    let seen = project.talk("ann", "Are you there?", "Yes.");
    assert_eq!(seen, ["user: Good morning.", "assistant: Hello.", "user: Are you there?"]);
    assert_eq!(project.talk("bob", "Who am I?", "Bob."), ["user: Who am I?"]);

    let listed = project.callboard(&["conversations", "list", "--json"]);
    let rows = listed.json();
    let row =
        |row: &Value| (row["conversation"].clone(), row["owner"].clone(), row["runs"].clone(), row["messages"].clone());
    assert_eq!(row(&rows[0]), ("ann".into(), "writer".into(), 2.into(), 4.into()), "{}", listed.out);
    let shown = project.callboard(&["conversations", "show", "ann"]).out;
    let messages = "  user: Are you there?\n  assistant: Yes.\n";
    assert!(shown.contains("  user: Good morning.\n  assistant: Hello.\n") && shown.ends_with(messages), "{shown}");

    assert_eq!(project.callboard(&["conversations", "delete", "ann"]).out, "conversation ann is deleted\n");
    let gone = project.callboard(&["conversations", "show", "ann"]);
    assert!(gone.code == Some(3) && gone.error.contains("there is no conversation ann"), "{}", gone.error);
    assert_eq!(project.talk("ann", "And now?", "Anew."), ["user: And now?"]);
}

#[test]
fn a_conversation_with_a_run_of_another_process_is_refused() {
    let project = Project::new();
    project.talk("ann", "Good morning.", "Hello.");
    let slow = project.command(&["run", "Wait.", "--conversation", "ann"]).spawn().unwrap();
    project.model.request();
    let refused = project.callboard(&["run", "Quick.", "--conversation", "ann"]);
    assert_eq!(refused.code, Some(6), "{}", refused.error);
    assert!(
        refused.error.contains("another process works on run ") && refused.error.contains("of conversation ann"),
        "{}",
        refused.error
    );
    project.model.answers("Done.");
    assert_eq!(ended(slow).code, Some(0));
    assert_eq!(project.talk("ann", "Quick.", "Now.").len(), 5);
}

#[test]
fn a_run_that_a_killed_process_left_in_a_conversation_is_named_with_the_command_lines_that_end_it() {
    let project = Project::new();
    project.run_killed(&["run", "Wait.", "--conversation", "ann"]);
    // The answer to the request of the killed process.
    project.model.answers("lost");
    let refused = project.callboard(&["run", "Next.", "--conversation", "ann"]);
    assert_eq!(refused.code, Some(2), "{}", refused.error);
    let line = refused.error.split("callboard run --resume ").nth(1).unwrap();
    let run = line.split([';', ' ']).next().unwrap().to_owned();
    assert!(refused.error.contains(&format!("has not ended; to continue it: callboard run --resume {run}")));
    assert!(refused.error.contains(&format!("callboard runs delete {run}")), "{}", refused.error);
    let kept = project.callboard(&["conversations", "delete", "ann"]);
    let remedies =
        format!("; to continue the run: callboard run --resume {run}; to remove it: callboard runs delete {run}\n");
    assert!(kept.code == Some(2) && kept.error.ends_with(&remedies), "{}", kept.error);
    project.model.answers("Here.");
    assert_eq!(project.callboard(&["run", "--resume", &run]).out, "Here.\n");
    project.model.request();
    let seen = project.talk("ann", "Next.", "Good.");
    assert_eq!(seen, ["user: Wait.", "assistant: Here.", "user: Next."]);
}

#[test]
fn a_conversation_belongs_to_its_agent_and_is_refused_to_others() {
    let project = Project::new();
    project.talk("ann", "Good morning.", "Hello.");
    fs::write(project.folder.path().join("agents/other.toml"), "[agent]\nname = \"other\"\n").unwrap();
    assert_eq!(project.talk("ann", "Again.", "Yes.").len(), 3, "no --to is needed");
    let refused = project.callboard(&["run", "x", "--conversation", "ann", "--to", "other"]);
    assert!(
        refused.code == Some(2) && refused.error.contains("conversation ann belongs to writer"),
        "{}",
        refused.error
    );
    for wrong in [&["--ephemeral"][..], &["--conversation", ""]] {
        let arguments = [&["run", "x", "--conversation", "ann"], wrong].concat();
        assert_eq!(project.callboard(&arguments).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_placement_file_that_is_not_a_file_is_an_error_at_once() {
    let project = Project::new();
    project.talk("ann", "Good morning.", "Hello.");
    let placements = project.stores().join("conversations");
    let placement = fs::read_dir(&placements).unwrap().next().unwrap().unwrap().path();
    let makes: [(&str, &dyn Fn()); 5] = [
        ("it is not a file", &|| make_pipe(&placement)),
        ("it is not a file", &|| fs::create_dir(&placement).unwrap()),
        ("it is not a file", &|| std::os::unix::fs::symlink("/dev/zero", &placement).unwrap()),
        ("it holds no number of a store", &|| fs::write(&placement, "x").unwrap()),
        ("it holds no number of a store", &|| fs::File::create(&placement).unwrap().set_len(1 << 42).unwrap()),
    ];
    for (why, make) in makes {
        fs::remove_file(&placement).or_else(|_| fs::remove_dir(&placement)).unwrap();
        make();
        let refused = project.callboard(&["run", "Again.", "--conversation", "ann"]);
        let is_named = refused.error.contains(why) && refused.error.contains(&*placement.to_string_lossy());
        assert!(refused.code == Some(2) && is_named && refused.error.contains("remove it"), "{}", refused.error);
    }
    fs::remove_file(&placement).unwrap();
    assert_eq!(project.talk("ann", "Again.", "Yes.").len(), 3);
}

#[test]
fn a_retry_adds_its_messages_after_those_of_the_failed_run() {
    let project = Project::new();
    project.talk("ann", "Good morning.", "Hello.");
    let failed = project.callboard(&["run", "Write.", "--conversation", "ann", "--limits", r#"{"tokens": 10}"#]);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    project.model.answers("Written.");
    let again = project.callboard(&["run", "--retry", "@last", "--limits", "complex"]);
    assert_eq!((again.code, &*again.out), (Some(0), "Written.\n"), "{}", again.error);
    let before = ["user: Good morning.", "assistant: Hello."];
    assert_eq!(messages(&project.model.request()), [&before[..], &["user: Write."]].concat());
    let seen = project.talk("ann", "And now?", "Done.");
    let failed = ["user: Write.", "assistant: [There is no answer: the run failed.]"];
    let retried = ["user: Write.", "assistant: Written.", "user: And now?"];
    assert_eq!(seen, [&before[..], &failed, &retried].concat());
}

#[test]
fn runs_of_a_workflow_share_a_conversation() {
    let project = Project::new();
    let run = |words: &str, answer: &str| {
        project.model.answers(answer);
        let input = serde_json::to_string(words).unwrap();
        let run = ["workflow", "run", "--line", "writer", "--agents", "agents", "--conversation", "ann"];
        let printed = project.callboard(&[&run[..], &["--input-json", &input]].concat());
        assert_eq!((printed.code, printed.out), (Some(0), format!("{answer}\n")), "{}", printed.error);
        messages(&project.model.request())
    };
    assert_eq!(run("Good morning.", "Hello."), ["user: Good morning."]);
    assert_eq!(run("Again.", "Yes."), ["user: Good morning.", "assistant: Hello.", "user: Again."]);
    let rows = project.callboard(&["conversations", "list", "--json"]).json();
    assert_eq!((&rows[0]["owner"], &rows[0]["runs"]), (&"workflow workflow".into(), &2.into()), "{rows}");

    // An open run is named with the command line that continues it.
    let waits =
        ["workflow", "run", "--line", "writer(interrupt=\"before\")", "--agents", "agents", "--conversation", "bob"];
    assert_eq!(project.callboard(&waits).code, Some(5));
    let refused = project.callboard(&waits);
    assert_eq!(refused.code, Some(2), "{}", refused.error);
    assert!(
        refused.error.contains("of conversation bob has not ended")
            && refused.error.contains("callboard workflow resume "),
        "{}",
        refused.error
    );
    let refused = project.callboard(&["conversations", "delete", "bob"]);
    assert!(refused.code == Some(2) && refused.error.contains("callboard workflow resume "), "{}", refused.error);
    let both = project.callboard(&[&waits[..], &["--ephemeral"]].concat());
    assert_eq!(both.code, Some(2), "{}", both.error);
}

#[test]
fn a_conversation_is_forked_up_to_a_run_and_both_are_continued() {
    let project = Project::new();
    project.talk("ann", "One.", "1");
    project.talk("ann", "Two.", "2");
    let shown = project.callboard(&["conversations", "show", "ann", "--json"]).out;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let first = shown["runs"][0]["run"].as_str().unwrap();
    let fork = project.callboard(&["conversations", "fork", "ann", "other", "--until", first, "--json"]);
    let fork = fork.json();
    assert_eq!(
        (&fork["conversation"], &fork["forked_from"], &fork["runs"]),
        (&"other".into(), &"ann".into(), &1.into())
    );
    assert_eq!(fork["until"], first);
    assert_eq!(project.talk("other", "Two, another way.", "2'").len(), 3);
    assert_eq!(project.talk("ann", "Three.", "3").len(), 5, "the original has not changed");
    let whole = project.callboard(&["conversations", "fork", "ann", "whole"]);
    assert!(
        whole.code == Some(0) && whole.out.contains("conversation whole is a copy of ann: 3 runs"),
        "{}",
        whole.out
    );
    assert_eq!(project.talk("whole", "Four.", "4").len(), 7);

    for (arguments, code, why) in [
        (&["ann", "other"][..], 2, "there is a conversation other already"),
        (&["nobody", "new"], 3, "there is no conversation nobody"),
        (&["ann", "new", "--until", "0000"], 3, "there is no run \"0000\""),
    ] {
        let refused = project.callboard(&[&["conversations", "fork"], arguments].concat());
        assert!(refused.code == Some(code) && refused.error.contains(why), "{arguments:?}: {}", refused.error);
    }
    assert_eq!(project.callboard(&["conversations", "show", "new"]).code, Some(3), "nothing was written");
}

#[test]
fn a_fork_of_a_conversation_is_continued_while_another_process_continues_the_first() {
    let project = Project::new();
    project.talk("ann", "One.", "1");
    assert_eq!(project.callboard(&["conversations", "fork", "ann", "other"]).code, Some(0));
    let slow = project.command(&["run", "Wait.", "--conversation", "ann"]).spawn().unwrap();
    project.model.request();
    let begun = project.callboard(&["run", "Two.", "--conversation", "other", "--limits", r#"{"tokens": 10}"#]);
    assert!(begun.code == Some(1) && begun.error.contains("TokenBudget"), "{:?} {}", begun.code, begun.error);
    project.model.answers("2");
    assert_eq!(ended(slow).code, Some(0));
}
