//! The rules of every store, each in a schema of its own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard::testing::conformance::Subject;
use callboard_postgres::{Migration, Postgres, PostgresConfig, migrate};

mod support;

use support::Server;

fn subject() -> Subject {
    let opened: Arc<OnceLock<PostgresConfig>> = Arc::default();
    Subject::new(move |clock| {
        let opened = Arc::clone(&opened);
        async move {
            let config = match opened.get() {
                Some(config) => config.clone(),
                None => {
                    let fresh = Server::of_this_process().fresh().await;
                    opened.get_or_init(|| fresh).clone()
                }
            };
            Arc::new(Postgres::connect_with(config.clock(clock)).await.unwrap()) as _
        }
    })
}

/// A schema for the path that the suite gives to a store on disk; of the server of this process, or of the one that is about to kill it.
fn at(path: &Path) -> PostgresConfig {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let schema = &format!("crash_{:x}", hasher.finish());
    if std::env::var_os("CALLBOARD_CRASH_SCRIPT").is_some() {
        support::config_at(&Server::of_parent(), schema)
    } else {
        Server::of_this_process().config(schema)
    }
}

callboard::storage_conformance! {
    killed killed: {
        // Before the process that is to be killed looks for it.
        drop(at(Path::new("")));
        |path| async move {
            let config = at(&path);
            migrate(&config, &Migration::default()).await.unwrap();
            Arc::new(Postgres::connect_with(config).await.unwrap()) as _
        }
    }
}

callboard::storage_conformance! { shared shared: subject().watched_within(Duration::from_secs(5)) }
