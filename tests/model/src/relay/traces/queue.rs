//! The lines of a message and of the next one of its key, and the world that they make.

use super::staged::Staged;
use crate::relay::state::Left;
use crate::relay::world::World;
use crate::traces::line::Line;
use crate::traces::lines::Lines;

/// Every failure may come, and none of them runs out. A message that is read was committed.
pub(super) const LEFT: Left = Left { kills: 9, pauses: 9, losses: 9, rollbacks: 0, returns: 9 };

/// The lines of one message or of two, and the world that they must be a path of.
pub(super) struct Queue {
    pub(super) lines: Lines,
    /// The message of each line, unless it is about the lease.
    pub(super) message_of: Vec<Option<u8>>,
    /// The names of the messages.
    pub(super) messages: Vec<String>,
    /// A broker that may do anything: the lines say what it did.
    pub(super) world: World,
}

impl Queue {
    /// The lines of these messages, of their lease until the last of these, and of the ends of the processes.
    pub(super) fn new(lines: &[Line], staged: &Staged<'_>) -> Self {
        let is_of = |line: &&Line| staged.messages.contains(&line.message.as_str());
        let last = lines.iter().filter(is_of).map(|line| line.end.unwrap_or(line.begin)).max().unwrap_or_default();
        // A lease whose acquisition had no answer may be any.
        let is_of_lease = |line: &&Line| {
            let is_lease = line.message.is_empty() && (line.key.is_empty() || Some(line.key.as_str()) == staged.outbox);
            is_lease && line.begin <= last
        };
        let own: Vec<Line> = lines.iter().filter(|line| is_of(line) || is_of_lease(line)).cloned().collect();
        let place = |line: &Line| staged.messages.iter().position(|message| *message == line.message);
        let message_of = own.iter().map(|line| u8::try_from(place(line)?).ok()).collect();
        Self {
            lines: Lines::new(format!("the outbox, in the order of the key {:?}", staged.key), own),
            message_of,
            messages: staged.messages.iter().map(|message| (*message).to_owned()).collect(),
            world: World::traced(staged.messages.len(), LEFT),
        }
    }
}
