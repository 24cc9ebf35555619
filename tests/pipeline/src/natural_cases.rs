//! The list of the cases of natural handlers, which run in every mode.

/// Generates these cases. Each test awaits `$world`, a future of its world in one mode.
#[doc(hidden)]
#[macro_export]
macro_rules! __natural_cases_in_every_mode {
    ($world:expr) => {
        $crate::__suite! { $world, pipeline:
            // natural handlers
            a_copy_of_a_natural_message_runs_again
            a_natural_message_leaves_no_claim
            an_upsert_that_compares_versions_keeps_the_newest_one
            a_natural_message_that_fails_runs_from_the_inbox
            a_copy_of_a_natural_message_that_waits_in_the_inbox_is_counted
            another_payload_under_a_natural_key_is_no_conflict
            a_natural_message_is_never_too_old
            a_natural_batch_handler_that_stages_refuses_the_start
            whether_a_natural_handler_has_run_before_is_reported_to_the_source
            a_natural_message_has_claims_where_several_handlers_take_it
            a_redelivered_natural_message_is_stored_before_it_runs
            a_natural_handler_that_commits_is_dead_and_its_effect_stands
            a_natural_handler_that_commits_harms_no_other
            a_natural_handler_that_ends_its_transaction_beside_duplicates_is_found_out
            a_natural_message_that_is_cut_off_is_never_lost
            a_commit_beside_natural_messages_loses_nothing_that_they_have_staged
            a_copy_of_a_message_that_ran_without_a_claim_is_new_once_its_handler_has_claims
            no_message_is_too_old_for_a_handler_that_has_only_run_without_claims
            a_natural_handler_that_stages_needs_the_retention_as_others_do
            // what a worker says of them at its start
            a_natural_handler_that_stages_is_warned_of_what_it_stages_for_late_copies
        }
    };
}
