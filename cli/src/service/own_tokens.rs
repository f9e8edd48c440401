//! `callboard tokens`: who may use the server.

use serde_json::json;

use callboard::env::Env;
use callboard::messages::{Cost, PerDay, PerRun, visible};
use callboard_private::FolderError;
use callboard_server::{Scope as Allowed, Token, TokenError, TokenSpec, Tokens as Kept};

use crate::exit::Exit;
use crate::page::{Failure, Page, grouped, lines_of, table, time};
use crate::stores::Stores;

use super::arguments::{Scope, Tokens};

/// The tokens of these stores.
pub(super) fn open(stores: &Stores) -> Result<Kept, Failure> {
    Kept::open(&stores.of_server("tokens.json"), Env::system()).map_err(failure)
}

pub(super) fn failure(error: TokenError) -> Failure {
    let exit = match error {
        TokenError::Name(_) | TokenError::Reserved | TokenError::Exists(_) | TokenError::Used(_) => Exit::Usage,
        TokenError::Folder(FolderError::Io { ref error, .. }) => Exit::of_file(error),
        TokenError::Folder(_) => Exit::Denied,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

pub(super) fn main(command: &Tokens) -> Result<Page, Failure> {
    match command {
        Tokens::List { choice, .. } => list(&open(&choice.stores()?)?),
        Tokens::Add {
            name,
            scope,
            lifetime,
            owner,
            namespace,
            requests_a_minute,
            tokens_per_day,
            cost_per_day,
            tokens_per_run,
            cost_per_run,
            agents,
            choice,
            ..
        } => {
            let scopes = if scope.is_empty() { vec![Allowed::Read, Allowed::Delegate] } else { allowed(scope) };
            let per_day = PerDay { tokens: *tokens_per_day, cost: *cost_per_day };
            let per_run = PerRun { tokens: *tokens_per_run, cost: *cost_per_run, agents: *agents };
            let mut spec = TokenSpec::new(name, scopes).per_day(per_day).per_run(per_run);
            spec = spec.namespaces(namespace.iter().map(String::as_str));
            if let Some(lifetime) = lifetime {
                spec = spec.lifetime(*lifetime);
            }
            if let Some(owner) = owner {
                spec = spec.owner(owner);
            }
            if let Some(requests) = requests_a_minute {
                spec = spec.requests_a_minute(*requests);
            }
            let secret = open(&choice.stores()?)?.add(spec).map_err(failure)?;
            Ok(Page::new(format!("{secret}\n"), json!({ "name": name, "token": secret })))
        }
        Tokens::Revoke { name, choice, .. } => {
            if open(&choice.stores()?)?.revoke(name).map_err(failure)? {
                let next = if name == "owner" { "; the next start of `callboard serve` makes another one" } else { "" };
                Ok(Page::new(format!("the token {name} is revoked{next}\n"), json!({ "revoked": name })))
            } else {
                Err(Failure::not_found(format!("there is no token {name:?}")))
            }
        }
    }
}

/// Revokes the token whose secret could not be printed.
pub(super) fn undo(command: &Tokens) -> String {
    match command {
        Tokens::Add { name, choice, .. } => {
            let revoked = choice.stores().and_then(|stores| open(&stores)?.revoke(name).map_err(failure));
            match revoked {
                Ok(_) => format!("the token {name} is revoked again, and no other one gets its name"),
                Err(error) => format!("the token {name} is there, and its secret is lost: {}", error.text()),
            }
        }
        Tokens::Revoke { name, .. } => format!("the token {name} is revoked"),
        Tokens::List { .. } => "nothing was changed".to_owned(),
    }
}

fn allowed(scopes: &[Scope]) -> Vec<Allowed> {
    let allowed = |scope: &Scope| match scope {
        Scope::Read => Allowed::Read,
        Scope::Delegate => Allowed::Delegate,
        Scope::Approve => Allowed::Approve,
        Scope::Admin => Allowed::Admin,
        Scope::KnowledgeRead => Allowed::KnowledgeRead,
        Scope::KnowledgeWrite => Allowed::KnowledgeWrite,
    };
    scopes.iter().map(allowed).collect()
}

/// What a token is limited to, each limit in words.
fn limits_of(token: &Token) -> Vec<String> {
    let Token { namespaces, requests_a_minute, per_day, per_run, .. } = token;
    let requests = requests_a_minute.map(|requests| format!("{} requests a minute", grouped(requests.into())));
    let tokens = per_day.tokens.map(|tokens| format!("{} tokens a day", grouped(tokens)));
    let cost = per_day.cost.map(|cost| format!("{cost} a day"));
    let namespaces = (!namespaces.is_empty()).then(|| {
        format!("namespaces {}", visible(&namespaces.iter().map(String::as_str).collect::<Vec<_>>().join(" ")))
    });
    let of_run = [
        per_run.tokens.map(|tokens| format!("{} tokens a run", grouped(tokens))),
        per_run.cost.map(|cost| format!("{cost} a run")),
        per_run.agents.map(|agents| format!("{agents} {} a run", if agents == 1 { "agent" } else { "agents" })),
    ];
    [requests, tokens, cost].into_iter().chain(of_run).chain([namespaces]).flatten().collect()
}

fn list(tokens: &Kept) -> Result<Page, Failure> {
    let mut drawn = table(["token", "owner", "scopes", "created", "expires", "limits"], &[]);
    let mut rows = Vec::new();
    for token in tokens.list().map_err(failure)? {
        let scopes: Vec<String> = token.scopes.iter().map(ToString::to_string).collect();
        let expires = token.expires_at.map_or_else(|| "never".to_owned(), time);
        let owner = token.owner.as_deref().map(visible).unwrap_or_default();
        drawn.add_row([
            token.name.clone(),
            owner,
            scopes.join(", "),
            time(token.created_at),
            expires,
            limits_of(&token).join(", "),
        ]);
        rows.push(json!({
            "name": token.name,
            "scopes": scopes,
            "created_at": callboard_server::json::time(token.created_at),
            "expires_at": token.expires_at.map(callboard_server::json::time),
            "owner": token.owner,
            "namespaces": token.namespaces,
            "requests_a_minute": token.requests_a_minute,
            "tokens_per_day": token.per_day.tokens,
            "cost_per_day": token.per_day.cost.map(Cost::decimal),
            "tokens_per_run": token.per_run.tokens,
            "cost_per_run": token.per_run.cost.map(Cost::decimal),
            "agents": token.per_run.agents,
        }));
    }
    let text = if rows.is_empty() { "there are no tokens\n".to_owned() } else { lines_of(&drawn) };
    Ok(Page::new(text, json!({ "tokens": rows })))
}
