//! `callboard run`: a board in this process, with the agents of a folder, that works on one run.

use callboard::Builder;
use callboard::messages::visible;
use callboard::prelude::*;
use callboard::runtime::Unfinished;
use callboard_agents::BuiltIn;

use crate::page::Failure;
use crate::process::End;
use crate::quote::quoted;
use crate::signals::Signals;

use super::arguments::{Allowance, Run};
use super::kept::Kept;
use super::load::{self, Thinkers};
use super::process_log;
use super::session::Session;

pub(super) async fn run(arguments: &Run) -> Result<End, Failure> {
    check_limits(arguments)?;
    let way = arguments.way.workflow(arguments.rounds)?;
    // Before a program runs, because it may be what stops this process.
    let mut signals = Signals::new()?;
    // Before the tools are made, which must not see it.
    let kept = if arguments.ephemeral { None } else { Some(Kept::open(arguments).await?) };
    // What is printed of a run that has ended needs no agents.
    if let Some(kept) = &kept
        && arguments.resume.is_some()
        && let Some(result) = kept.result(arguments).await
    {
        return Ok(End::Result(Box::new(result)));
    }
    let (named, hidden) = (arguments.model.as_deref(), kept.as_ref().map(|kept| kept.stores.folder()));
    let loaded = tokio::select! {
        biased;
        () = signals.next() => return Ok(End::not_begun()),
        loaded = load::load(&arguments.files, hidden, named, &[]) => loaded?,
    };
    let Thinkers { specs, watch, own, names, broken } = loaded;
    let wanted = arguments.to.iter().chain(arguments.way.members());
    wanted.filter(|wanted| !names.contains(&***wanted)).try_for_each(|wanted| broken.check(wanted))?;
    // What else is unfinished in the store is left to whoever began it.
    let builder = Callboard::builder().on_unfinished(Unfinished::Leave);
    let mut builder = specs.into_iter().fold(builder, Builder::with);
    if arguments.limits == Some(Allowance::Judged) {
        builder = builder.classifier_agent(BuiltIn::Complexity.name());
    }
    if !arguments.quiet {
        process_log::show();
    }
    let session = Session::start(builder, kept, arguments, (own, broken)).await?;
    session.see_through(signals, way, watch).await
}

/// Limits are given to a run when it begins.
fn check_limits(arguments: &Run) -> Result<(), Failure> {
    let refused = match arguments {
        Run { limits: Some(_), resume: Some(run), .. } => format!(
            "a run keeps the limits that it began with: leave --limits out to resume it; once it has failed, callboard run --retry {} \
             --limits … continues it in a new run",
            visible(&quoted(run))
        ),
        Run { limits: Some(Allowance::Judged), retry: Some(_), .. } => {
            "--limits auto is for a task that begins: with --retry name simple, medium or complex, or figures"
                .to_owned()
        }
        Run { .. } => return Ok(()),
    };
    Err(Failure::trouble(refused))
}
