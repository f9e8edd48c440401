//! Command lines that are printed so that a person can continue a run.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use callboard::messages::{AgentName, RunEvent, Submission, visible, visible_lines};
use callboard::supervision::runs::Run as Fold;
use callboard_agents::ModelChoice;

use crate::command_line::{agents_options, command_line, limits_option};
use crate::quote::{quoted, quoted_path};
use crate::run_names::short;

use super::arguments::{Files, Run};
use super::built_in::{FAKE, model};
use super::invalid::InvalidAgents;
use super::patterns::is_of_workflow;
use super::read;

/// The command line that continues a run, with the same agents, models and tools, in the same place.
pub(super) fn resumption(run: impl Display, store: Option<&Path>, arguments: &Run) -> String {
    continuation(&format!("--resume {run}"), store, arguments)
}

/// The command line that retries a run, with these limits if they differ from the earlier ones.
pub(super) fn retrial(run: impl Display, limits: Option<&str>, store: Option<&Path>, arguments: &Run) -> String {
    continuation(&format!("--retry {run}{}", limits_option(limits)), store, arguments)
}

/// The command line that retries the run that the person named, with limits that the person has to choose.
pub(super) fn retrial_with_limits(run: &str, store: Option<&Path>, arguments: &Run) -> String {
    continuation(&format!("--retry {} --limits …", quoted(run)), store, arguments)
}

fn continuation(how: &str, store: Option<&Path>, arguments: &Run) -> String {
    command_line(&format!("run {how}"), store) + &agents_options(&arguments.files, arguments.model.as_deref())
}

/// The command line that continues a run that no process works on, with the agents of this project. `history` is its events.
pub(crate) fn resumption_of_left(run: &Fold, history: &[RunEvent], store: Option<&Path>) -> String {
    of_left("resume", "", (run, history), store)
}

/// The command line that retries a run that has not finished, with the agents of this project, and with these limits if they differ from
/// the earlier ones.
pub(crate) fn retrial_of_left(run: &Fold, history: &[RunEvent], limits: Option<&str>, store: Option<&Path>) -> String {
    of_left("retry", &limits_option(limits), (run, history), store)
}

fn of_left(verb: &str, limits: &str, (run, history): (&Fold, &[RunEvent]), store: Option<&Path>) -> String {
    let (submission, files) = (run.submission(), Files::of_project());
    let (id, model) = (short(submission.run), needed_model(run, history, &files));
    if is_of_workflow(submission) {
        return of_workflow(&format!("{verb} {id}{limits}"), submission, store, (&files, model.as_deref())).text;
    }
    command_line(&format!("run --{verb} {id}{limits}"), store) + &agents_options(&files, model.as_deref())
}

/// The model that has to be named to continue a run: the one that has answered in it last, if an agent of an open turn has none, and `fake`
/// always, so that no other is asked instead. MODEL stands for one that is not known.
fn needed_model(run: &Fold, history: &[RunEvent], files: &Files) -> Option<String> {
    let answered = history.iter().rev().find_map(|event| match event {
        RunEvent::Settled { model, .. } => model.as_deref(),
        _ => None,
    });
    if answered == Some(FAKE) {
        return Some(FAKE.to_owned());
    }
    let Ok(Ok(models)) = read::models(files) else { return None };
    let at_work: BTreeSet<&str> =
        run.open_turns().filter_map(|turn| run.agent_of(turn)).map(AgentName::as_str).collect();
    let definitions = read::definitions_of(files);
    let mut asking = definitions.iter().filter(|definition| definition.process.is_none());
    let lacks_one = asking.any(|agent| at_work.contains(agent.name.as_str()) && model(&models, agent, None).is_err());
    let known = answered.filter(|name| models.candidates(&ModelChoice::of(name)).is_ok());
    lacks_one.then(|| known.unwrap_or("MODEL").to_owned())
}

/// The command line that prints all defects of the agents.
pub(super) fn check(files: &Files) -> String {
    command_line("check", None) + &agents_options(files, None)
}

/// The command line of `callboard workflow` that resumes a run of a workflow.
pub(super) fn workflow_resumption(
    submission: &Submission,
    run: impl Display,
    store: Option<&Path>,
    arguments: &Run,
) -> WorkflowLine {
    of_workflow(&format!("resume {run}"), submission, store, (&arguments.files, arguments.model.as_deref()))
}

/// The command line of `callboard workflow` that retries a run of a workflow, with these limits if they differ from the earlier ones.
pub(super) fn workflow_retrial(
    submission: &Submission,
    run: impl Display,
    limits: Option<&str>,
    (store, arguments): (Option<&Path>, &Run),
) -> WorkflowLine {
    let how = format!("retry {run}{}", limits_option(limits));
    of_workflow(&how, submission, store, (&arguments.files, arguments.model.as_deref()))
}

/// A command line of `callboard workflow`.
pub(super) struct WorkflowLine {
    pub(super) text: String,
    /// Whether it has COMMAND in the place of a program: agents that have no file are programs, whose command lines are not known.
    pub(super) lacks_programs: bool,
}

fn of_workflow(
    how: &str,
    submission: &Submission,
    store: Option<&Path>,
    (files, model): (&Files, Option<&str>),
) -> WorkflowLine {
    let known = read::names(files);
    let cast: BTreeSet<&str> = submission.cast.iter().map(AgentName::as_str).collect();
    let (in_files, programs): (Vec<&str>, Vec<&str>) = cast.into_iter().partition(|agent| known.contains(*agent));
    let mut text = command_line(&format!("workflow {how}"), store);
    for program in &programs {
        // In quotes: the program may have arguments.
        text.push_str(&format!(" --agent {}='COMMAND'", quoted(program)));
    }
    if !in_files.is_empty() {
        if files.agents.is_none() {
            // `callboard workflow` searches for no folder.
            text.push_str(&format!(" --agents {}", quoted_path(files.folder())));
        }
        text.push_str(&agents_options(files, model));
    }
    WorkflowLine { text, lacks_programs: !programs.is_empty() }
}

/// The line about a turn that needs attention, with what to do on the command line.
pub(super) fn needs_attention(turn: u32, why: &str, invalid: &InvalidAgents) -> String {
    let unregistered = why.split_once(" is not registered;");
    let name = unregistered.and_then(|(agent, _)| agent.strip_prefix("agent "));
    if let Some(why) = name.and_then(|name| invalid.why(name)) {
        return format!("turn {turn} cannot continue: {why}\n\ncorrect the file, and continue with --resume");
    }
    match unregistered {
        Some((agent, _)) => format!(
            "turn {turn} cannot continue: {} has no file in the folder of the agents; add it there, or name its folder with --agents, \
             and continue with --resume",
            visible(agent)
        ),
        None => format!("turn {turn} needs attention: {}", visible_lines(why).replace('\n', "\n  │ ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use clap::Parser as _;

    use crate::arguments::Arguments;
    use crate::stores::database::Given;

    use super::*;

    fn hint(arguments: &[&str]) -> String {
        let Arguments::Run(run) = Arguments::parse_from([&["callboard", "run", "x"], arguments].concat()) else {
            panic!("it is a run")
        };
        resumption("req-0123456789ab", run.choice.store.as_ref().map(Given::shown).as_deref(), &run)
    }

    #[test]
    fn a_missing_agent_is_reported_with_its_folder() {
        let why = "agent coder is not registered; register it and restart the turn, or cancel the run";
        let line = needs_attention(2, why, &InvalidAgents::default());
        assert!(
            line.starts_with("turn 2 cannot continue: agent coder has no file in the folder of the agents;"),
            "{line}"
        );
        assert_eq!(
            needs_attention(2, "it asks \u{1b}[2J other things", &InvalidAgents::default()),
            "turn 2 needs attention: it asks \\u{1b}[2J other things"
        );
    }

    #[test]
    fn the_command_line_continues_a_run_with_the_same_agents_and_folders() {
        let begin = "callboard run --resume req-0123456789ab --store";
        assert_eq!(hint(&[]), "callboard run --resume req-0123456789ab");
        let named = hint(&["--store", "data", "--agents", "agents", "--root", "."]);
        assert_eq!(named, format!("{begin} data --agents agents"));
        let all = [
            "--store=../my data",
            "--agents=ag's",
            "--models=m.toml",
            "--mcp=s.toml",
            "--root=su b",
            "--allow-read=/opt/rust",
            "--allow-read=~/.pyenv",
            "--model=big",
        ];
        let flags = r"--agents 'ag'\''s' --models m.toml --mcp s.toml --root 'su b' --allow-read /opt/rust --allow-read '~/.pyenv' --model big";
        assert_eq!(hint(&all), format!("{begin} '../my data' {flags}"));
    }
}
