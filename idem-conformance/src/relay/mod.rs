//! The suite for relays: what becomes of staged messages at each failure, over each store.
//!
//! Its world is that of the store suite.

mod failures;
mod hanging;
mod keys;
mod leases;
mod line;
mod load;
mod opening;
mod order;

pub use super::store::World;
pub use failures::*;
pub use hanging::*;
pub use keys::*;
pub use leases::*;
pub use load::*;
pub use opening::*;
pub use order::*;

/// Generates the suite for a world of the store suite: `relay_suite!(path::to::World);`.
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! relay_suite {
    ($world:ty) => {
        $crate::__suite! { <$world as $crate::relay::World>::make(), relay:
            // order
            staged_messages_are_published_and_deleted
            a_relay_is_woken_by_the_notifier
            messages_of_a_key_leave_in_order_and_one_at_a_time
            a_refused_message_keeps_its_key_and_no_other
            many_refused_keys_stop_no_other
            a_slow_read_lets_no_message_overtake
            a_message_that_is_given_up_costs_others_no_read
            a_message_behind_a_key_that_fails_does_not_wait_for_the_poll
            // failures
            a_message_that_is_given_up_is_dead_and_its_key_goes_on
            a_dead_letter_is_replayed_under_its_id_or_discarded
            a_broker_that_is_away_costs_no_attempt
            a_lost_confirm_is_published_again_under_the_same_id
            a_message_without_an_answer_stops_no_other
            a_message_that_is_not_confirmed_is_never_deleted
            a_crash_before_the_delete_publishes_again_under_the_same_id
            a_database_that_is_away_loses_and_repeats_nothing
            a_sink_that_panics_ends_the_relay
            // hanging
            a_destination_that_hangs_stops_no_other
            a_destination_that_answers_again_waits_for_no_other
            a_destination_that_answers_again_waits_for_no_backlog
            messages_that_never_get_an_answer_do_not_stop_their_destination
            a_destination_at_which_the_client_gives_up_stops_no_other
            a_slow_destination_stops_no_other
            a_destination_that_nacks_backs_off
            a_destination_that_nacks_takes_no_slot_of_those_that_get_no_answer
            // keys
            a_key_with_many_messages_stops_no_other
            many_keys_with_many_messages_stop_no_other
            a_key_with_many_messages_does_not_wait_for_the_poll
            // leases
            a_drain_waits_for_its_confirms_and_gives_its_lease_back
            a_drain_ends_when_another_relay_has_the_lease
            one_relay_publishes_and_another_stands_by
            the_outbox_of_a_relay_that_dies_is_taken_over
            a_relay_that_cannot_renew_its_lease_stops_publishing
            a_relay_that_stands_by_waits_for_no_transaction
            a_lease_that_ends_in_the_far_future_is_free
            a_relay_whose_outbox_is_unknown_registers_it_again
            a_relay_that_lost_its_lease_deletes_nothing
            a_row_whose_id_was_given_again_is_left_alone
            a_failure_that_is_recorded_again_counts_once
            another_outbox_is_left_alone
            relays_of_another_outbox_do_not_count
            // opening
            a_relay_that_waits_for_its_broker_is_alive
            a_relay_that_waits_for_its_broker_leaves_the_lease_to_others
            // load
            a_standing_relay_goes_on_at_once_when_another_ends
            a_relay_that_was_paused_publishes_nothing_twice
            many_messages_without_an_answer_stop_no_other
            a_relay_in_which_too_many_messages_wait_goes_on
            large_messages_whose_time_has_come_do_not_fill_the_memory
            a_database_that_refuses_reads_is_seldom_asked
            a_delete_without_an_answer_makes_no_copy
            a_record_without_an_answer_costs_no_attempt
        }
    };
}
