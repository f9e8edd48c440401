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
//! A store that can be crashed without its process (on a simulated disk, or in a process that the test starts itself) takes
//! `crashed`: see [`Mortal::in_process`].

mod claims;
mod crashes;
mod reopening;
mod script;
mod streams;
mod subject;
mod values;

use futures::future::LocalBoxFuture;

pub use self::crashes::Mortal;
pub use self::script::{Contents, CrashScript, WriteReport};
pub use self::subject::{ManualClock, Subject};

/// What checks one rule with a backend, and the rule's name.
type Rule<Backend> = (&'static str, fn(Backend) -> LocalBoxFuture<'static, ()>);

/// The rules of every store, and those of stores that can be opened again.
static RULES: [&[Rule<Subject>]; 2] =
    [crate::storage_conformance!(@in_memory (@table)), crate::storage_conformance!(@reopening (@table))];

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
        }
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
                a_stream_does_not_show_records_of_streams_with_similar_names
                payloads_return_byte_for_byte
                purged_records_are_gone_and_sequences_continue
                a_stream_without_records_or_claim_is_forgotten
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
                watches_report_changes_under_their_prefix
                a_slow_watch_learns_how_much_it_missed
            }
            claims {
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
                claims_of_the_process_before_are_void_and_fences_still_grow
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
