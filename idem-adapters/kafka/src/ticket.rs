//! Which delivery it is.

use crate::partition::TopicPartition;

/// Names one delivery of one assignment of its partition. Offsets come again in the next assignment, epochs do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) partition: TopicPartition,
    pub(crate) offset: i64,
    /// Its ordering key, where an order is kept.
    pub(crate) key: Option<u64>,
    pub(crate) bytes: usize,
    pub(crate) epoch: u64,
}
