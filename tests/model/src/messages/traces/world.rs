//! The world of one key, or of two: the messages and processes, as the lines name them.

use crate::messages::facts::Left;
use crate::messages::scenario::{Handler, Message, Scenario};
use crate::messages::state::MESSAGES;
use crate::traces::line::Line;
use crate::traces::lines::Lines;
use crate::traces::names::number;

/// Every failure may come, and none of them runs out: after each step there are as many left. Time stands still, and
/// nothing is pruned.
pub(super) const LEFT: Left = Left {
    kills: 9,
    outages: 0,
    pauses: 9,
    losses: 9,
    returns: 9,
    prunes: 0,
    orders: 9,
    forgets: 0,
    ticks: 0,
    again: 9,
};

/// How many deliveries of each message may be unsettled at once, by the number of messages.
const COPIES: [&[u8]; MESSAGES] = [&[4], &[3, 2], &[2, 2, 1]];

/// The lines of one key, or of two, and the scenario that they must be a path of.
pub(super) struct World {
    pub(super) lines: Lines,
    /// The key of each line, by its place; 0 if it may be any.
    pub(super) key_of: Vec<usize>,
    /// The message of each line, unless it may be any.
    pub(super) message_of: Vec<Option<u8>>,
    /// The names of the messages: their keys and fingerprints.
    pub(super) messages: Vec<(usize, String)>,
    /// Handlers that may do anything: the lines say what they did.
    pub(super) scenario: Scenario,
}

impl World {
    /// The world of these lines. The error is that the model has no room for so many messages.
    pub(super) fn new(keys: &[&str], lines: Vec<Line>) -> Result<Self, String> {
        let name = match keys {
            [key] => format!("the key {key:?}"),
            keys => format!("the keys {keys:?} together"),
        };
        let mut messages = Vec::new();
        let key_of: Vec<usize> =
            lines.iter().map(|line| keys.iter().position(|key| *key == line.key).unwrap_or_default()).collect();
        let message = |(line, key): (&Line, &usize)| {
            (!line.message.is_empty()).then(|| number(&mut messages, &(*key, line.message.clone())))
        };
        let places: Vec<Option<usize>> = lines.iter().zip(&key_of).map(message).collect();
        let Some(copies) = messages.len().checked_sub(1).and_then(|more| COPIES.get(more)) else {
            return Err(format!("{name}: {} messages, and the model has 1 to {MESSAGES}", messages.len()));
        };
        let key = |place: usize| messages.get(place).and_then(|(key, _)| u8::try_from(*key).ok()).unwrap_or_default();
        let new = |(place, copies): (usize, &u8)| Message::new(key(place), Handler::Anything).copies(*copies);
        let known: Vec<Message> = copies.iter().enumerate().map(new).collect();
        let message_of = places.into_iter().map(|place| place.and_then(|place| u8::try_from(place).ok())).collect();
        let scenario = Scenario::new("a trace", known.leak(), LEFT);
        Ok(Self { lines: Lines::new(name, lines), key_of, message_of, messages, scenario })
    }
}
