//! The store in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::store::Answer;
use crate::{Error, Fingerprint};

use super::{Acquired, Completed, Held, Id, KeyValueStore, Letter, LetterFilter, Resolve};

/// The wait for a message whose writes are half applied, until somebody has buried it.
const HALF: Duration = Duration::from_secs(1);

/// A key-value store in memory, for tests of handlers. Clones share their records. Time is that of Tokio, so a test may pause it.
///
/// `W` are the writes of the store for which it stands in, such as `RedisWrites`. They are recorded and not interpreted.
///
/// ```
/// # use idem_core::key_value::{KeyValue, Memory};
/// let memory: Memory<Vec<String>> = Memory::new();
/// let engine = KeyValue::new(memory.clone()); // for `Worker::new`
/// assert!(memory.applied().is_empty());
/// ```
pub struct Memory<W = ()> {
    shared: Arc<Shared<W>>,
}

struct Shared<W> {
    records: Mutex<HashMap<Vec<u8>, Record>>,
    applied: Mutex<Vec<W>>,
    completing: Mutex<Option<Answering<W>>>,
}

type Answering<W> = Box<dyn Fn(&W) -> Completed + Send>;

struct Record {
    fingerprint: Fingerprint,
    token: Uuid,
    state: State,
    /// When it ends.
    keep_until: Option<Instant>,
    /// Its dead letter, also while the message that is replayed runs.
    letter: Option<Box<Letter>>,
}

enum State {
    Running { until: Instant, starts: u32 },
    Done { since: Instant },
    Half { why: String },
    Dead { since: Instant },
}

impl<W> Clone for Memory<W> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<W> fmt::Debug for Memory<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("records", &self.shared.records.lock().len()).finish_non_exhaustive()
    }
}

impl<W> Default for Memory<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Memory<W> {
    /// Returns an empty store.
    pub fn new() -> Self {
        let shared = Shared { records: Mutex::default(), applied: Mutex::default(), completing: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Lets completions be answered by what they write: a test of a handler whose writes are refused, or half applied.
    pub fn completing(self, answer: impl Fn(&W) -> Completed + Send + 'static) -> Self {
        *self.shared.completing.lock() = Some(Box::new(answer));
        self
    }
}

impl<W: Clone> Memory<W> {
    /// Returns the writes that were applied, one of each message, in their order.
    pub fn applied(&self) -> Vec<W> {
        self.shared.applied.lock().clone()
    }
}

impl<W> Memory<W> {
    /// Changes a record, after those have ended whose time is over.
    fn with<T>(&self, id: &Id, change: impl FnOnce(&mut HashMap<Vec<u8>, Record>, Vec<u8>, Instant) -> T) -> T {
        let (mut records, name, now) = (self.shared.records.lock(), id.name(), Instant::now());
        if records.get(&name).is_some_and(|record| record.keep_until.is_some_and(|end| end <= now)) {
            records.remove(&name);
        }
        change(&mut records, name, now)
    }
}

impl<W: Default + Clone + Send + Sync + 'static> KeyValueStore for Memory<W> {
    type Writes = W;

    fn name(&self) -> String {
        "memory".to_owned()
    }

    async fn check(&self, _: Duration) -> Result<(), Error> {
        Ok(())
    }

    async fn acquire(
        &self,
        id: &Id,
        fingerprint: Fingerprint,
        token: Uuid,
        lease: Duration,
        keep: Duration,
    ) -> Answer<Acquired> {
        Ok(self.with(id, |records, name, now| {
            let record = records.entry(name).or_insert_with(|| Record {
                fingerprint,
                token,
                state: State::Running { until: now, starts: 0 },
                keep_until: None,
                letter: None,
            });
            match &mut record.state {
                State::Running { until, starts } => {
                    if record.token != token && *until > now {
                        return Acquired::Busy { left: *until - now };
                    }
                    if record.token != token || *starts == 0 {
                        *starts += 1;
                    }
                    *until = now + lease;
                    let starts = *starts;
                    record.keep_until = record.letter.is_none().then(|| now + keep);
                    (record.token, record.fingerprint) = (token, fingerprint);
                    Acquired::New { starts, now: SystemTime::now() }
                }
                State::Done { since } | State::Dead { since } => {
                    Acquired::Done { fingerprint: record.fingerprint, age: now - *since }
                }
                State::Half { .. } if record.fingerprint != fingerprint => Acquired::Busy { left: HALF },
                State::Half { why } => {
                    record.token = token;
                    Acquired::HalfApplied(why.clone())
                }
            }
        }))
    }

    async fn renew(&self, id: &Id, token: Uuid, lease: Duration) -> Answer<Held> {
        Ok(self.with(id, |records, name, now| match records.get_mut(&name) {
            Some(Record { token: held, state: State::Running { until, .. }, keep_until, .. }) if *held == token => {
                *until = now + lease;
                *keep_until = keep_until.map(|end| end.max(now + 2 * lease));
                Held::Yes
            }
            _ => Held::Lost,
        }))
    }

    async fn complete(&self, id: &Id, token: Uuid, keep: Duration, writes: &W) -> Answer<Completed> {
        Ok(self.with(id, |records, name, now| {
            let Some(record) = records.get_mut(&name).filter(|record| record.token == token) else {
                return Completed::Lost;
            };
            match &record.state {
                State::Done { .. } => return Completed::Yes,
                State::Half { why } => return Completed::HalfApplied(why.clone()),
                State::Dead { .. } => return Completed::Lost,
                State::Running { .. } => {}
            }
            let completed = self.shared.completing.lock().as_ref().map_or(Completed::Yes, |answer| answer(writes));
            match &completed {
                Completed::Yes => {
                    self.shared.applied.lock().push(writes.clone());
                    (record.state, record.keep_until) = (State::Done { since: now }, Some(now + keep));
                    record.letter = None;
                }
                Completed::HalfApplied(why) => {
                    (record.state, record.keep_until) = (State::Half { why: why.clone() }, None);
                    record.letter = None;
                }
                Completed::Lost | Completed::Refused(_) => {}
            }
            completed
        }))
    }

    async fn release(&self, id: &Id, token: Uuid) -> Answer<Held> {
        Ok(self.with(id, |records, name, now| match records.get_mut(&name) {
            Some(Record { token: held, state: State::Running { until, starts }, letter, .. }) if *held == token => {
                if *starts <= 1 && letter.is_none() {
                    records.remove(&name);
                } else {
                    *starts = starts.saturating_sub(1);
                    *until = now;
                    *held = Uuid::nil();
                }
                Held::Yes
            }
            _ => Held::Lost,
        }))
    }

    async fn bury(&self, id: &Id, token: Uuid, letter: &Letter) -> Answer<Held> {
        Ok(self.with(id, |records, name, now| {
            let Some(record) = records.get_mut(&name).filter(|record| record.token == token) else {
                return Held::Lost;
            };
            match record.state {
                State::Done { .. } => Held::Lost,
                State::Dead { .. } => Held::Yes,
                State::Running { .. } | State::Half { .. } => {
                    record.state = State::Dead { since: now };
                    (record.letter, record.keep_until) = (Some(Box::new(letter.clone())), None);
                    Held::Yes
                }
            }
        }))
    }

    async fn dead(&self, filter: &LetterFilter) -> Answer<Vec<Letter>> {
        let records = self.shared.records.lock();
        let letters = records.values().filter_map(|record| record.letter.as_deref());
        let letters = letters.filter(|letter| filter.matches(letter)).cloned();
        Ok(letters.take(filter.limit).collect())
    }

    async fn resolve(&self, id: &Id, how: Resolve, keep: Duration) -> Answer<bool> {
        Ok(self.with(id, |records, name, now| {
            let Some(record) = records.get_mut(&name).filter(|record| record.letter.is_some()) else { return false };
            match how {
                Resolve::Replay if matches!(record.state, State::Dead { .. }) => {
                    record.token = Uuid::nil();
                    record.state = State::Running { until: now, starts: 0 };
                }
                // It is replayed already, and a run of it goes on.
                Resolve::Replay => {}
                Resolve::Discard => {
                    (record.token, record.letter) = (Uuid::nil(), None);
                    (record.state, record.keep_until) = (State::Done { since: now }, Some(now + keep));
                }
            }
            true
        }))
    }
}
