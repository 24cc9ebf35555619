//! The suite for stores: every rule of the protocol that a store can break.

mod bulk;
mod call_keys;
mod call_polls;
mod calling;
mod calls;
mod claims;
mod content;
mod filters;
mod guard;
mod inbox;
mod local;
mod many;
mod many_rows;
mod natural;
mod nested;
mod operations;
mod operator;
mod orphans;
mod outbox;
mod prune;
mod questions;
mod race;
mod resolutions;
mod results;
mod searches;
mod setup;
mod stage;
mod start;
mod transactions;
mod why;
mod world;

pub use bulk::*;
pub use call_keys::*;
pub use call_polls::*;
pub use calls::*;
pub use claims::*;
pub use content::*;
pub use filters::*;
pub use guard::*;
pub use inbox::*;
pub use local::*;
pub use many::*;
pub use many_rows::*;
pub use natural::*;
pub use nested::*;
pub use operations::*;
pub use operator::*;
pub use orphans::*;
pub use outbox::*;
pub use prune::*;
pub use questions::*;
pub use race::*;
pub use resolutions::*;
pub use results::*;
pub use searches::*;
pub use setup::*;
pub use start::*;
pub use transactions::*;
pub use why::*;
pub use world::{End, Features, Setup, World};

/// Generates the suite for a [`World`]: `store_suite!(path::to::World);`
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! store_suite {
    ($world:ty) => {
        $crate::__suite! { <$world as $crate::store::World>::make(), store:
            // claims
            a_committed_claim_is_found
            an_uncommitted_claim_is_waited_for_then_busy
            a_claim_that_waited_finds_what_was_committed
            a_rolled_back_claim_is_new_again
            claims_of_other_consumers_and_handlers_do_not_meet
            an_existing_claim_has_fingerprint_and_age
            a_reopened_claim_waits_again
            a_claim_that_has_changed_is_not_reopened
            odd_keys_make_the_round_trip
            keys_that_look_alike_are_different
            an_empty_fingerprint_is_a_fingerprint
            // transactions
            claim_and_write_commit_together_or_not_at_all
            a_dropped_transaction_is_rolled_back_and_its_claim_free
            a_dropped_future_leaves_no_open_transaction
            a_statement_ends_at_the_handler_timeout
            a_broken_connection_is_lost_and_the_store_goes_on
            a_commit_without_an_answer_is_unknown
            a_commit_that_is_refused_writes_nothing
            a_transaction_of_our_own_commits_without_a_claim
            a_deadlock_is_a_lost_race
            // guard
            a_rollback_by_the_handler_is_found_out
            nothing_is_written_behind_a_rollback
            a_commit_by_the_handler_is_found_out
            a_rollback_and_begin_by_the_handler_is_found_out
            a_commit_and_begin_by_the_handler_is_found_out
            a_swallowed_error_is_found_out
            a_rollback_by_the_handler_of_a_row_leaves_the_row
            a_commit_by_the_handler_of_a_row_is_found_out
            a_rollback_tells_how_the_handler_ended_the_transaction
            // natural handlers
            a_transaction_without_a_claim_is_guarded
            a_rollback_without_a_claim_tells_how_the_handler_ended_it
            a_swallowed_error_without_a_claim_is_found_out
            a_handler_without_claims_has_a_history_once_it_is_recorded
            // nested
            a_nested_commit_is_committed_with_the_claim
            a_nested_commit_is_rolled_back_with_the_claim
            a_nested_rollback_leaves_the_claim
            a_nested_drop_leaves_the_claim
            a_nested_transaction_that_never_began_is_told_from_a_rollback
            nested_transactions_leave_the_connection_fit
            // inbox rows
            inserting_twice_counts_a_delivery
            another_fingerprint_is_another_row
            fetch_returns_what_is_due_for_these_handlers
            fetch_returns_no_more_than_the_limit
            fetch_counts_a_start_and_sets_token_and_lease
            fetch_is_bounded_in_bytes
            two_fetches_never_share_a_row
            a_fetched_row_is_due_again_after_its_lease
            rows_by_token_finds_what_a_fetch_has_fetched
            a_row_that_runs_is_not_fetched_after_its_lease
            remove_leaves_claims_alone
            poll_due_reports_pending_work
            stats_count_rows
            odd_content_makes_the_round_trip
            odd_errors_make_the_round_trip
            a_payload_over_a_mebibyte_is_kept_whole
            // start
            start_deletes_the_row_and_dates_its_claim
            a_rolled_back_start_leaves_row_and_claim
            a_start_with_a_stale_token_is_false
            a_second_start_is_false
            a_message_is_scheduled_until_its_row_is_done
            a_duplicate_does_not_wait_for_a_row_that_runs
            // results
            a_failure_counts_an_attempt_and_resets_starts_and_breaks
            a_failure_without_a_next_attempt_is_dead
            a_failure_is_never_recorded_twice
            a_result_with_a_stale_token_changes_nothing
            a_break_gives_the_start_back_and_counts_itself
            ten_breaks_are_dead
            a_row_that_was_snoozed_has_no_start
            dead_without_an_attempt
            refund_start_takes_a_start_back_and_leaves_the_token
            refund_start_never_goes_below_zero
            // orphaned rows
            a_fetch_of_ordinary_rows_returns_no_orphans
            a_fetch_of_orphans_returns_no_ordinary_rows
            a_row_with_two_starts_is_fetched_alone
            a_row_that_waits_in_its_process_has_no_start
            leases_are_extended_by_token
            to_extend_a_lease_never_waits_for_a_row_that_runs
            four_starts_are_not_fetched_again
            dead_letter_crashed_waits_for_three_leases
            dead_letter_crashed_takes_no_more_than_its_limit
            a_crashed_row_is_not_revived_by_its_old_holder
            // calls
            a_key_is_stored_with_its_row
            a_call_is_written_before_it_is_made
            the_first_call_under_a_key_is_known
            a_row_in_its_call_phase_is_fetched_for_its_call_only
            a_repeated_call_keeps_its_key
            an_answer_that_comes_after_the_lease_is_kept_for_its_key
            a_call_that_is_snoozed_leaves_out_only_itself
            the_name_of_a_call_is_that_of_its_first_fetch
            a_dead_letter_that_is_inserted_with_an_answer_keeps_its_call
            an_answer_makes_an_ordinary_row
            a_call_in_doubt_leaves_its_lease_to_end
            a_call_without_effect_leaves_its_key_unused
            the_first_question_that_fails_begins_the_attempts_anew
            a_call_that_is_dated_anew_keeps_its_key
            an_ordinary_row_is_left_to_its_call
            an_unresolved_call_is_only_resolved
            a_row_whose_call_may_have_begun_is_not_made_ordinary_by_hand
            an_unresolved_call_is_discarded
            a_dead_letter_that_may_have_called_is_not_discarded
            a_replayed_call_keeps_its_key_and_its_answer
            a_replay_of_a_call_in_doubt_waits_for_its_lease
            rows_that_were_not_called_are_released
            calls_are_fetched_by_their_limit
            calls_of_all_handlers_are_fetched_by_their_age
            a_lease_of_a_call_begins_once_its_fetch_has_the_connection
            a_renewed_lease_of_a_call_begins_once_it_has_the_connection
            a_bound_leaves_out_no_call_that_became_due_since
            a_call_that_is_made_due_is_within_the_bound
            a_row_that_is_left_to_its_call_keeps_the_key_that_it_has
            a_handler_keeps_the_namespace_of_its_calls
            stores_that_ask_at_once_get_one_namespace
            a_namespace_is_deleted_with_its_handler
            // operator
            the_list_is_filtered
            the_list_comes_in_pages_newest_first
            replay_makes_a_dead_row_due
            a_row_is_found_by_the_text_of_its_key
            a_row_is_found_by_its_id
            a_replay_of_many_leaves_what_needs_a_decision
            a_replayed_row_has_fresh_attempts
            an_unknown_consumer_is_an_error
            replay_finds_dead_rows_only
            replay_of_what_its_handler_committed_needs_force
            replay_of_what_is_too_old_needs_force
            replay_of_a_conflict_needs_a_key
            a_replayed_crash_runs_as_an_orphan
            replay_as_moves_a_conflict_to_another_key
            replay_as_is_refused_if_the_key_is_taken
            discard_dates_the_claim_that_the_row_owned
            discard_of_a_conflict_leaves_the_claim_alone
            discard_of_a_row_without_a_key_leaves_claims_alone
            discard_finds_dead_rows_of_the_consumer_only
            // operations
            rows_come_in_the_order_of_their_ids
            a_replay_of_many_changes_each_once
            a_replay_leaves_what_needs_force_a_key_or_a_resolution
            two_operators_replay_each_row_once
            an_operator_skips_a_row_that_another_one_has
            new_keys_take_the_key_of_conflicts_alone
            new_keys_leave_calls
            two_conflicts_of_one_payload_lose_their_keys_together
            a_replay_under_another_key_takes_the_first_row
            a_change_and_its_operation_commit_together
            discarding_many_dates_only_owned_claims
            an_operator_stages_dead_letters_again_in_their_order
            workers_and_operations_are_pruned_by_age
            // questions
            a_question_is_answered_in_the_order_of_its_statement
            a_question_changes_nothing_unless_it_says_so
            a_question_ends_with_its_patience
            a_question_waits_for_no_handler
            // filters, counts and causes
            ids_respect_each_filter
            a_text_filter_looks_at_a_window_and_says_so
            a_window_ends
            counts_stop_at_the_limit
            a_count_at_the_limit_is_exact
            groups_show_each_handler
            groups_merge_numbers
            an_error_with_nul_quotes_and_html_survives_json
            a_replay_of_many_ends_while_its_cause_stands
            a_message_that_dies_after_the_call_began_is_left_to_the_next
            a_message_that_has_just_died_is_replayed
            a_replay_of_many_ends_where_it_is_told_to
            a_dry_run_counts_what_a_replay_does
            new_keys_leave_local_messages_and_handlers_that_call
            each_question_is_answered_where_nothing_is
            // why
            why_reads_claim_rows_and_operations
            why_reads_the_newest_of_many_conflicts
            why_compares_a_payload
            why_finds_a_key_in_each_notation
            a_key_that_nobody_has_is_pointed_out
            a_claim_from_the_future_is_explained
            why_says_that_claims_were_pruned
            why_says_that_a_handler_may_have_no_claims
            a_handler_is_found_by_each_of_its_names
            a_forgotten_claim_runs_again
            a_claim_with_a_row_is_not_forgotten
            rates_are_those_of_all_workers_by_their_age
            workers_that_are_gone_hide_none
            doctor_tells_a_service_that_is_down_from_a_handler_that_is_gone
            // prune
            prune_deletes_old_dated_claims_only
            prune_never_deletes_a_claim_with_a_row
            prune_skips_a_claim_that_is_being_read
            pruners_do_not_meet
            prune_tells_how_far_it_went
            claims_of_many_tell_how_far_prune_went_for_each_handler
            a_claim_that_races_with_prune_is_found_or_reported
            claims_are_kept_for_the_retention_of_their_own_handler
            the_greater_retention_wins_until_an_operator_lowers_it
            // setup
            register_is_stable
            the_names_of_a_handler_have_one_number
            two_names_with_claims_are_joined_by_the_statement_only
            a_name_that_was_lost_gets_its_number_again_and_no_other_name_gets_it
            a_renamed_handler_that_was_lost_gets_its_number_again
            concurrent_registration_agrees
            waiting_lists_handlers_with_rows
            handlers_are_seen_when_a_worker_has_them
            handlers_are_seen_by_many_at_once
            a_history_is_recognized_by_claims_and_by_what_was_pruned
            ten_migrations_at_once_are_one
            workers_share_the_connections
            // many at once
            of_many_claims_each_is_new_or_found
            many_claims_are_read_at_once
            many_claims_that_are_read_are_kept
            a_claim_that_is_held_up_fails_all_of_many
            many_claims_that_waited_find_what_was_committed
            many_claims_are_made_in_their_order
            overlapping_claims_of_many_never_deadlock
            the_guard_watches_over_many_claims
            a_commit_by_the_handler_of_one_of_many_is_refused
            many_rows_are_inserted_at_once
            // outbox
            an_outbox_keeps_its_number
            staged_messages_are_committed_with_the_claim_and_in_order
            a_staged_message_is_read_as_it_was
            nothing_staged_survives_a_transaction_that_is_rolled_back
            nothing_staged_survives_a_transaction_that_its_handler_ended
            ten_thousand_messages_are_staged_in_order
            a_read_of_the_outbox_brings_some_bytes_at_once
            a_read_of_the_outbox_brings_what_its_filter_says
            a_mark_of_the_outbox_is_above_all_before_it
            an_outbox_that_no_relay_looks_at_is_found
            // local messages
            local_messages_are_stored_as_deliveries_are
            a_local_message_has_the_key_of_its_call
            nothing_local_survives_a_transaction_that_is_rolled_back
            nothing_local_survives_a_transaction_that_its_handler_ended
            a_local_message_waits_for_a_claim_that_is_not_committed
            what_is_deferred_to_the_commit_waits_behind_local_messages
            // races
            two_claims_at_once_have_one_effect_a_thousand_times
        }
    };
}
