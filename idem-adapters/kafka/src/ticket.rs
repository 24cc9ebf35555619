//! Identifies one delivery.

use std::sync::Arc;

use crate::assignment::Assignment;

/// Identifies one delivery of one assignment of its partition.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) offset: i64,
    /// Marked as redelivered, and not stored.
    pub(crate) marked: bool,
    /// The ordering key, if an order is kept.
    pub(crate) key: Option<u64>,
    pub(crate) bytes: usize,
}
