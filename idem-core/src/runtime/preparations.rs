//! Which message of a handler may prepare its codec now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::HandlerId;

use super::waits::{hold_wait, refused_wait};

/// Lets one message of each handler prepare at a time: a delivery, an inbox row or an external call. Until it has ended, and
/// after a failure until the next try, the others of that handler wait. What a registry that is away costs is then one try
/// after another, however many messages need it. Other handlers do not wait.
#[derive(Debug, Default)]
pub(crate) struct Preparations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    handlers: HashMap<HandlerId, Turns>,
    /// The rows that have asked for a preparation: when, and whether it has succeeded since.
    rows: HashMap<i64, (Instant, bool)>,
}

#[derive(Debug, Default)]
struct Turns {
    is_taken: bool,
    /// How many preparations in a row have failed.
    failed: usize,
    not_before: Option<Instant>,
}

/// The turn of one message, until this is dropped.
pub(crate) struct Preparing {
    of: Arc<Preparations>,
    handler: HandlerId,
}

/// For how long a row is remembered that needs a preparation: for longer than any delay.
const WANTED: Duration = Duration::from_secs(600);

/// A row that asks again this soon after a preparation has succeeded has a codec that forgets.
const FORGETS: Duration = Duration::from_secs(10);

impl Preparations {
    /// Returns the turn to prepare for a message of this handler, or the time after which it may be asked for again.
    pub(crate) fn turn(self: &Arc<Self>, handler: HandlerId) -> Result<Preparing, Duration> {
        let mut state = self.0.lock();
        let turns = state.handlers.entry(handler).or_default();
        let left = turns.not_before.map(|time| time.saturating_duration_since(Instant::now())).unwrap_or_default();
        if !left.is_zero() {
            return Err(left);
        }
        if turns.is_taken {
            return Err(hold_wait(turns.failed));
        }
        turns.is_taken = true;
        Ok(Preparing { of: self.clone(), handler })
    }

    /// Remembers that a row has asked for a preparation. Returns whether one has succeeded for it just before.
    pub(crate) fn asked_by(&self, id: i64) -> bool {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.rows.retain(|_, (at, done)| now.duration_since(*at) < if *done { FORGETS } else { WANTED });
        state.rows.insert(id, (now, false)).is_some_and(|(_, done)| done)
    }
}

impl Preparing {
    /// Records a success. `row`: the row for which it was.
    pub(super) fn succeeded(&self, row: Option<i64>) {
        let mut state = self.of.0.lock();
        state.handlers.remove(&self.handler);
        state.rows.extend(row.map(|id| (id, (Instant::now(), true))));
    }

    /// Records a failure. Returns how many there were in a row, and the time after which this message may try again: a bit
    /// later than the others of its handler, so that they have their turns as well.
    pub(super) fn failed(&self) -> (usize, Duration) {
        let mut state = self.of.0.lock();
        let turns = state.handlers.entry(self.handler).or_default();
        let wait = refused_wait(turns.failed);
        turns.failed += 1;
        turns.not_before = Some(Instant::now() + wait);
        (turns.failed, wait.mul_f64(1.1))
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        if let Some(turns) = self.of.0.lock().handlers.get_mut(&self.handler) {
            turns.is_taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: HandlerId = HandlerId(1);
    const REFUNDS: HandlerId = HandlerId(2);

    #[tokio::test(start_paused = true)]
    async fn one_message_of_a_handler_prepares_at_a_time() {
        let preparations = Arc::<Preparations>::default();
        let first = preparations.turn(ORDERS).ok().unwrap();
        assert!(preparations.turn(ORDERS).is_err() && preparations.turn(REFUNDS).is_ok());
        drop(first);
        assert!(preparations.turn(ORDERS).is_ok(), "a preparation that was dropped is none");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_another_message_has_the_next_turn() {
        let preparations = Arc::<Preparations>::default();
        let mut waits = Vec::new();
        for tries in 1..=9 {
            let turn = preparations.turn(ORDERS).ok().unwrap();
            let (failed, own) = turn.failed();
            drop(turn);
            let others = preparations.turn(ORDERS).err().unwrap();
            assert!(failed == tries && others < own, "{others:?} {own:?}");
            tokio::time::advance(others).await;
            waits.push(others);
        }
        assert!(waits[0] < Duration::from_secs(1) && waits[8] > Duration::from_secs(10), "{waits:?}");
        preparations.turn(ORDERS).ok().unwrap().succeeded(None);
        assert!(preparations.turn(ORDERS).is_ok(), "the others go on at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_asks_again_at_once_has_a_codec_that_forgets() {
        let preparations = Arc::<Preparations>::default();
        assert!(!preparations.asked_by(7));
        preparations.turn(ORDERS).ok().unwrap().succeeded(Some(7));
        assert!(preparations.asked_by(7) && !preparations.asked_by(7));
        preparations.turn(ORDERS).ok().unwrap().succeeded(Some(7));
        tokio::time::advance(FORGETS).await;
        assert!(!preparations.asked_by(7), "it was long ago");
    }
}
