//! The id of a topic, which distinguishes a recreated topic from the old one.
//!
//! A topic that is deleted and recreated keeps its name but has another id. librdkafka continues in it at the old
//! offset, which skips the records below (the FIXME in `rd_kafka_topic_metadata_update`, 2.12.1), and reports the id
//! only in its log. The id is therefore read from the log and committed with each offset. An offset with the id of
//! another topic is ignored.

use std::panic::catch_unwind;

use rdkafka::topic_partition_list::TopicPartitionListElem;

/// The prefix of the id in the metadata of a committed offset.
const MARK: &str = "idem topic ";

/// The debug context of librdkafka that logs the id.
pub(crate) const LOG: &str = "metadata";

/// Parses a log line. Returns the topic and its new id.
pub(crate) fn read(line: &str) -> Option<(&str, &str)> {
    let (_, said) = line.split_once(": Topic ")?;
    let (topic, ids) = said.split_once(" changed id from ")?;
    Some((topic, ids.split_once(" to ")?.1.trim()))
}

/// The metadata that is committed with an offset.
pub(crate) fn metadata(id: &str) -> String {
    format!("{MARK}{id}")
}

/// Whether this offset was committed for another topic of this name. Offsets committed by other programs carry no id.
pub(crate) fn is_of_another(committed: &TopicPartitionListElem<'_>, id: &str) -> bool {
    // rdkafka panics if the metadata is not UTF-8. Only another program can have committed such metadata.
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
