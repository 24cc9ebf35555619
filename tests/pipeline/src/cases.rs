//! The list of the cases of the suite that run in some modes, and the macro of all cases.

/// Generates the suite for a world of the store suite, with a module for each mode in which workers run:
/// `pipeline_suite!(crate::World, every mode);`. Without `every mode`, each message runs as it is delivered. `inbox` stores
/// the messages before they run, `batch` runs them in batches, and `inbox batch` does both. With `natural` and `natural
/// batch`, the handlers are natural: the cases of handlers that fail, end their transaction or are cut off.
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! pipeline_suite {
    ($world:ty, inbox) => {
        $crate::__pipeline_in_every_mode!($crate::Mode::<$world>::in_inbox());
        $crate::__calls_that_fail!($crate::Mode::<$world>::in_inbox());
        $crate::__suite! { $crate::Mode::<$world>::in_inbox();
            an_order_refuses_the_inbox
            // batches
            a_copy_in_a_batch_is_a_duplicate
            a_conflict_in_a_batch_is_dead_beside_the_first
            available_messages_are_stored_together
            a_batch_is_acked_after_its_commit
            a_crash_while_a_batch_is_stored_loses_nothing
            a_locked_key_does_not_keep_its_batch
            a_claim_that_a_trigger_keeps_out_does_not_keep_its_batch
            stored_messages_run_without_a_poll
            a_drain_releases_what_waits_to_be_stored_at_once
        }
    };
    ($world:ty, batch) => {
        $crate::__pipeline_in_every_mode!($crate::Mode::<$world>::in_batches());
        $crate::__batches_of_any_handlers!($crate::Mode::<$world>::in_batches());
        $crate::__suite! { $crate::Mode::<$world>::in_batches();
            // together
            a_race_that_a_handler_loses_by_itself_costs_one_more_round
            copies_and_conflicts_in_a_batch_are_known
            a_batch_lingers_for_what_comes
            a_batch_handler_gets_what_is_new
            a_batch_refuses_an_order
            // panics
            a_batch_drops_messages_that_panic_and_goes_on
            // unrecorded
            a_failure_that_is_not_recorded_yet_runs_in_no_batch
            // refusals
            a_refused_message_of_a_batch_costs_no_lane
            a_claim_without_an_answer_costs_no_lane
            copies_of_a_slow_message_cost_no_lane
            a_copy_of_a_message_that_runs_elsewhere_costs_no_lane
            a_copy_in_a_batch_is_held_with_its_first
            a_race_that_is_lost_at_the_commit_by_itself_keeps_batches_concurrent
            a_deadlock_at_the_commit_runs_batches_one_at_a_time
            // external calls
            a_local_message_that_comes_again_behind_a_restored_backup_is_charged_once
            // drain
            a_drain_releases_what_waits_to_run_alone
            // long outages
            a_batch_calls_no_more_handlers_once_an_orphan_waits
            a_batch_that_is_put_off_gives_its_connection_to_the_orphan
        }
    };
    ($world:ty, inbox batch) => {
        $crate::__pipeline_in_every_mode!($crate::Mode::<$world>::in_inbox_batches());
        $crate::__suite! { $crate::Mode::<$world>::in_inbox_batches();
            // hangs
            a_row_that_hangs_keeps_no_memory_from_others
            rows_are_fetched_by_their_size
        }
    };
    ($world:ty, natural) => {
        $crate::__cases_of_any_handlers!($crate::Mode::<$world, true>::natural());
    };
    ($world:ty, natural batch) => {
        $crate::__cases_of_any_handlers!($crate::Mode::<$world, true>::natural_batches());
        $crate::__batches_of_any_handlers!($crate::Mode::<$world, true>::natural_batches());
    };
    ($world:ty, every mode) => {
        $crate::pipeline_suite!($world);
        mod inbox {
            $crate::pipeline_suite!($world, inbox);
        }
        mod batch {
            $crate::pipeline_suite!($world, batch);
        }
        mod inbox_batch {
            $crate::pipeline_suite!($world, inbox batch);
        }
        mod natural {
            $crate::pipeline_suite!($world, natural);
        }
        mod natural_batch {
            $crate::pipeline_suite!($world, natural batch);
        }
    };
    ($world:ty) => {
        $crate::__pipeline_in_every_mode!($crate::Mode::<$world>::single());
        $crate::__calls_that_fail!($crate::Mode::<$world>::single());
        $crate::__suite! { $crate::Mode::<$world>::single();
            // roster
            each_worker_has_a_row
            a_worker_does_its_work_without_the_table_of_workers
            // duplicates
            a_duplicate_needs_no_second_look
            a_conflict_locks_the_claim_beside_which_it_is_written
            // external calls
            a_call_keeps_the_order
            calls_are_limited
            a_message_of_several_handlers_calls_for_one_of_them
            each_handler_of_a_message_calls_under_its_own_key
            a_drain_waits_for_calls
            the_end_of_the_shutdown_timeout_leaves_a_call_in_doubt
            a_call_is_not_taken_over_by_another_one
            a_call_that_gets_a_key_or_loses_it_goes_on_with_none_in_doubt
            a_call_that_cannot_be_made_refuses_the_start
            a_call_is_asked_about_after_a_while
            a_replay_of_a_call_without_a_key_calls_nobody
            another_copy_of_a_message_calls_under_another_key
            another_message_without_a_position_is_charged
            a_conflict_that_is_replayed_under_another_key_is_charged
            an_undeliverable_message_that_is_replayed_behind_a_restored_backup_is_charged_once
            a_redelivered_message_with_an_order_is_charged_once_behind_a_restored_backup
            a_row_that_is_left_to_its_call_has_the_key_of_its_message
            a_renamed_handler_calls_under_the_same_keys
            a_handler_that_is_newer_than_the_backup_calls_under_other_keys
            a_handler_under_a_name_that_another_one_has_left_calls_under_other_keys
            a_handler_with_another_call_calls_under_other_keys
            a_copy_whose_namespaces_were_deleted_calls_under_other_keys
            a_call_that_never_has_a_result_is_dead_as_crashed
            an_answer_whose_record_gets_no_answer_is_used
            calls_whose_fetch_gets_no_answer_are_made_once
            a_crash_before_a_call_is_dated_anew_asks_again
            a_call_whose_new_date_gets_no_answer_is_made_once
            a_message_that_cannot_be_called_for_is_not_in_doubt
            a_call_that_was_due_long_ago_is_made_by_a_worker_that_runs
            a_call_that_begins_too_late_is_logged_and_begins_later
            a_call_behind_a_question_that_begins_too_late_begins_later
            a_drain_behind_the_fetch_of_a_call_makes_none
            a_call_behind_a_question_is_made_while_no_orphan_runs
            an_answer_under_a_key_that_was_replaced_is_logged
            an_answer_whose_message_is_gone_is_logged
            a_preparation_that_outlasts_the_lease_of_a_call_gives_its_row_back
            a_codec_that_forgets_its_preparation_for_a_call_is_logged
            a_full_outbox_keeps_calls_waiting
            an_orphan_with_the_process_to_itself_keeps_calls_waiting
            an_orphan_that_needs_the_process_to_itself_waits_for_calls
            // delivery order by key
            a_key_keeps_its_order_over_failures
            a_time_that_an_error_names_is_no_longer_than_the_policy_allows_in_an_order
            other_keys_go_on_while_one_waits
            a_hot_key_costs_one_lane
            a_delivery_that_waits_for_its_row_occupies_no_lane
            a_dead_letter_lets_its_key_go_on
            a_key_waits_for_the_row_of_a_known_message
            a_redelivered_message_keeps_its_order
            a_crash_in_the_middle_keeps_the_order
            a_drain_releases_a_key_that_waits
            a_drain_finishes_what_runs_before_its_key_goes_on
            the_end_of_the_shutdown_timeout_leaves_a_key_to_the_next
            a_lost_broker_keeps_the_order
            a_lost_delivery_frees_its_ordering_key
            a_key_is_woken_when_its_row_has_run
            keys_keep_their_order_over_two_workers
            a_stored_message_is_reported_to_the_source
            // numbers of handlers that have changed under a worker
            a_restore_of_a_backup_that_is_older_than_a_handler_repeats_nothing
            // natural handlers in an order
            a_natural_handler_in_an_order_waits_for_the_rows_of_its_messages
            a_natural_message_in_an_order_has_a_claim
            a_natural_message_in_an_order_is_never_too_old
            // away
            due_rows_are_not_fetched_again_and_again_in_an_outage
            // refusals
            a_refused_message_keeps_its_place_and_costs_no_lane
            // unanswered
            a_claim_without_an_answer_costs_no_lane
            a_failure_whose_record_gets_no_answer_costs_no_lane
            // polls
            a_worker_looks_back_to_its_last_search_and_at_times_at_everything
            a_worker_fetches_the_rows_that_its_last_fetch_has_left_without_a_search_of_everything
            // patience
            an_orphan_whose_check_hangs_waits_no_longer_than_the_drain
            // long outages
            an_orphan_whose_fetch_hangs_in_an_outage_stops_no_worker_of_another_database
            an_outage_while_an_orphan_runs_delays_no_later_orphan
            // copies
            copies_of_a_slow_message_cost_no_lane
            a_copy_of_a_message_that_runs_elsewhere_costs_no_lane
            // unprepared
            a_delivery_whose_codec_prepares_keeps_its_place
        }
    };
}

/// Generates the cases of external calls that fail, or whose process ends, which depend on how a message is stored.
#[doc(hidden)]
#[macro_export]
macro_rules! __calls_that_fail {
    ($world:expr) => {
        $crate::__suite! { $world;
            a_crash_before_the_call_repeats_it_under_its_key
            a_crash_in_the_call_repeats_it_under_its_key
            a_lost_answer_is_got_under_the_same_key
            a_begun_call_without_a_key_is_asked_about
            a_begun_call_that_nobody_can_be_asked_about_is_unresolved
            a_call_without_effect_ends_no_doubt_about_an_earlier_one
            a_stored_error_ends_the_attempts
            a_call_that_outlives_its_lease_charges_once
            a_call_that_was_paused_beyond_its_lease_sends_nothing
            a_key_that_is_too_old_is_asked_about
            a_key_that_is_too_old_is_unresolved_where_nobody_can_be_asked
            a_message_of_a_backup_from_before_its_call_has_the_same_key
            a_message_of_a_backup_from_before_its_questions_is_charged_once
            a_message_that_comes_again_behind_a_restored_backup_is_charged_once
            a_local_message_that_comes_again_behind_a_restored_backup_is_charged_once
            another_message_with_the_key_of_a_pruned_claim_is_charged
            a_question_without_an_answer_is_unresolved
            an_answer_over_the_limit_is_dead_and_is_asked_for_again
            an_operator_gives_the_answer
            another_request_of_a_call_in_doubt_charges_nothing
        }
    };
}

/// Generates the cases of batches that also run where all handlers are natural.
#[doc(hidden)]
#[macro_export]
macro_rules! __batches_of_any_handlers {
    ($world:expr) => {
        $crate::__suite! { $world;
            a_failure_in_a_batch_costs_one_more_round
            no_attempt_is_recorded_for_an_error_that_was_swallowed_before
            no_attempt_is_recorded_for_an_error_that_was_swallowed_at_the_end
            a_rollback_in_a_batch_harms_no_other_message
            a_rollback_and_begin_in_a_batch_harms_no_other_message
            a_rollback_and_a_write_in_a_batch_harm_no_other_message
            a_rollback_and_an_error_in_a_batch_harm_no_other_message
            a_rollback_in_a_batch_handler_harms_no_other_message
            a_commit_in_a_batch_handler_harms_no_other_message
            batches_that_deadlock_get_through
            a_crash_of_a_batch_loses_and_doubles_nothing
            a_batch_handler_that_fails_gets_halves_until_the_bad_one_is_alone
            the_messages_of_a_failing_batch_run_one_after_another
            in_a_batch_each_handler_has_its_own_timeout
        }
    };
}
