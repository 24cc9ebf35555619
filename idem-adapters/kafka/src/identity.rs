//! Which topic of its name it is.
//!
//! A topic that is deleted and recreated has its old name and another id. librdkafka goes on in it at the old offset, which
//! skips what is below (the FIXME in `rd_kafka_topic_metadata_update`, 2.12.1), and tells of the id only in its log. So
//! that is where it is read, and it is committed with each offset: an offset of another topic counts for nothing.

use std::panic::catch_unwind;

use rdkafka::topic_partition_list::TopicPartitionListElem;

/// The prefix of the id in the metadata of a committed offset.
const MARK: &str = "idem topic ";

/// The part of librdkafka's log that it is in.
pub(crate) const LOG: &str = "metadata";

/// The topic, and the id that a line of the log says it has now.
pub(crate) fn read(line: &str) -> Option<(&str, &str)> {
    let (_, said) = line.split_once(": Topic ")?;
    let (topic, ids) = said.split_once(" changed id from ")?;
    Some((topic, ids.split_once(" to ")?.1.trim()))
}

/// The metadata that is committed with an offset.
pub(crate) fn metadata(id: &str) -> String {
    format!("{MARK}{id}")
}

/// Whether this offset was committed for another topic of the name. Offsets committed by other programs carry no id.
pub(crate) fn is_of_another(committed: &TopicPartitionListElem<'_>, id: &str) -> bool {
    // rdkafka panics at what is not UTF-8, which only another program can have committed.
    let committed = std::panic::AssertUnwindSafe(committed);
    let metadata = catch_unwind(|| committed.metadata().to_owned()).unwrap_or_default();
    metadata.strip_prefix(MARK).is_some_and(|of| of != id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_read_from_the_line_that_has_it() {
        let line = "[thrd:main]: Topic orders changed id from AAAAAAAAAAAAAAAAAAAAAA to lYgg6PoVRa2pD5xGs1fZMw";
        assert_eq!(read(line), Some(("orders", "lYgg6PoVRa2pD5xGs1fZMw")));
        assert_eq!(read("[thrd:main]: Topic orders [0] Leader 1 Epoch 0"), None);
    }
}
