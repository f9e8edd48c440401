//! `callboard`: runs agents that are declared in files, with language models; checks workflows and runs them, with other programs
//! as their agents; and looks into the runs of a store, replays, compares and forks them.

mod agents;
mod arguments;
mod comparing;
mod conversations;
mod copying;
mod deleting;
mod doubles;
mod forking;
mod homes;
mod limiting;
mod listing;
mod moved;
mod moving;
mod opened;
mod orphans;
mod page;
mod person;
mod quoting;
mod replaying;
mod retrying;
mod saying;
mod scratch;
mod shapes;
mod showing;
mod stable;
mod stops;
mod store;
mod stores;
mod unmade;
mod usage;
mod values;
mod waiting;
mod whole;
mod workflow;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Common, Conversations, Runs};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::refuse(error),
    };
    match arguments {
        Arguments::Init(init) => agents::init(&init),
        Arguments::Check(check) => agents::check(&check),
        Arguments::Run(run) => by_itself(|| agents::run(&run)),
        Arguments::Runs { command } if command.changes_runs() => {
            by_itself(|| look(answer(&command), command.common().json))
        }
        Arguments::Runs { command } => look(answer(&command), command.common().json),
        Arguments::Conversations { command } if command.changes_them() => by_itself(|| talk(&command)),
        Arguments::Conversations { command } => talk(&command),
        Arguments::Workflow { command } if command.begins_runs() => by_itself(|| workflow::main(command)),
        Arguments::Workflow { command } => workflow::main(command),
    }
}

/// The variables that tools and programs of agents are started with.
const WITHIN_A_TURN: [&str; 3] = ["CALLBOARD_PROCESS", "CALLBOARD_AGENT", "CALLBOARD_RUN"];

/// Begins or changes runs unless a turn of another run has started this program: what it begins would have limits, a chain and a
/// budget of its own, in place of those that the turn has to keep to (SEMANTICS 1).
fn by_itself(begin: impl FnOnce() -> ExitCode) -> ExitCode {
    let is_set = WITHIN_A_TURN.into_iter().find(|name| std::env::var_os(name).is_some());
    let within = is_set
        .map(|name| format!("{name} is set"))
        .or_else(|| is_marked().then(|| "its limit of resident memory is one that programs of agents have".to_owned()));
    let Some(within) = within else { return begin() };
    let told = format!(
        "this process was started by an agent ({within}), and what it begins or changes would not count against the limits \
         of the agent's run: have the agent delegate the task, or call the program outside of any agent"
    );
    page::print(Err(page::Failure::trouble(told)), usage::wants_json())
}

/// Whether it was started so, whatever its environment is.
fn is_marked() -> bool {
    #[cfg(target_os = "linux")]
    return callboard::agents::is_program_of_board();
    #[cfg(not(target_os = "linux"))]
    false
}

fn talk(command: &Conversations) -> ExitCode {
    look(answer_about_conversations(command), command.common().json)
}

fn look(answer: impl Future<Output = Result<page::Page, page::Failure>>, is_json: bool) -> ExitCode {
    let answer = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| page::Failure::trouble(format!("the runtime cannot be started: {error}")))
        .and_then(|runtime| runtime.block_on(answer));
    page::print(answer, is_json)
}

async fn answer(command: &Runs) -> Result<page::Page, page::Failure> {
    let stores = command.common().choice.stores()?;
    match command {
        Runs::List { filter, .. } => {
            let mut page = listing::list(&stores.open()?, filter).await?;
            page.remarks.extend(stores.hint().map(|hint| format!("{hint}\n")));
            Ok(page)
        }
        Runs::Show { run, .. } => showing::show(&stores.load(run).await?),
        Runs::Diff { first, second, .. } => {
            let open = stores.open()?;
            Ok(comparing::diff(&open.load(first).await?, &open.load(second).await?))
        }
        Runs::Fork { run, turn, input, set, .. } => {
            let (store, run) = stores.take_with(run).await?;
            let loaded = store.load(run).await?;
            forking::fork(&store, &loaded, *turn, input.as_ref(), set, stores.named()).await
        }
        Runs::Export { file: None, common: Common { json: true, .. } } => Err(page::Failure::trouble(
            "without a FILE the export itself goes to standard output: leave --json out, or name a FILE".to_owned(),
        )),
        Runs::Export { file, .. } => moving::export(&stores, file.as_deref()).await,
        Runs::Import { file, again, .. } => moving::import(&stores, file, *again).await,
        Runs::Prune { filter, .. } => deleting::prune(&stores, filter).await,
        Runs::Delete { runs, .. } => deleting::delete(&stores, runs).await,
        Runs::Replay { run, turn, step, .. } => {
            let loaded = stores.load(run).await?;
            match turn {
                Some(turn) => replaying::at_turn(&loaded, *turn),
                None if *step => replaying::step_by_step(&loaded),
                None => Ok(replaying::whole(&loaded)),
            }
        }
    }
}

async fn answer_about_conversations(command: &Conversations) -> Result<page::Page, page::Failure> {
    let stores = command.common().choice.stores()?;
    match command {
        Conversations::List { .. } => conversations::list(&stores.open()?).await,
        Conversations::Show { conversation, .. } => conversations::show(&stores.open()?, conversation).await,
        Conversations::Delete { conversations: wanted, .. } => conversations::delete(&stores, wanted).await,
        Conversations::Fork { conversation, copy, until, .. } => {
            conversations::fork(&stores, conversation, copy, until.as_deref()).await
        }
    }
}
