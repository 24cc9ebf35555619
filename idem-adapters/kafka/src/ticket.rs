//! Identifies one delivery.

use crate::partition::TopicPartition;

/// Identifies one delivery of one assignment of its partition. Offsets may repeat in the next assignment; epochs do
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) partition: TopicPartition,
    pub(crate) offset: i64,
    /// Marked as redelivered, and not stored.
    pub(crate) marked: bool,
    /// The ordering key, if an order is kept.
    pub(crate) key: Option<u64>,
    pub(crate) bytes: usize,
    pub(crate) epoch: u64,
}
