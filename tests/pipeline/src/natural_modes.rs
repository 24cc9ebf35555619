//! The list of the cases of the suite that also run with natural handlers.

/// Generates these cases. Each test awaits `$world`, a future of its world in one mode.
#[doc(hidden)]
#[macro_export]
macro_rules! __pipeline_of_natural_handlers {
    ($world:expr) => {
        $crate::__suite! { $world, pipeline:
            // duplicates
            a_message_is_processed_and_acked
            redelivered_messages_are_stored_before_they_run
            // failures
            an_error_rolls_back_and_schedules
            a_panic_rolls_back_and_schedules
            a_handler_timeout_rolls_back_and_schedules
            a_panic_as_a_late_handler_is_dropped_is_its_failure
            retries_end_as_exhausted_after_five_attempts
            a_permanent_error_is_dead_at_once
            a_swallowed_error_is_a_failure
            a_rollback_harms_no_neighbour
            a_commit_by_the_handler_in_a_retry_is_dead_as_well
            a_nested_transaction_is_allowed
            a_lost_race_is_retried_in_place
            lost_races_without_end_are_a_failure
            a_message_that_breaks_its_connection_is_given_up_and_others_go_on
            // endings
            a_commit_harms_no_other_message
            a_commit_that_is_not_looked_at_harms_no_other_message
            a_write_behind_a_commit_never_exists
            a_commit_that_is_cut_off_harms_no_other_message
            a_commit_on_a_connection_that_is_lost_harms_no_other_message
            a_transaction_that_its_handler_prepared_is_rolled_back
            a_table_that_a_handler_leaves_hides_nothing_from_the_others
            a_handler_checks_its_constraints_among_others
            a_statement_that_outlives_its_handler_is_charged_once
            a_failure_is_recorded_again_and_the_handler_not_run_again
            a_drain_releases_a_failure_that_is_not_recorded
            // drain
            the_end_of_the_patience_rolls_back_and_releases
            // crashes
            a_message_that_kills_its_process_is_dead_as_crashed
        }
    };
}
