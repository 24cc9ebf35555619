//! The suite for sources: the guarantees on which the worker relies, for every broker.

mod lag;
mod loss;
mod settling;
mod sharing;
mod steps;
mod transport;
mod world;

pub use lag::*;
pub use loss::*;
pub use settling::*;
pub use sharing::*;
pub use transport::*;
pub use world::{Features, World};

/// Generates the suite for a [`World`], which has an example: `source_suite!(path::to::World);`
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! source_suite {
    ($world:ty) => {
        $crate::__suite! { <$world as $crate::source::World>::make(), source:
            payload_headers_and_properties_arrive_unchanged
            the_facts_of_a_message_arrive
            a_cloud_event_arrives_as_one
            messages_arrive_in_order
            ack_ends_it
            an_ack_is_answered_as_the_broker_does
            release_brings_it_back
            dropping_unsettled_and_closing_brings_it_back_as_redelivered
            no_more_than_in_flight_are_unsettled
            a_lost_connection_is_an_error_of_next
            open_again_after_a_loss_works
            a_stale_ack_settles_nothing_else
            a_stale_release_brings_back_nothing_else
            drain_releases_what_is_buffered_and_lets_in_flight_settle
            draining_and_closing_what_was_never_opened_does_nothing
            two_sources_share_the_work
            next_is_cancel_safe
            lag_is_what_waits_at_the_broker
            lag_ends_no_subscription
        }
    };
}
