//! The suite for sources: what the worker relies on, whatever the broker.

mod lag;
mod loss;
mod settling;
mod sharing;
mod transport;

use std::time::Duration;

use idem_core::{Acker, Delivery, Settled, Source, Terms};

use crate::Publication;

use super::soon;

pub use lag::*;
pub use loss::*;
pub use settling::*;
pub use sharing::*;
pub use transport::*;

/// One queue of a broker, made for one test.
pub trait World: Sized + Send + Sync + 'static {
    /// The source under test.
    type Source: Source;

    /// What the broker can do.
    const FEATURES: Features;

    /// A new, empty queue. `None` where the broker cannot be reached and need not be; that is printed.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// The subject of what is published here, where the broker has subjects.
    fn subject(&self) -> Option<String> {
        None
    }

    /// Puts a message into the queue; it is there when the future is ready.
    fn publish(&self, publication: Publication) -> impl Future<Output = ()> + Send;

    /// Makes a queue that two sources can share, where that is not so from the start.
    fn share(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// A source of the queue, not yet opened.
    fn source(&self) -> impl Future<Output = Self::Source> + Send;

    /// Cuts the connections of all sources, as a broker that dies does.
    fn cut(&self) -> impl Future<Output = ()> + Send;

    /// How many messages wait to be handed out, as the broker counts them.
    fn ready(&self) -> impl Future<Output = usize> + Send;
}

/// What a broker can do.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// It carries a message id beside the headers.
    pub message_id: bool,
    /// It carries a type of event beside the headers.
    pub event_type: bool,
    /// It carries a content type: beside the headers, or as the header `content-type`.
    pub content_type: bool,
    /// It carries a correlation id and a place for the answer beside the headers.
    pub correlation: bool,
    /// It carries a key by which it chooses a partition.
    pub partition_key: bool,
    /// It carries a time of the producer's.
    pub produced_at: bool,
    /// A header's value may hold any bytes, and not only text.
    pub header_bytes: bool,
    /// It marks what it had delivered before.
    pub redelivered: bool,
    /// It cannot tell what it had delivered before, and so marks the first deliveries of each subscription.
    pub presumes: bool,
    /// It confirms acks.
    pub confirms: bool,
    /// It takes a single delivery back, and delivers it again at once. Otherwise that comes again when the subscription
    /// has ended.
    pub releases: bool,
    /// A delivery outlives its connection: it is still ours after a loss, does not come again, and can be settled.
    pub survives: bool,
    /// What was released is among what it counts as ready.
    pub counts_released: bool,
    /// What is handed out and unsettled is among what it counts as ready.
    pub counts_unsettled: bool,
    /// The source tells its [`lag`](Source::lag).
    pub lag: bool,
}

/// Stamps the suite for a [`World`]: `source_suite!(path::to::World);`
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

/// The terms of most cases.
fn terms(in_flight: u16) -> Terms {
    Terms::new("billing", in_flight)
}

/// A source that is open.
async fn open<W: World>(world: &W, in_flight: u16) -> W::Source {
    let mut source = world.source().await;
    soon(source.open(terms(in_flight))).await.unwrap();
    source
}

/// The next delivery, which must be there.
async fn next<S: Source>(source: &mut S) -> (Delivery, S::Acker) {
    soon(source.next()).await.unwrap()
}

/// Acks what must still be ours.
async fn ack(acker: impl Acker) {
    let settled = soon(acker.ack()).await.unwrap();
    assert_ne!(settled, Settled::Stale, "the delivery was still ours");
}

/// What comes next, and is then acked.
async fn take<S: Source>(source: &mut S) -> Delivery {
    let (delivery, acker) = next(source).await;
    ack(acker).await;
    delivery
}

/// Waits until the broker counts so many as ready: a count may lag behind what was answered.
async fn until_ready<W: World>(world: &W, ready: usize) {
    soon(async {
        while world.ready().await != ready {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What the broker counts, where so many wait and so many are handed out.
fn counted<W: World>(waiting: usize, unsettled: usize) -> usize {
    waiting + if W::FEATURES.counts_unsettled { unsettled } else { 0 }
}

/// Asserts that nothing comes. A broker that is about to send has no signal for "nothing", so this waits a little.
async fn nothing_comes<S: Source>(source: &mut S) {
    let came = tokio::time::timeout(Duration::from_millis(100), source.next()).await;
    assert!(
        came.is_err(),
        "nothing was to come, but this came: {:?}",
        came.map(|next| next.map(|(delivery, _)| delivery))
    );
}
