//! One session: opens the store, starts the board, has the tree reviewed, and prints the result.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use callboard::Callboard;
use callboard::actors::approvals::{Channel, Decider, TerminalChannel};
use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{Decision, Envelope, Json, Outcome, RunEvent, RunResult, Task, Timestamp};
use callboard::runtime::{RunHandle, Unfinished};
use callboard::storage::{Journal, Sled, Storage};
use futures::StreamExt;

use crate::escaping::visible;
use crate::faults::Faults;
use crate::options::{Options, tree_name};
use crate::progress::{self, Cast, seconds};
use crate::reporting::counted;
use crate::team::{self, Assignment, Conclusion, TEAM};

/// The review did not finish, or wrote no report.
const UNFINISHED: u8 = 1;

/// Reviews a tree.
///
/// # Errors
/// What kept it from starting or from being followed to its end.
pub(crate) async fn review(options: Options) -> Result<ExitCode, Box<dyn Error>> {
    let env = Env::system();
    let began = env.now().wall;
    let store: Arc<dyn Storage> = Arc::new(Sled::open(&options.data)?);
    introduce(&options);
    let on_unfinished = if options.resume { Unfinished::Resume } else { Unfinished::Cancel };
    if !options.resume {
        tell_of_unfinished(&store).await?;
    }
    let faults = Arc::new(Faults::new(options.crash.clone(), options.kill_at.clone()));
    let mut builder = Callboard::builder().storage(store).env(env.clone()).on_unfinished(on_unfinished);
    for member in team::members(&faults, &env) {
        builder = builder.with(member);
    }
    let builder =
        if options.yes { builder.channel(Yes) } else { builder.channel(TerminalChannel::new().deny_at_end()) };
    let board = builder.start().await?;
    let run = match unfinished(&board, &options).await? {
        Some(run) => run,
        None => board.submit(task(&options)?).await?,
    };
    follow(&run, began).await?;
    let result = run.result().await?;
    let code = conclude(&board, &run, &result).await?;
    board.shutdown().await;
    Ok(code)
}

fn introduce(options: &Options) {
    let limits = team::limits();
    eprintln!("Review of {}", visible(&options.root.to_string_lossy()));
    eprintln!("  team    {}", TEAM.join(", "));
    eprintln!(
        "  limits  {} handoffs and delegations, {} agents, delegations {} deep",
        limits.handoffs, limits.agents, limits.depth
    );
    let consent = if options.yes { "written without asking" } else { "you are asked before it is written" };
    eprintln!("  report  {} ({consent})", visible(&options.output.to_string_lossy()));
    eprintln!("  state   {} (findings and journal; delete it to forget)\n", visible(&options.data.to_string_lossy()));
}

fn task(options: &Options) -> Result<Task, serde_json::Error> {
    let (root, output) = (options.root.clone(), options.output.clone());
    let assignment = Assignment { tree: tree_name(&root), root, output };
    Ok(Task::new("Review a source tree").to("scout").input(Json::of(assignment)?).limits(team::limits()))
}

/// Says that interrupted reviews are given up: the board cancels them when it starts.
async fn tell_of_unfinished(store: &Arc<dyn Storage>) -> Result<(), Box<dyn Error>> {
    if !Journal::new(Arc::clone(store)).open_runs().await?.is_empty() {
        eprintln!("An interrupted review is given up; --resume would have gone on with it.\n");
    }
    Ok(())
}

/// The review to go on with, if that is wanted and there is one.
async fn unfinished(board: &Callboard, options: &Options) -> Result<Option<RunHandle>, Box<dyn Error>> {
    if !options.resume {
        return Ok(None);
    }
    for run in board.unfinished_runs().await? {
        let state = run.read().await?;
        let assignment: Assignment = state.submission().task.input.clone().unwrap_or_default().parse()?;
        if state.result().is_some() {
            continue;
        }
        if assignment.root != options.root {
            let root = visible(&assignment.root.to_string_lossy());
            return Err(format!("this folder holds an interrupted review of {root}; resume that one first").into());
        }
        // The board has found the run when it started, and may be further on by now.
        let mut history = run.history().await?;
        let found = history.iter().rposition(|event| matches!(event, RunEvent::Recovered { .. }));
        history.truncate(found.unwrap_or(history.len()));
        let ended = history.iter().filter(|event| matches!(event, RunEvent::TurnEnded { .. })).count();
        let steps = history.iter().filter(|event| matches!(event, RunEvent::StepFinished { .. })).count();
        eprintln!("Resuming the review of {}:", shown(state.submission().at));
        eprintln!(
            "  {} and {} were done; it continues with {}\n",
            counted(ended, "turn", "turns"),
            counted(steps, "step", "steps"),
            progress::at_work(&history).join(", ")
        );
        return Ok(Some(run));
    }
    eprintln!("There is nothing to resume: no review of this tree was interrupted. A new one begins.\n");
    Ok(None)
}

/// Tells what happens until the run has ended.
async fn follow(run: &RunHandle, began: Timestamp) -> Result<(), Box<dyn Error>> {
    let mut events = run.events(1, &[StreamMode::Debug]).await?;
    let mut cast = Cast::default();
    while let Some(watched) = events.next().await {
        let event = match watched {
            Watched::Event { event, .. } => event,
            Watched::Live { .. } => continue,
            Watched::Missed(count) => {
                eprintln!("          … {count} events were missed");
                continue;
            }
        };
        cast.follow(&event);
        if let Some((turn, at, text)) = progress::news(&event).filter(|(_, at, _)| *at >= began) {
            eprintln!("{:>8}  {:<9} {text}", seconds(at.since(began)), cast.agent(turn));
        }
        if let RunEvent::NeedsAttention { why, .. } = &*event {
            run.cancel(&format!("it cannot go on by itself: {why}")).await?;
        }
    }
    Ok(())
}

/// Tells what came of it: the summary and the flow on standard output, what went wrong on standard error.
async fn conclude(board: &Callboard, run: &RunHandle, result: &RunResult) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = String::new();
    let conclusion: Option<Conclusion> = result.output.parse().ok();
    let (is_written, reported) = match (&result.outcome, conclusion) {
        (Outcome::Finished, Some(Conclusion::Written { path, summary })) => {
            (true, format!("{summary}\nReport: {}\n", visible(&path.to_string_lossy())))
        }
        (Outcome::Finished, Some(Conclusion::NoSources { skipped })) => {
            let skipped = counted(skipped, "file was skipped", "files were skipped");
            eprintln!("review: no Rust, Python or JavaScript sources are there ({skipped}); name another folder");
            return Ok(ExitCode::from(2));
        }
        (Outcome::Denied { reason }, _) => (false, format!("No report was written: {reason}\n")),
        (outcome, _) => (false, format!("No report was written: the review {outcome}\n")),
    };
    writeln!(out, "\n{reported}\nFlow\n{}", run.flow().await?)?;
    let (metrics, limits) = (&result.metrics, team::limits());
    writeln!(out, "Run {}", run.id())?;
    writeln!(
        out,
        "  {} in {}, {} of {} handoffs and delegations, {} of {} agents, {}, {}",
        counted(metrics.turns as usize, "turn", "turns"),
        seconds(metrics.elapsed),
        metrics.handoffs,
        limits.handoffs,
        metrics.agents,
        limits.agents,
        counted(metrics.retries as usize, "repeated attempt", "repeated attempts"),
        counted(metrics.tokens_spent as usize, "token", "tokens"),
    )?;
    for agent in board.tree().await?.find(&["agents"]).into_iter().flat_map(|agents| &agents.children) {
        if agent.restarts > 0 {
            let (name, error) = (&agent.name, agent.last_error.as_deref().unwrap_or("no reason given"));
            let (restarts, generation) = (counted(agent.restarts as usize, "restart", "restarts"), agent.generation);
            writeln!(
                out,
                "  {name} crashed ({error}) and is {} after {restarts}, generation {generation}",
                agent.state
            )?;
        }
    }
    io::stdout().write_all(out.as_bytes())?;
    Ok(if is_written { ExitCode::SUCCESS } else { ExitCode::from(UNFINISHED) })
}

fn shown(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} {} UTC", &text[..10], &text[11..19])
}

/// Says yes to everything: the person has, on the command line.
#[derive(Debug)]
struct Yes;

impl Channel for Yes {
    fn name(&self) -> &'static str {
        "--yes"
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        let (id, decider) = (envelope.id(), decider.clone());
        tokio::spawn(async move {
            // Somebody else may have decided meanwhile.
            let _ = decider.approve(id, "--yes").await;
        });
    }

    fn settled(&self, _: &Envelope, _: Option<&Decision>) {}
}
