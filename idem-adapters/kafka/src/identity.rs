//! The id of a topic, which distinguishes a recreated topic from the old one.
//!
//! A topic that is deleted and recreated keeps its name but has another id. librdkafka continues in it at the old
//! offset, which skips the records below (the FIXME in `rd_kafka_topic_metadata_update`, 2.12.1), and reports the id
//! only in its log. The id is therefore read from the log and committed with each offset. An offset with the id of
//! another topic is ignored.
#![expect(unsafe_code, reason = "rdkafka panics at metadata that are not UTF-8, and has no other way to read them")]

use std::ffi::CString;
use std::slice;

use rdkafka::TopicPartitionList;
use rdkafka::bindings::rd_kafka_topic_partition_list_find;

use crate::partition::TopicPartition;

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

/// Whether the offset of this partition was committed for another topic of this name. Offsets committed by other
/// programs carry no id, and may have any bytes as metadata.
pub(crate) fn is_of_another(committed: &TopicPartitionList, partition: &TopicPartition, id: &str) -> bool {
    let metadata = bytes(committed, partition).unwrap_or_default();
    metadata.strip_prefix(MARK.as_bytes()).is_some_and(|of| of != id.as_bytes())
}

/// The metadata of the offset of this partition.
fn bytes<'a>(list: &'a TopicPartitionList, partition: &TopicPartition) -> Option<&'a [u8]> {
    let topic = CString::new(&*partition.topic).ok()?;
    // SAFETY: the list and the name outlive the call. The result is null or an element of the list, which is not changed
    // while it is borrowed.
    let element = unsafe { rd_kafka_topic_partition_list_find(list.ptr(), topic.as_ptr(), partition.number).as_ref() }?;
    if element.metadata.is_null() {
        return None;
    }
    // SAFETY: the metadata have this many bytes, and live as long as the list.
    Some(unsafe { slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size) })
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
    #[test]
    fn metadata_that_are_not_utf8_are_read_like_any_other() {
        let partition = TopicPartition { topic: "orders".into(), number: 3 };
        let mut list = TopicPartitionList::new();
        list.add_partition("orders", 3);
        assert!(!is_of_another(&list, &partition, "a"));
        list = TopicPartitionList::new();
        list.add_partition("orders", 3).set_metadata(metadata("a"));
        assert!(!is_of_another(&list, &partition, "a") && is_of_another(&list, &partition, "b"));
        assert!(!is_of_another(&list, &TopicPartition { number: 4, ..partition.clone() }, "b"));
        let change = |at: usize| {
            // SAFETY: the list has one element, whose metadata are longer than this.
            unsafe { *(*(*list.ptr()).elems).metadata.cast::<u8>().add(at) = 0xff };
        };
        change(MARK.len());
        assert!(is_of_another(&list, &partition, "a"), "the id is another");
        change(0);
        assert!(!is_of_another(&list, &partition, "a"), "it is not from idem");
    }
}
