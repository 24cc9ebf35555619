//! Which messages of an outbox follow each other in the order of a key.

use std::collections::{BTreeMap, BTreeSet};

use crate::traces::line::Line;
use crate::traces::trace_step::TraceStep;

/// A message, and the next one of its key.
pub(super) struct Staged<'a> {
    /// The key, for a report.
    pub(super) key: &'a str,
    /// The outbox; `None`: no relay has read the message.
    pub(super) outbox: Option<&'a str>,
    /// One message, or two.
    pub(super) messages: Vec<&'a str>,
}

/// Each message that is in these lines, with the next one of its key.
pub(super) fn queues(lines: &[Line]) -> Vec<Staged<'_>> {
    let mut keys: BTreeMap<(&str, &str), BTreeSet<(i64, &str)>> = BTreeMap::new();
    let named = lines.iter().map(|line| line.message.as_str()).filter(|message| !message.is_empty());
    let mut unread: BTreeSet<&str> = named.collect();
    for line in lines.iter().filter(|line| line.step == TraceStep::Read) {
        if unread.remove(line.message.as_str()) {
            let (order, id) = (line.values.order.as_deref().unwrap_or_default(), line.values.id.unwrap_or_default());
            keys.entry((line.key.as_str(), order)).or_default().insert((id, line.message.as_str()));
        }
    }
    let alone = |message| Staged { key: "", outbox: None, messages: vec![message] };
    let mut queues: Vec<Staged<'_>> = unread.into_iter().map(alone).collect();
    for ((outbox, key), messages) in keys {
        let mut messages: Vec<&str> = messages.into_iter().map(|(_, message)| message).collect();
        while !messages.is_empty() {
            // Messages without a key have no order.
            let two = if key.is_empty() { 1 } else { messages.len().min(2) };
            queues.push(Staged { key, outbox: Some(outbox), messages: messages[..two].to_vec() });
            messages.remove(0);
        }
    }
    queues
}
