//! `callboard serve` and the commands that work with runs of other processes: each process with a board answers HTTP on a private
//! socket, and the commands ask the one that works on the run.

pub(crate) mod arguments;
pub(crate) mod boards;
mod context;
mod costs;
mod decide;
pub(crate) mod email;
mod ending;
mod follow;
mod following;
mod inbox;
mod knowing;
pub(crate) mod left;
mod letters;
pub(crate) mod matrix;
mod mcp;
mod on_store;
mod own_tokens;
mod read;
pub(crate) mod schedule;
mod secret_files;
mod sending;
mod serve;
pub(crate) mod sign_in;
pub(crate) mod telegram;
mod tree;
mod turn_socket;
mod watch;
pub(crate) mod webhooks;

use std::process::ExitCode;

use serde_json::Value;

use crate::page::{self, Failure, Page, json_line};
use crate::process::{block_on, print};
use crate::stores::Common;
use crate::workflow::arguments::Start;

use arguments::{
    Answer, Approve, Cancel, Context, DeadLetters, Deny, Inbox, Mcp, Pending, Read, Retry, Send, Serve, Status, Tokens,
    Usage, WAIT, Wait, Watch,
};
use sign_in::SignIn;
use turn_socket::TurnSocket;

/// Runs `callboard serve`.
pub(crate) fn serve(arguments: Serve) -> ExitCode {
    printed(false, serve::serve(Serve { files: arguments.files.search(), ..arguments }))
}

/// Runs `callboard mcp`.
pub(crate) fn mcp(arguments: &Mcp) -> ExitCode {
    printed(false, mcp::mcp(arguments))
}

/// Runs `callboard send` in the name of the agent whose turn has started this process; `None` if none has.
pub(crate) fn send_within_turn(arguments: &Send) -> Option<ExitCode> {
    within_turn(|turn| turn.send(arguments, WAIT)).map(|page| page::print(page, arguments.delivery.json))
}

/// Runs `callboard send`.
pub(crate) fn send(arguments: &Send) -> ExitCode {
    printed(arguments.delivery.json, sending::send(arguments))
}

/// Runs `callboard workflow start`.
pub(crate) fn start(arguments: Start) -> ExitCode {
    printed(arguments.delivery.json, sending::start(arguments))
}

/// As [`send_within_turn`], of `callboard status`.
pub(crate) fn status_within_turn(arguments: &Status) -> Option<ExitCode> {
    within_turn(|turn| turn.status(arguments)).map(|page| page::print(page, arguments.json))
}

/// Runs `callboard status`.
pub(crate) fn status(arguments: &Status) -> ExitCode {
    printed(arguments.json, follow::status(arguments))
}

/// As [`send_within_turn`], of `callboard wait`.
pub(crate) fn wait_within_turn(arguments: &Wait) -> Option<ExitCode> {
    within_turn(|turn| turn.waited(arguments)).map(|page| page::print(page, arguments.json))
}

/// Runs `callboard wait`.
pub(crate) fn wait(arguments: &Wait) -> ExitCode {
    printed(arguments.json, follow::wait(arguments))
}

/// What the turn answers that has started this process; `None` if none has.
fn within_turn(ask: impl FnOnce(&TurnSocket) -> Result<Page, Failure>) -> Option<Result<Page, Failure>> {
    TurnSocket::inherited().map(|socket| socket.and_then(|socket| ask(&socket)))
}

/// Runs `callboard cancel`.
pub(crate) fn cancel(arguments: &Cancel) -> ExitCode {
    printed(arguments.json, follow::cancel(arguments))
}

/// Runs `callboard agents`.
pub(crate) fn agents(arguments: &Common) -> ExitCode {
    printed(arguments.json, sending::agents(arguments))
}

/// Runs `callboard inbox`.
pub(crate) fn inbox(arguments: &Inbox) -> ExitCode {
    printed(arguments.common.json, inbox::inbox(arguments))
}

/// Runs `callboard pending`.
pub(crate) fn pending(arguments: &Pending) -> ExitCode {
    printed(arguments.common.json, decide::pending(arguments))
}

/// Runs `callboard approve`.
pub(crate) fn approve(arguments: &Approve) -> ExitCode {
    printed(arguments.json, decide::approve(arguments))
}

/// Runs `callboard deny`.
pub(crate) fn deny(arguments: &Deny) -> ExitCode {
    printed(arguments.json, decide::deny(arguments))
}

/// Runs `callboard answer`.
pub(crate) fn answer(arguments: &Answer) -> ExitCode {
    printed(arguments.json, decide::answer(arguments))
}

/// Runs `callboard sign-in`.
pub(crate) fn sign_in(arguments: &SignIn) -> ExitCode {
    printed(arguments.common.json, sign_in::sign_in(arguments))
}

/// Runs `callboard tokens`.
pub(crate) fn tokens(command: &Tokens) -> ExitCode {
    page::print_or(own_tokens::main(command), command.json(), || own_tokens::undo(command))
}

/// Runs `callboard schedule`.
pub(crate) fn schedule(command: &schedule::Schedule) -> ExitCode {
    printed(command.common().json, schedule::main(command))
}

/// Runs `callboard watch`, which prints lines.
pub(crate) fn watch(arguments: &Watch) -> ExitCode {
    let (answer, is_json) = (block_on(watch::watch(arguments)), arguments.json);
    print(move || match answer {
        Err(failure) if is_json => {
            let exit = failure.exit();
            page::print(Ok(Page { exit, ..Page::new(format!("{}\n", json_line(&failure.json())), Value::Null) }), false)
        }
        answer => page::print(answer, false),
    })
}

/// Runs `callboard context`.
pub(crate) fn context(command: &Context) -> ExitCode {
    printed(command.common().json, context::main(command))
}

/// Runs `callboard usage`.
pub(crate) fn usage(arguments: &Usage) -> ExitCode {
    printed(arguments.json, costs::usage(arguments))
}

/// Runs `callboard read`.
pub(crate) fn read(arguments: &Read) -> ExitCode {
    printed(arguments.json, read::read(arguments))
}

/// Runs `callboard retry`.
pub(crate) fn retry(arguments: &Retry) -> ExitCode {
    printed(arguments.common.json, letters::retry(arguments))
}

/// Runs `callboard dead-letters`.
pub(crate) fn dead_letters(arguments: &DeadLetters) -> ExitCode {
    printed(arguments.common().json, letters::main(arguments))
}

/// Runs `callboard boards`.
pub(crate) fn list_boards(arguments: &Common) -> ExitCode {
    printed(arguments.json, on_store::list(arguments))
}

/// Runs `callboard tree`.
pub(crate) fn tree(arguments: &Common) -> ExitCode {
    printed(arguments.json, tree::tree(arguments))
}

fn printed(json: bool, answer: impl Future<Output = Result<Page, Failure>>) -> ExitCode {
    let page = block_on(answer);
    print(move || page::print(page, json))
}
