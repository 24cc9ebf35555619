//! The suite for sources: the guarantees on which the worker relies, for every broker.

mod lag;
mod loss;
mod settling;
mod sharing;
mod transport;

use std::time::Duration;

use idem_core::{Acker, Delivery, Settled, Source, SubscribeOptions};

use crate::Publication;

use super::soon;

pub use lag::*;
pub use loss::*;
pub use settling::*;
pub use sharing::*;
pub use transport::*;

/// One queue of a broker, created for one test.
pub trait World: Sized + Send + Sync + 'static {
    /// The source under test.
    type Source: Source;

    /// The features of the broker.
    const FEATURES: Features;

    /// Creates a new, empty queue. Prints a line and returns `None` if the broker is not available and not required.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// The subject of published messages, if the broker has subjects.
    fn subject(&self) -> Option<String> {
        None
    }

    /// Publishes a message. It is in the queue when the future is ready.
    fn publish(&self, publication: Publication) -> impl Future<Output = ()> + Send;

    /// Makes the queue one that two sources can share, if it is not one from the start.
    fn share(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns a source of the queue, not yet opened.
    fn source(&self) -> impl Future<Output = Self::Source> + Send;

    /// Cuts the connections of all sources, as a dying broker does.
    fn cut(&self) -> impl Future<Output = ()> + Send;

    /// How many messages wait to be handed out, by the broker's count.
    fn ready(&self) -> impl Future<Output = usize> + Send;
}

/// The features of a broker.
// Exhaustive: the suite tests what a world states, so a world that does not state a new feature must not compile.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// It carries a message id beside the headers.
    pub message_id: bool,
    /// It carries an event type beside the headers.
    pub event_type: bool,
    /// It carries a content type: beside the headers, or as the header `content-type`.
    pub content_type: bool,
    /// It carries a correlation id and a reply address beside the headers.
    pub correlation: bool,
    /// It carries a key by which it chooses a partition.
    pub partition_key: bool,
    /// It carries a producer timestamp.
    pub produced_at: bool,
    /// A header value may hold any bytes, not only text.
    pub header_bytes: bool,
    /// It marks redeliveries.
    pub redelivered: bool,
    /// It cannot tell redeliveries apart, and so marks the first deliveries of each subscription.
    pub presumes: bool,
    /// It confirms acks.
    pub confirms: bool,
    /// It takes a single delivery back and redelivers it at once. Otherwise it redelivers when the subscription has
    /// ended.
    pub releases: bool,
    /// A delivery outlives its connection: after a loss the receiver still holds it, can settle it, and it is not
    /// redelivered.
    pub survives: bool,
    /// Its ready count includes released messages.
    pub counts_released: bool,
    /// Its ready count includes unsettled deliveries.
    pub counts_unsettled: bool,
    /// The source reports its [`lag`](Source::lag).
    pub lag: bool,
}

/// Generates the suite for a [`World`]: `source_suite!(path::to::World);`
///
/// The crate needs tokio with its macros.
#[macro_export]
macro_rules! source_suite {
    ($world:ty) => {
        $crate::__suite! { $world, source:
            payload_headers_and_properties_arrive_unchanged
            what_a_message_came_with_arrives
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
            two_sources_share_the_work
            next_is_cancel_safe
            lag_is_what_waits_at_the_broker
            lag_ends_no_subscription
        }
    };
}

/// The options that most cases use.
fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new("billing", max_unsettled)
}

/// An open source.
async fn open<W: World>(world: &W, max_unsettled: u16) -> W::Source {
    let mut source = world.source().await;
    soon(source.subscribe(subscribe_options(max_unsettled))).await.unwrap();
    source
}

/// The next delivery, which must exist.
async fn next<S: Source>(source: &mut S) -> (Delivery, S::Acker) {
    soon(source.next()).await.unwrap()
}

/// Acks a delivery that must not be stale.
async fn ack(acker: impl Acker) {
    let settled = soon(acker.ack()).await.unwrap();
    assert_ne!(settled, Settled::Stale, "the delivery was still ours");
}

/// Takes the next delivery and acks it.
async fn take<S: Source>(source: &mut S) -> Delivery {
    let (delivery, acker) = next(source).await;
    ack(acker).await;
    delivery
}

/// Waits until the broker counts `ready` messages as ready: a count may trail the broker's replies.
async fn until_ready<W: World>(world: &W, ready: usize) {
    soon(async {
        while world.ready().await != ready {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The broker's ready count for this many waiting and unsettled messages.
fn counted<W: World>(waiting: usize, unsettled: usize) -> usize {
    waiting + if W::FEATURES.counts_unsettled { unsettled } else { 0 }
}

/// Asserts that nothing arrives. A broker has no signal for "nothing to send", so this waits a little.
async fn nothing_comes<S: Source>(source: &mut S) {
    let came = tokio::time::timeout(Duration::from_millis(100), source.next()).await;
    assert!(
        came.is_err(),
        "nothing was to come, but this came: {:?}",
        came.map(|next| next.map(|(delivery, _)| delivery))
    );
}
