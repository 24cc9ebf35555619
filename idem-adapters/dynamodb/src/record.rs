//! A record, as DynamoDB returns it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_core::key_value::Id;
use idem_core::store::StoreError;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use uuid::Uuid;

use crate::item::Attributes;

/// The partition key.
pub(crate) const PK: &str = "pk";

/// What is escaped beside all that is not ASCII, so that a name is text and no two ids share one.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// Returns the partition key of a record.
pub(crate) fn name(id: &Id) -> String {
    percent_encode(&id.name(), ESCAPED).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Done,
    Dead,
}

pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) token: Vec<u8>,
    /// The end of the lease.
    pub(crate) until: u64,
    /// When it was completed or buried.
    pub(crate) at: u64,
    pub(crate) starts: u32,
    /// The second from which it counts as absent.
    ttl: Option<u64>,
    /// Empty without one. A message that runs has one behind a replay. If it has more parts, this is the first.
    pub(crate) letter: Vec<u8>,
    /// How many more.
    pub(crate) parts: usize,
    /// The fingerprint of the whole letter.
    pub(crate) sum: Vec<u8>,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// Another program or version has written it.
    pub(crate) fn read(item: &Attributes) -> Result<Self, StoreError> {
        let number = |name: &str| item.get(name).and_then(|value| value.as_n().ok()?.parse::<u64>().ok());
        let bytes = |name| bytes(item, name);
        let state = match item.get("state").and_then(|value| value.as_s().ok()).map(String::as_str) {
            Some("running") => State::Running,
            Some("done") => State::Done,
            Some("dead") => State::Dead,
            _ => {
                let why = "under the name of a record is an item with another state, which another program or version has written";
                return Err(StoreError::Message(why.into()));
            }
        };
        Ok(Self {
            state,
            fingerprint: bytes("fingerprint"),
            token: bytes("token"),
            until: number("until").unwrap_or_default(),
            at: number("at").unwrap_or_default(),
            starts: number("starts").and_then(|starts| u32::try_from(starts).ok()).unwrap_or_default(),
            ttl: number("ttl"),
            letter: bytes("letter"),
            parts: number("parts").and_then(|parts| usize::try_from(parts).ok()).unwrap_or_default(),
            sum: bytes("sum"),
        })
    }

    /// Returns whether it has ended, although DynamoDB has not deleted it yet.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.ttl.is_some_and(|end| end <= now / 1000)
    }

    /// Returns whether this token has the lease.
    pub(crate) fn is_held_by(&self, token: Uuid) -> bool {
        self.state == State::Running && self.token == token.as_bytes()
    }
}

/// Returns the bytes of an attribute; none if it has other ones.
pub(crate) fn bytes(item: &Attributes, name: &str) -> Vec<u8> {
    let bytes = item.get(name).and_then(|value| value.as_b().ok());
    bytes.map(|bytes| bytes.as_ref().to_vec()).unwrap_or_default()
}

/// Returns the milliseconds since 1970, by the clock of this machine.
pub(crate) fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// Returns the second from which a record counts as absent, so long after now.
pub(crate) fn ttl(now: u64, keep: Duration) -> u64 {
    (now + millis(keep)).div_ceil(1000)
}
