//! The partitions that have stalled, and those that receive records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::Assigned;
use super::partition::Partition;
use crate::partition::TopicPartition;
use crate::stall::Stall;

impl Assigned {
    /// The state of a partition that may have stalled. `None` if it is not assigned to this member.
    pub(crate) fn stall(&mut self, partition: &TopicPartition) -> Option<&mut Stall> {
        self.of(partition).map(|owned| &mut owned.stall)
    }

    /// The stalled partitions that are to be tried again, each with the offset of the next record to receive, if known.
    pub(crate) fn due(&self, now: Instant) -> Vec<(TopicPartition, Option<i64>)> {
        let due = |owned: &Partition| !owned.leaving && owned.stall.is_due(now);
        let due = self.partitions.values().filter(|owned| due(owned));
        due.map(|owned| (owned.assignment.partition.clone(), owned.place())).collect()
    }

    /// The partitions that receive records, each with the offset of the next one, if known.
    pub(crate) fn receiving(&self) -> BTreeMap<TopicPartition, Option<i64>> {
        let receives = |owned: &Partition| !owned.leaving && owned.stall.receives();
        let receiving = self.partitions.values().filter(|owned| receives(owned));
        receiving.map(|owned| (owned.assignment.partition.clone(), owned.place())).collect()
    }

    /// The number of stalled partitions of each topic that has any.
    pub(crate) fn stalled(&self) -> BTreeMap<Arc<str>, usize> {
        let mut stalled = BTreeMap::new();
        for owned in self.partitions.values().filter(|owned| owned.stall.cause().is_some()) {
            *stalled.entry(Arc::clone(&owned.assignment.partition.topic)).or_default() += 1;
        }
        stalled
    }
}
