//! Identifies one partition of one topic.

use std::fmt;
use std::sync::Arc;

/// One partition of one topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
}

impl TopicPartition {
    pub(crate) fn new(topic: &Arc<str>, number: i32) -> Self {
        Self { topic: Arc::clone(topic), number }
    }
}

/// For example `orders/0`.
impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.number)
    }
}
