//! The suite for sinks: the guarantees on which the relay relies, for every broker.

mod facts;
mod loss;
mod refusal;
mod steps;
mod stored;
mod world;

pub use facts::*;
pub use loss::*;
pub use refusal::*;
pub use steps::{message, publish, relay};
pub use stored::*;
pub use world::World;

/// Generates the suite for a [`World`]: `sink_suite!(path::to::World);`
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! sink_suite {
    ($world:ty) => {
        $crate::__suite! { <$world as $crate::sink::World>::make(), sink:
            a_message_arrives_with_its_facts
            a_message_without_facts_arrives_without_them
            a_cloud_event_arrives_as_one
            many_messages_at_once_are_all_there
            a_message_that_is_published_twice_is_confirmed_twice
            an_unroutable_message_fails_and_its_neighbours_do_not
            a_message_over_the_limit_fails_and_its_neighbours_do_not
            what_the_broker_cannot_carry_fails_by_itself
            a_missing_place_is_named_at_the_start
            lost_connections_confirm_nothing_that_is_not_there
            a_dropped_call_harms_no_other
            closing_ends_calls_that_are_under_way
        }
    };
}
