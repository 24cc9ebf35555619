//! The order in which a worker handles deliveries.

/// The order in which a worker handles deliveries.
///
/// With any order but `None`, deliveries with the same ordering key are handled one after another: the next begins when
/// the one before is processed or dead. A failing message is retried in place, and the deliveries behind it wait. A
/// message that is replayed later by an operator runs out of order.
///
/// When the worker starts, a source rejects an order that its broker cannot guarantee.
///
/// ```
/// # use idem_core::{DeliveryOrder, Source, Store, Worker};
/// # fn add<S: Store>(store: S, orders: impl Source) {
/// // Kafka: the events of one order, by its record key, one after another; those of other orders at the same time.
/// let worker = Worker::new("billing", store, orders).order(DeliveryOrder::Key);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryOrder {
    /// No order: deliveries are handled as they arrive.
    #[default]
    None,
    /// Deliveries of the same partition are handled in order.
    Partition,
    /// Deliveries with the same broker key (Kafka's record key) are handled in order. The deliveries without a key in a
    /// partition are handled in order, too.
    Key,
    /// All deliveries of the queue are handled in order. The broker must deliver the queue to one consumer at a time.
    Queue,
}
