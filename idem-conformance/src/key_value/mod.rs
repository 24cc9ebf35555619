//! The suite for key-value stores: every rule that a store can break, and those of a worker on it.

mod steps;
mod worker;
mod world;

pub use steps::*;
pub use worker::*;
pub use world::World;

/// Generates the suite for a [`World`]: `kv_suite!(path::to::World);`
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! kv_suite {
    ($world:ty) => {
        $crate::__suite! { <$world as $crate::key_value::World>::make(), key_value:
            // steps
            a_message_is_acquired_by_one_until_it_is_done
            of_many_at_once_one_acquires
            acquiring_again_under_the_same_token_counts_no_start
            a_lease_that_is_over_is_taken_over_and_fences_the_old_one
            a_renewed_lease_lasts
            a_release_takes_the_start_back
            a_completion_that_is_repeated_writes_once
            refused_writes_write_nothing_and_the_lease_lasts
            half_applied_writes_are_never_applied_again
            half_applied_writes_are_buried_with_their_own_message
            a_dead_letter_is_kept_whole_and_fenced
            a_dead_letter_is_discarded_once
            a_replayed_letter_stays_until_its_message_is_done
            a_replayed_letter_outlives_the_retention
            a_replayed_letter_can_be_discarded
            a_record_ends_with_its_retention_and_a_dead_letter_does_not
            keys_that_look_alike_do_not_meet
            // a worker
            a_message_is_processed_once_and_its_copies_are_duplicates
            a_failing_message_runs_again_and_then_is_a_dead_letter
            a_copy_waits_while_another_process_has_the_lease
            a_message_that_kills_its_process_ends
            a_drain_gives_the_lease_up
            another_message_with_the_key_is_a_conflict
            an_unreadable_message_is_a_dead_letter
            a_message_from_before_the_retention_is_too_old
            writes_that_are_refused_are_a_failed_attempt
            half_applied_writes_are_a_dead_letter
            a_best_effort_handler_runs_once_for_all_copies
            a_lost_answer_repeats_the_step_and_not_the_run
            a_long_run_keeps_its_lease
            a_renewal_that_hangs_delays_no_other
            a_run_that_lost_its_lease_is_not_its_message_any_more
            options_that_need_sql_are_refused
            a_retry_that_would_hold_a_delivery_for_long_is_refused
        }
    };
}
