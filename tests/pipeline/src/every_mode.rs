//! The lists of the cases of the suite that run in every mode.

/// Generates all of these cases. Each test awaits `$world`, a future of its world in one mode.
#[doc(hidden)]
#[macro_export]
macro_rules! __pipeline_in_every_mode {
    ($world:expr) => {
        $crate::__natural_cases!($world);
        $crate::__cases_of_any_handlers!($world);
        $crate::__suite! { $world;
            // duplicates
            a_duplicate_is_acked_and_not_handled
            copies_at_once_are_handled_once
            copies_at_two_workers_are_handled_once
            a_copy_of_a_scheduled_message_is_a_duplicate
            a_copy_after_a_lost_ack_is_a_duplicate
            a_conflict_is_dead_beside_the_first
            a_message_that_fails_beside_another_of_its_key_is_not_lost
            two_consumers_each_have_their_effect
            never_acks_before_commit
            a_redelivered_message_is_stored_while_no_lane_is_free
            // external calls: the storage of a message and its completion depend on the mode, and the call between them does not
            a_message_calls_once_and_completes_with_the_answer
            a_local_message_calls_once
            each_of_many_messages_is_charged_once
            a_call_holds_no_transaction_and_no_connection
            a_completion_that_fails_keeps_its_answer
            a_completion_that_commits_keeps_its_answer
            an_answer_waits_for_a_version_that_has_the_call
            a_message_that_was_not_called_runs_in_a_version_without_the_call
            a_crash_before_the_fetch_calls_once
            a_crash_behind_the_call_repeats_it_under_its_key
            a_crash_in_the_completion_calls_nobody_again
            // roster
            a_worker_counts_what_its_observer_sees
            // failures
            an_error_that_panics_is_a_failure_of_its_message
            a_handler_that_never_waits_ends_at_its_timeout
            an_error_that_names_a_time_is_retried_after_it
            a_rollback_by_the_handler_is_dead_without_effect
            a_rollback_and_begin_before_an_error_is_retried_without_effect
            a_nested_transaction_that_never_began_is_retried_and_harms_no_neighbour
            a_commit_by_the_handler_is_dead_and_its_effect_stands
            // endings
            a_commit_before_the_handler_timeout_is_dead
            a_commit_before_the_connection_is_lost_is_dead
            a_commit_before_a_loss_that_is_ignored_is_dead
            a_commit_before_the_end_of_the_patience_is_dead
            // dead letters
            an_undecodable_payload_is_dead_and_kept_whole
            an_unrepresentable_message_is_dead_and_kept
            a_message_without_a_key_is_dead_and_kept_whole
            messages_without_a_key_are_distinguished_by_all_that_makes_them
            messages_without_a_key_are_distinguished_by_their_subject_and_properties
            a_key_of_256_bytes_is_dead_and_one_of_255_is_not
            a_payload_over_the_limit_is_dead_and_kept_whole
            a_payload_at_the_limit_is_processed
            nesting_without_end_is_undecodable
            odd_headers_and_ids_never_block
            // facts
            the_facts_of_a_message_are_the_same_wherever_it_runs
            // CloudEvents
            a_cloud_event_is_one_message_whichever_way_it_comes
            a_cloud_event_runs_from_the_inbox_with_its_data
            an_invalid_cloud_event_is_dead_and_says_why
            a_key_by_cloud_event_refuses_a_worker_that_reads_none
            // tombstones
            a_tombstone_reaches_a_handler_that_takes_it
            a_tombstone_for_a_handler_that_takes_none_is_dead_and_kept
            a_tombstone_tells_what_was_deleted
            a_key_by_partition_key_refuses_a_broker_without_partition_keys
            // ages
            a_message_older_than_the_pruned_claims_is_dead_as_too_old
            a_redelivered_message_that_is_too_old_is_dead_and_never_run
            a_message_younger_than_the_pruned_claims_is_processed
            a_new_consumer_reads_a_long_history
            a_short_retention_prunes_no_claims_of_another_service
            of_two_retentions_the_greater_one_wins_until_an_operator_lowers_it
            a_row_of_the_inbox_is_never_too_old
            a_row_that_was_due_long_ago_is_found_by_a_worker_that_runs
            a_broker_that_keeps_messages_for_longer_refuses_the_start
            a_broker_that_keeps_messages_without_a_limit_is_a_warning
            // panics
            a_key_or_fingerprint_that_panics_is_a_dead_letter
            a_codec_or_an_extractor_that_panics_is_a_failure_of_its_message
            a_copy_whose_parameter_panics_as_it_is_dropped_is_a_duplicate
            an_observer_that_panics_costs_nothing
            a_task_that_panics_ends_the_worker_with_an_error
            a_background_task_that_panics_ends_the_worker_with_an_error
            a_panic_on_a_message_ends_the_worker_and_loses_nothing
            gauges_that_fail_or_hang_are_no_outage
            // away
            an_outage_that_is_long_for_the_broker_costs_one_return
            an_outage_that_is_short_for_the_broker_costs_no_return
            a_source_that_refuses_to_open_again_is_an_error_until_it_is_repaired
            a_useless_source_is_opened_at_growing_intervals
            an_ack_that_is_never_answered_ends
            // kill switch
            a_queue_that_dies_whole_pauses_until_an_operator_resumes_it
            a_queue_without_keys_pauses_until_an_operator_resumes_it
            a_queue_of_another_format_pauses_until_an_operator_resumes_it
            a_paused_worker_drains
            a_paused_worker_consumes_again_after_a_restart
            the_messages_of_a_paused_worker_go_to_another
            one_bad_producer_among_good_ones_never_pauses
            a_key_by_position_refuses_a_broker_without_positions
            // refusals
            a_message_that_the_database_refuses_is_held_and_harms_no_other
            a_drain_releases_what_the_database_refuses
            a_failure_that_the_database_refuses_to_record_harms_no_other
            a_row_that_the_database_refuses_harms_no_other
            a_worker_that_holds_nothing_but_refused_messages_is_not_ready
            several_queues_may_hold_more_refused_messages_than_one
            a_source_that_takes_less_for_a_while_is_full_earlier
            a_database_that_refuses_all_is_tried_seldom_and_seen_in_the_health
            a_lost_connection_is_no_outage_while_the_database_answers
            a_locked_table_of_claims_makes_its_worker_unready
            // unrecorded
            a_dead_letter_that_is_refused_costs_no_lane
            a_dead_letter_that_was_discarded_is_not_written_again
            a_dead_letter_is_written_although_the_claim_of_its_handler_is_gone
            a_dead_letter_of_a_row_that_is_refused_costs_no_slot
            a_failure_of_a_row_that_is_refused_costs_no_slot
            a_failure_of_a_row_is_recorded_again_and_its_handler_not_run_again
            // routes
            the_type_of_event_chooses_the_handler
            a_header_chooses_the_handler
            an_unknown_type_is_dead_and_kept_whole
            two_handlers_of_one_name_refuse_the_start
            a_former_name_that_no_handler_can_have_refuses_the_start
            a_subject_chooses_the_handler_by_its_pattern
            patterns_that_overlap_or_make_no_sense_refuse_the_start
            a_worker_refuses_a_broker_without_that_by_which_it_routes
            // several handlers for one event
            each_of_several_handlers_runs_a_message_once
            several_handlers_run_many_messages_and_their_copies_once
            the_failure_of_one_handler_repeats_no_other
            a_lost_ack_repeats_no_handler
            a_crash_as_it_is_stored_for_several_handlers_loses_nothing
            a_message_that_one_handler_cannot_take_is_its_dead_letter_only
            the_codec_of_one_handler_that_prepares_delays_no_other
            a_replay_of_an_unknown_type_reaches_several_handlers
            a_subject_of_two_patterns_reaches_both_handlers
            several_handlers_for_one_event_must_be_asked_for
            // options of one handler
            the_timeout_of_a_handler_ends_only_it
            a_handler_may_run_for_longer_than_its_worker_allows_the_others
            the_retry_policy_of_a_handler_decides_attempts_and_delay
            the_codec_of_a_handler_decodes_for_it_only
            a_timeout_of_zero_refuses_the_start
            the_longest_timeout_is_reported_to_the_source
            whether_the_worker_has_run_before_is_reported_to_the_source
            // unprepared
            a_codec_sees_the_headers_and_the_content_type
            a_codec_that_needs_nothing_is_never_prepared
            a_registry_that_is_away_costs_no_attempt_and_no_dead_letter
            a_row_records_no_attempt_while_its_registry_is_away
            a_row_runs_as_soon_as_its_codec_is_prepared
            a_row_that_waits_for_its_codec_counts_no_start_when_its_process_ends
            a_registry_that_hangs_delays_no_other_handler
            an_orphan_whose_registry_is_away_counts_no_start
            a_replay_of_a_row_without_a_schema_asks_again
            a_schema_that_does_not_exist_makes_a_dead_letter
            a_preparation_that_hangs_holds_up_nothing_but_its_message
            a_preparation_that_hangs_is_tried_again
            a_codec_that_forgets_its_preparation_is_tried_again
            a_drain_releases_what_its_codec_prepares_for
            // handlers that a worker does not have
            a_handler_knows_under_a_new_name_what_it_has_processed_under_the_old_one
            workers_with_different_handlers_and_one_name_start_again
            a_release_that_was_rolled_back_starts
            rows_of_an_unknown_handler_refuse_the_start_with_each_remedy
            scheduled_rows_of_an_unknown_handler_can_be_discarded
            a_handler_takes_its_claims_along_to_a_consumer_of_its_own
            two_names_that_have_claims_each_refuse_to_be_one_with_the_remedy
            workers_show_that_their_handlers_are_alive
            signs_of_life_that_fail_or_hang_are_no_outage
            // outbox
            messages_that_a_handler_stages_are_written_with_its_effect
            nothing_is_staged_by_a_run_that_fails
            a_nested_rollback_keeps_what_was_staged
            a_message_that_cannot_be_sent_is_a_failure
            two_messages_with_one_id_are_a_failure
            a_handler_that_has_ended_stages_nothing
            a_message_over_the_limit_of_the_relay_is_a_failure
            a_message_that_runs_again_stages_under_the_same_ids
            each_of_many_messages_stages_once
            a_batch_handler_stages_with_its_batch
            what_an_extractor_stages_is_written_for_each_message_of_a_batch
            an_extractor_that_fails_for_one_message_of_a_batch_fails_it_alone
            a_relay_is_woken_by_the_commit_of_a_handler
            a_worker_without_a_relay_is_unready
            a_handler_that_stages_without_saying_so_fails
            a_backlog_pauses_consumption_until_it_is_published
            a_backlog_that_cannot_be_counted_stops_no_worker
            a_full_outbox_does_not_stop_orphans
            // local messages
            a_local_message_runs_exactly_once
            nothing_is_handed_over_by_a_run_that_fails
            a_local_message_for_an_unknown_handler_is_a_failure
            a_local_message_that_cannot_be_taken_is_a_failure
            each_of_many_messages_hands_over_once
            a_batch_handler_hands_over_with_its_batch
            a_message_that_runs_again_hands_over_nothing_new
            a_local_message_under_the_key_of_another_is_a_conflict
            a_handler_of_local_messages_only_takes_no_delivery
            a_sender_records_no_attempt_for_a_claim_that_another_transaction_holds
            what_is_handed_over_and_delivered_at_once_runs_once
            a_local_message_runs_without_a_poll
            a_worker_that_only_hands_over_needs_no_relay
            // replay
            a_replay_runs_it_once
            a_replay_twice_has_one_effect
            a_replay_of_a_conflict_under_a_new_key_has_its_effect
            a_replay_of_a_committed_message_needs_force
            a_replay_of_an_unknown_type_finds_its_handler
            a_list_whose_rows_have_all_gone_looks_again
            // new keys
            conflicts_run_once_under_the_new_keys_of_their_handler
            conflicts_whose_handler_has_no_new_key_are_conflicts_again
            a_conflict_of_a_local_message_keeps_its_key
            // why
            a_delivery_becomes_what_was_foretold
            a_delivery_that_is_too_old_is_foretold
            a_natural_delivery_is_foretold
            a_copy_of_a_local_message_is_foretold
            a_delivery_for_several_handlers_is_foretold_for_each
            a_delivery_is_foretold_under_a_former_name
            // drain
            a_drain_finishes_what_runs_and_releases_the_rest
            a_drain_releases_what_waits_for_a_lane_at_once
            a_drain_beside_an_orphan_releases_what_waits
            a_lost_broker_is_opened_again
            a_broker_that_refuses_is_tried_again
            // crashes
            every_way_to_deliver_has_one_effect
            a_crash_while_a_row_runs_has_one_effect
            a_row_with_one_start_runs_alone_among_rows
            direct_deliveries_go_on_during_a_row_with_one_start
            a_row_with_two_starts_has_the_process_to_itself
            an_orphan_that_waits_is_left_when_the_worker_drains
            an_orphan_that_waits_for_long_lets_other_rows_start
            // starts
            an_orphan_whose_fetch_has_no_answer_is_isolated_until_it_is_found
            a_start_whose_lease_was_lost_is_refunded_once
            a_row_that_has_died_elsewhere_is_not_reported_as_processed
            // neighbours
            an_orphan_whose_database_is_away_stops_no_worker_of_another_one
            an_orphan_whose_database_is_away_stops_no_rows_of_another_one
            an_orphan_waits_for_no_run_whose_database_is_away
            an_orphan_waits_for_no_run_of_another_database_that_is_away
            // long outages
            messages_that_waited_for_their_database_run_while_no_orphan_runs
            an_orphan_that_lost_its_isolation_begins_while_no_other_one_runs
            a_failure_is_recorded_beside_an_orphan_of_another_database
            rows_whose_fetch_has_no_answer_run_while_no_orphan_runs
            // fleet
            one_process_of_two_goes_quiet_for_an_orphan
        }
    };
}

/// Generates the cases that also run where all handlers are natural.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases_of_any_handlers {
    ($world:expr) => {
        $crate::__suite! { $world;
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
            a_statement_that_outlives_its_handler_is_recorded_once
            a_failure_is_recorded_again_and_the_handler_not_run_again
            a_drain_releases_a_failure_that_is_not_recorded
            // drain
            the_end_of_the_patience_rolls_back_and_releases
            // crashes
            a_message_that_kills_its_process_is_dead_as_crashed
        }
    };
}

/// Generates the cases of natural handlers. Each test awaits `$world`, a future of its world in one mode.
#[doc(hidden)]
#[macro_export]
macro_rules! __natural_cases {
    ($world:expr) => {
        $crate::__suite! { $world;
            // natural handlers
            a_copy_of_a_natural_message_runs_again
            a_natural_message_leaves_no_claim
            an_upsert_that_compares_versions_keeps_the_newest_one
            a_natural_message_that_fails_runs_from_the_inbox
            a_copy_of_a_natural_message_that_is_dead_is_a_duplicate
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
