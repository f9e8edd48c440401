//! What every [`Storage`](crate::storage::Storage) has to keep, one rule per test.
//!
//! [`storage_conformance!`](crate::storage_conformance) makes a module of tests out of a backend:
//!
//! ```
//! use std::sync::Arc;
//! use callboard::storage::Memory;
//! use callboard::testing::conformance::Subject;
//!
//! callboard::storage_conformance! {
//!     in_memory memory: Subject::new(|clock| async { Arc::new(Memory::new(clock)) as _ })
//! }
//! ```
//!
//! A store that survives its process takes `on_disk` instead of `in_memory` and is tested across reopening as well; the
//! closure then has to open the same store each time it is called.
//!
//! Of a store that a process keeps on a disk, or elsewhere outside, `killed` tests what is left of it when the process is
//! killed. The tests start themselves as the process that dies, so they take a path, not a store:
//!
//! ```
//! use std::sync::Arc;
//! use callboard::storage::Sled;
//!
//! callboard::storage_conformance! {
//!     killed sled: |folder| async move { Arc::new(Sled::open(folder).unwrap()) as _ }
//! }
//! ```
//!
//! A store that several processes have open at the same time, as one on a server, takes `shared`. The closure opens another handle of
//! the same store each time it is called, also while others are open:
//!
//! ```
//! use std::sync::{Arc, OnceLock};
//! use callboard::storage::Memory;
//! use callboard::testing::conformance::Subject;
//!
//! callboard::storage_conformance! {
//!     shared server: {
//!         let server = OnceLock::new();
//!         Subject::new(move |clock| {
//!             let handle = Arc::clone(server.get_or_init(|| Arc::new(Memory::new(clock))));
//!             async move { handle as _ }
//!         })
//!     }
//! }
//! ```
//!
//! A store that can be crashed without its process (on a simulated disk, or in a process that the test starts itself) takes
//! `crashed`: see [`Mortal::in_process`].

mod crashes;
mod handles;
mod reopening;
mod riders;
mod script;
mod sessions;
mod streams;
mod subject;
mod values;

use futures::future::LocalBoxFuture;

pub use self::crashes::Mortal;
pub use self::script::{Contents, CrashScript, WriteReport};
pub use self::subject::{ManualClock, Subject};

/// What checks one rule with a backend, and the rule's name.
type Rule<Backend> = (&'static str, fn(Backend) -> LocalBoxFuture<'static, ()>);

/// The rules of every store, those of stores that can be opened again, of those that one process owns, and of those that several have
/// open.
static RULES: [&[Rule<Subject>]; 5] = [
    crate::storage_conformance!(@in_memory (@table)),
    crate::storage_conformance!(@reopening (@table)),
    crate::storage_conformance!(@owned (@table)),
    crate::storage_conformance!(@handles (@table)),
    crate::storage_conformance!(@lasting (@table)),
];

static CRASH_RULES: [&[Rule<Mortal>]; 1] = [crate::storage_conformance!(@crashes (@table))];

/// The check of the rule of this name.
fn check_of<Backend>(rules: &[&[Rule<Backend>]], name: &str) -> fn(Backend) -> LocalBoxFuture<'static, ()> {
    match rules.iter().copied().flatten().find(|(rule, _)| *rule == name) {
        Some((_, check)) => *check,
        None => panic!("there is no rule {name:?}"),
    }
}

impl Subject {
    /// Checks the rule of this name, one of [`storage_conformance!`](crate::storage_conformance), on an empty store.
    ///
    /// # Panics
    /// If the backend breaks the rule, or does not answer for two minutes.
    pub fn check(self, rule: &str) {
        self.check_with(check_of(&RULES, rule));
    }
}

impl Mortal {
    /// Checks the rule of this name, one of [`storage_conformance!`](crate::storage_conformance); in a child, runs what is to be
    /// killed.
    ///
    /// # Panics
    /// If the backend breaks the rule.
    pub fn check(self, rule: &str) {
        self.check_with(check_of(&CRASH_RULES, rule));
    }

    /// As [`Mortal::check`], on the runtime of the caller, as within a simulation.
    ///
    /// # Panics
    /// If the backend breaks the rule.
    pub async fn keeps(self, rule: &str) {
        check_of(&CRASH_RULES, rule)(self).await;
    }
}

/// Makes a module with one test for each rule of [`Storage`](crate::storage::Storage); see
/// [`testing::conformance`](crate::testing::conformance).
///
/// - `in_memory name: subject` and `on_disk name: subject` take a [`Subject`](crate::testing::conformance::Subject); `on_disk` also
///   tests what is there after the store is opened again.
/// - `shared name: subject` is for stores that several processes have open: their sessions outlast a process. `handles name:
///   subject` is that part of it in which two handles are open at the same time.
/// - `killed name: open` tests the rules of stores that crash, six times on one store: it kills processes that write.
/// - `crashed name: mortal` tests these rules with a
///   [`Mortal::in_process`](crate::testing::conformance::Mortal::in_process), or anything else with a `check` like its.
#[macro_export]
macro_rules! storage_conformance {
    (in_memory $name:ident: $subject:expr) => {
        $crate::storage_conformance! { @in_memory (@tests $name, $subject) }
    };
    (on_disk $name:ident: $subject:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may use what surrounds the macro")]
            use super::*;
            $crate::storage_conformance! { in_memory rules: $subject }
            $crate::storage_conformance! { @reopening (@tests reopening, $subject) }
            $crate::storage_conformance! { @owned (@tests owned, $subject) }
        }
    };
    (shared $name:ident: $subject:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may use what surrounds the macro")]
            use super::*;
            $crate::storage_conformance! { in_memory rules: $subject }
            $crate::storage_conformance! { @reopening (@tests reopening, $subject) }
            $crate::storage_conformance! { handles handles: $subject }
            $crate::storage_conformance! { @lasting (@tests lasting, $subject) }
        }
    };
    (handles $name:ident: $subject:expr) => {
        $crate::storage_conformance! { @handles (@tests $name, $subject) }
    };
    (killed $name:ident: $open:expr) => {
        $crate::storage_conformance! {
            @crashes (@crash_tests $name, |test| $crate::testing::conformance::Mortal::new(test, $open))
        }
    };
    (crashed $name:ident: $mortal:expr) => {
        $crate::storage_conformance! { @crashes (@crash_tests $name, |_: &'static str| $mortal) }
    };
    (@in_memory ($($use:tt)*)) => {
        $crate::storage_conformance! { $($use)*;
            streams {
                appends_count_from_one
                an_append_that_expects_another_sequence_is_refused_and_writes_nothing
                of_concurrent_appends_exactly_one_wins
                reads_start_where_asked_and_stop_at_the_limit
                streams_are_listed_by_prefix_in_order
                what_is_read_at_once_is_what_single_reads_return
                a_stream_does_not_show_records_of_streams_with_similar_names
                payloads_return_byte_for_byte
                purged_records_are_gone_and_sequences_continue
                a_stream_without_records_is_forgotten
                what_is_too_large_is_refused
            }
            values {
                a_put_is_read_back_with_its_revision
                revisions_grow_across_keys
                a_put_that_expects_another_revision_is_refused
                of_concurrent_puts_exactly_one_wins
                a_delete_needs_the_current_revision
                expired_values_are_absent
                a_new_value_replaces_the_expiry
                scans_page_through_a_prefix_in_order
                what_is_passed_on_at_once_is_what_reads_return
                watches_report_changes_under_their_prefix
                a_slow_watch_learns_how_much_it_missed
            }
            riders {
                a_rider_is_written_with_its_append
                a_refused_append_writes_no_rider
                riders_are_watched
                a_rider_may_delete_what_is_not_there
                riders_of_one_key_are_written_in_their_order
                a_rider_that_is_too_large_refuses_the_append
            }
            sessions {
                writes_of_a_session_count_while_it_lasts
                writes_of_a_session_that_has_ended_are_refused
                a_session_that_ran_out_goes_on_until_it_is_ended
                a_live_session_is_not_ended_as_one_that_ran_out
                a_name_is_taken_while_its_session_lives
                ids_of_sessions_grow_and_never_come_twice
                sessions_are_listed
                only_a_session_that_has_ended_is_forgotten
                a_session_that_has_ended_is_not_renewed
                writes_without_a_session_always_count
                an_unknown_session_is_refused
                nothing_of_a_session_comes_after_its_end
            }
        }
    };
    (@reopening ($($use:tt)*)) => {
        $crate::storage_conformance! { $($use)*;
            reopening {
                synced_records_are_there_after_reopening
                synced_values_are_there_after_reopening
                every_write_of_a_closed_store_is_there_after_reopening
                sequences_and_revisions_continue_after_reopening
                purges_hold_after_reopening
                expiry_holds_after_reopening
                riders_are_there_after_reopening
            }
        }
    };
    (@owned ($($use:tt)*)) => {
        $crate::storage_conformance! { $($use)*;
            reopening {
                sessions_of_the_process_before_are_forgotten_and_ids_still_grow
            }
        }
    };
    (@handles ($($use:tt)*)) => {
        $crate::storage_conformance! { $($use)*;
            handles {
                what_one_handle_writes_the_other_reads
                of_puts_of_two_handles_exactly_one_wins
                of_appends_of_two_handles_exactly_one_wins
                a_session_is_seen_and_ended_from_another_handle
                no_number_is_given_out_twice_over_two_handles
                a_watch_reports_what_another_handle_writes
            }
        }
    };
    (@lasting ($($use:tt)*)) => {
        $crate::storage_conformance! { $($use)*;
            handles {
                sessions_and_expiry_outlast_the_handle
            }
        }
    };
    (@crashes ($($use:tt)*)) => {
        $crate::storage_conformance! { $($use)*;
            crashes {
                what_was_acknowledged_as_synced_is_there_after_a_crash
                what_a_crash_leaves_is_a_beginning_of_what_was_written
                no_number_is_given_out_twice_across_a_crash
            }
        }
    };
    (@tests $name:ident, $subject:expr; $($file:ident { $($rule:ident)* })*) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may use what surrounds the macro")]
            use super::*;
            $($(#[test] fn $rule() { ($subject).check(stringify!($rule)); })*)*
        }
    };
    (@crash_tests $name:ident, $mortal:expr; $($file:ident { $($rule:ident)* })*) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may use what surrounds the macro")]
            use super::*;
            $($(
                #[test]
                fn $rule() {
                    let mortal = $mortal;
                    mortal(concat!(module_path!(), "::", stringify!($rule))).check(stringify!($rule));
                }
            )*)*
        }
    };
    (@table; $($file:ident { $($rule:ident)* })*) => {
        &[$($((stringify!($rule), |subject| Box::pin($file::$rule(subject))),)*)*]
    };
}
