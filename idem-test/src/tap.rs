//! A source or a sink that wraps another one and overrides what a test needs.

use std::time::Duration;

use idem_core::{
    Acker, BoxError, Delivery, Lag, ReplayWindow, Settled, Sink, SinkError, Source, StagedMessage, SubscribeOptions,
};

/// The calls that [`Tapped`] changes. Each method gets the wrapped source and forwards the call by default, so that a
/// tap implements only what it changes.
///
/// ```
/// # use idem_core::{Acker, BoxError, Delivery, Settled, Source, Worker};
/// # use idem_test::tap::{AckTap, Tap, Tapped};
/// /// Loses every ack on its way to the broker.
/// struct LoseAcks;
///
/// impl Tap for LoseAcks {
///     type Ack = Self;
///
///     fn receive(&mut self, delivery: Delivery) -> (Delivery, Self) {
///         (delivery, Self)
///     }
/// }
///
/// impl AckTap for LoseAcks {
///     async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
///         drop(acker);
///         Ok(Settled::Sent)
///     }
/// }
///
/// let source = Tapped::new(idem_test::Broker::new().queue("orders"), LoseAcks);
/// # let _ = source.name();
/// ```
pub trait Tap: Send + 'static {
    /// Travels with each delivery until it is settled. Use `()` to leave settling unchanged.
    type Ack: AckTap;

    /// Changes a delivery on its way to the worker, and creates its ack tap.
    fn receive(&mut self, delivery: Delivery) -> (Delivery, Self::Ack);

    /// Replaces [`Source::subscribe`].
    fn subscribe<S: Source>(
        &mut self,
        source: &mut S,
        options: SubscribeOptions,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        source.subscribe(options)
    }

    /// Replaces [`Source::next`]. Must be cancel safe, as the original is.
    fn next<S: Source>(
        &mut self,
        source: &mut S,
    ) -> impl Future<Output = Result<(Delivery, S::Acker), BoxError>> + Send {
        source.next()
    }

    /// Replaces [`Source::has_partition_keys`].
    fn has_partition_keys<S: Source>(&self, source: &S) -> bool {
        source.has_partition_keys()
    }

    /// Replaces [`Source::has_event_types`].
    fn has_event_types<S: Source>(&self, source: &S) -> bool {
        source.has_event_types()
    }

    /// Replaces [`Source::has_subjects`].
    fn has_subjects<S: Source>(&self, source: &S) -> bool {
        source.has_subjects()
    }

    /// Replaces [`Source::queues`].
    fn queues<S: Source>(&self, source: &S) -> usize {
        source.queues()
    }

    /// Replaces [`Source::capacity`].
    fn capacity<S: Source>(&self, source: &S) -> Option<usize> {
        source.capacity()
    }
}

/// The calls that [`TappedAcker`] changes. It lives until the delivery is settled or dropped.
pub trait AckTap: Send + 'static {
    /// Replaces [`Acker::ack`].
    fn ack<A: Acker>(self, acker: A) -> impl Future<Output = Result<Settled, BoxError>> + Send
    where
        Self: Sized,
    {
        async move {
            let settled = acker.ack().await;
            drop(self);
            settled
        }
    }

    /// Runs before [`Acker::stored`].
    fn stored(&mut self) {}
}

/// Changes nothing.
impl AckTap for () {}

/// A source that forwards all calls to the wrapped source through its tap.
#[derive(Debug)]
pub struct Tapped<S, T> {
    source: S,
    tap: T,
}

impl<S, T> Tapped<S, T> {
    /// Wraps this source with this tap.
    pub fn new(source: S, tap: T) -> Self {
        Self { source, tap }
    }
}

impl<S: Source, T: Tap> Source for Tapped<S, T> {
    type Acker = TappedAcker<S::Acker, T::Ack>;

    fn system(&self) -> &'static str {
        self.source.system()
    }

    fn name(&self) -> &str {
        self.source.name()
    }

    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.tap.subscribe(&mut self.source, options).await
    }

    fn replay_window(&self) -> ReplayWindow {
        self.source.replay_window()
    }

    fn has_positions(&self) -> bool {
        self.source.has_positions()
    }

    fn has_partition_keys(&self) -> bool {
        self.tap.has_partition_keys(&self.source)
    }

    fn has_event_types(&self) -> bool {
        self.tap.has_event_types(&self.source)
    }

    fn has_subjects(&self) -> bool {
        self.tap.has_subjects(&self.source)
    }

    fn unsettled_limit(&self) -> Option<Duration> {
        self.source.unsettled_limit()
    }

    fn queues(&self) -> usize {
        self.tap.queues(&self.source)
    }

    fn capacity(&self) -> Option<usize> {
        self.tap.capacity(&self.source)
    }

    fn lag(&self) -> Option<Lag> {
        self.source.lag()
    }

    async fn next(&mut self) -> Result<(Delivery, Self::Acker), BoxError> {
        let (delivery, acker) = self.tap.next(&mut self.source).await?;
        let (delivery, tap) = self.tap.receive(delivery);
        Ok((delivery, TappedAcker { acker, tap }))
    }

    async fn drain(&mut self) {
        self.source.drain().await;
    }

    async fn close(&mut self) {
        self.source.close().await;
    }
}

/// The acker of a delivery from [`Tapped`].
#[derive(Debug)]
pub struct TappedAcker<A, T> {
    acker: A,
    tap: T,
}

impl<A: Acker, T: AckTap> Acker for TappedAcker<A, T> {
    async fn ack(self) -> Result<Settled, BoxError> {
        self.tap.ack(self.acker).await
    }

    fn stored(&mut self) {
        self.tap.stored();
        self.acker.stored();
    }

    async fn release(self) -> Result<Settled, BoxError> {
        let settled = self.acker.release().await;
        drop(self.tap);
        settled
    }

    fn is_live(&self) -> bool {
        self.acker.is_live()
    }
}

/// The calls that [`TappedSink`] changes. Each method gets the wrapped sink and forwards the call by default.
#[doc(hidden)]
pub trait SinkTap: Send + Sync + 'static {
    /// Replaces [`Sink::open`].
    fn open<K: Sink>(&self, sink: &K) -> impl Future<Output = Result<(), SinkError>> + Send {
        sink.open()
    }

    /// Replaces [`Sink::publish`].
    fn publish<K: Sink>(
        &self,
        sink: &K,
        message: &StagedMessage,
    ) -> impl Future<Output = Result<(), SinkError>> + Send {
        sink.publish(message)
    }
}

/// A sink that forwards all calls to the wrapped sink through its tap.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct TappedSink<K, T> {
    sink: K,
    tap: T,
}

impl<K, T> TappedSink<K, T> {
    /// Wraps this sink with this tap.
    pub fn new(sink: K, tap: T) -> Self {
        Self { sink, tap }
    }
}

impl<K: Sink, T: SinkTap> Sink for TappedSink<K, T> {
    fn system(&self) -> &'static str {
        self.sink.system()
    }

    fn name(&self) -> &str {
        self.sink.name()
    }

    fn limit(&self) -> Option<usize> {
        self.sink.limit()
    }

    async fn open(&self) -> Result<(), SinkError> {
        self.tap.open(&self.sink).await
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        self.tap.publish(&self.sink, message).await
    }

    async fn close(&self) {
        self.sink.close().await;
    }
}
