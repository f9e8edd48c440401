//! The rules of every store, each in a schema of its own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

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

macro_rules! rules {
    ($($rule:ident)*) => { $(#[test] fn $rule() { subject().check(stringify!($rule)); })* };
}

rules! {
    appends_count_from_one
    an_append_that_expects_another_sequence_is_refused_and_writes_nothing
    of_concurrent_appends_exactly_one_wins
    reads_start_where_asked_and_stop_at_the_limit
    streams_are_listed_by_prefix_in_order
    a_stream_does_not_show_records_of_streams_with_similar_names
    payloads_return_byte_for_byte
    purged_records_are_gone_and_sequences_continue
    a_stream_without_records_or_claim_is_forgotten
    what_is_too_large_is_refused
    a_put_is_read_back_with_its_revision
    revisions_grow_across_keys
    a_put_that_expects_another_revision_is_refused
    of_concurrent_puts_exactly_one_wins
    a_delete_needs_the_current_revision
    expired_values_are_absent
    a_new_value_replaces_the_expiry
    scans_page_through_a_prefix_in_order
    watches_report_changes_under_their_prefix
    a_slow_watch_learns_how_much_it_missed
    a_claim_shuts_out_older_fences
    a_live_claim_is_held
    the_holder_may_claim_again
    a_claim_that_ran_out_can_be_taken
    a_renewed_claim_lasts_longer
    a_claim_that_ran_out_can_be_renewed_until_another_owner_takes_it
    a_released_stream_is_free_and_keeps_its_fence
    a_claim_keeps_an_emptied_stream
    a_claim_that_ran_out_keeps_an_emptied_stream
    fences_never_come_twice
    synced_records_are_there_after_reopening
    synced_values_are_there_after_reopening
    every_write_of_a_closed_store_is_there_after_reopening
    sequences_and_revisions_continue_after_reopening
    purges_hold_after_reopening
    expiry_holds_after_reopening
}
