//! `callboard run`: a board in this process, with the agents of a folder, that works on one run.

use callboard::Builder;
use callboard::messages::visible;
use callboard::prelude::*;
use callboard::runtime::Unfinished;
use callboard_agents::BuiltIn;

use crate::config;
use crate::knowledge::base;
use crate::page::{Failure, note};
use crate::process::End;
use crate::signals::Signals;
use crate::stores::Stores;

use super::arguments::{Allowance, Run};
use super::hints;
use super::kept::Kept;
use super::load::{self, LoadedAgents};
use super::process_log;
use super::session::Session;

/// Runs a task, or resumes or retries a run, until it ends or waits for a person.
pub(super) async fn run(arguments: &Run) -> Result<End, Failure> {
    check_limits(arguments)?;
    let workflow = arguments.pattern.workflow(arguments.rounds)?;
    // Installed before a program runs, because a program may send the signal.
    let mut signals = Signals::new()?;
    // Opened before the tools are made, because they need to know which folder they may not access.
    let kept = if arguments.ephemeral { None } else { Some(Kept::open(arguments).await?) };
    // Printing the result of a run that has ended needs no agents.
    if let Some(kept) = &kept
        && arguments.resume.is_some()
        && let Some(result) = kept.result(arguments).await
    {
        return Ok(End::Result(Box::new(result)));
    }
    if let Some(remark) = load::remark(&arguments.files)?.filter(|_| !arguments.quiet) {
        note(&remark);
    }
    let config = config::read(&arguments.files)??;
    kept.iter().try_for_each(|kept| kept.stores.make_folder_beside())?;
    let (named, hidden) = (arguments.model.as_deref(), kept.as_ref().map(|kept| kept.stores.folder()));
    let facts = kept.as_ref().map(|kept| base::open_if_there(&kept.stores)).transpose()?.flatten();
    let loaded = tokio::select! {
        biased;
        () = signals.next() => {
            note("stopped before the run began");
            return Ok(End::not_begun());
        }
        loaded = load::load(&arguments.files, hidden, facts.as_ref(), named, &[]) => loaded?,
    };
    let LoadedAgents { specs, watch, own, names, invalid, unpriced, models, .. } = loaded;
    config.check_prices(&unpriced)?;
    check_prices(arguments, &unpriced)?;
    let wanted = arguments.to.iter().chain(arguments.pattern.participants());
    wanted.filter(|wanted| !names.contains(&***wanted)).try_for_each(|wanted| invalid.check(wanted))?;
    // Other unfinished runs of the store are left to the processes that started them.
    // A model that speaks faster than the terminal is written would lose words of its progress.
    let builder = Callboard::builder().on_unfinished(Unfinished::Leave).capacity(|it| it.watch_buffer(8_192));
    let mut builder = specs.into_iter().fold(builder, Builder::with).day_limits(|days| config.limits.of_days(days));
    builder = builder.run_limits(move |_| config.limits.per_run);
    if arguments.limits == Some(Allowance::Judged) {
        builder = builder.classifier_agent(BuiltIn::Complexity.name());
    }
    if !arguments.quiet {
        process_log::show();
    }
    let session = Session::start(builder, kept, arguments, (own, invalid, models)).await?;
    session.see_through(signals, workflow, watch).await
}

/// Refuses a limit of money for agents whose models have no known price: each call would be refused.
fn check_prices(arguments: &Run, unpriced: &[(String, String)]) -> Result<(), Failure> {
    let limits = match &arguments.limits {
        Some(Allowance::Named(choice)) => choice.of_new_run(),
        Some(Allowance::Judged) | None => return Ok(()),
    };
    let Some((agent, model)) = limits.cost.and(unpriced.first()) else { return Ok(()) };
    Err(Failure::usage(visible(&format!(
        "--limits has a cost, and the price of the model {model} of agent {agent} is not known: give it `prices` in models.toml, or \
         leave the cost out"
    ))))
}

/// Refuses limits for a run that is resumed: a run gets its limits when it begins.
fn check_limits(arguments: &Run) -> Result<(), Failure> {
    let refused = match arguments {
        Run { limits: Some(_), resume: Some(run), .. } => format!(
            "the limits of a run cannot be changed: leave --limits out to resume it; once it has failed, this continues it in a new run: {}",
            visible(&hints::retrial_with_limits(
                run,
                arguments.choice.stores().ok().as_ref().and_then(Stores::named),
                arguments
            ))
        ),
        Run { limits: Some(Allowance::Judged), retry: Some(_), .. } => {
            "--limits auto is for a new task: with --retry name simple, medium or complex, or single limits".to_owned()
        }
        Run { .. } => return Ok(()),
    };
    Err(Failure::usage(refused))
}
