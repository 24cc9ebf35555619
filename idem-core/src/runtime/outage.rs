//! The availability of the database, and the pause while it is unavailable.

use std::time::Duration;

use backon::ExponentialBackoff;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::store::StoreError;
use crate::{BoxError, Engine};

use super::health::Health;
use super::persist::{Rate, growing_waits, short};

/// The availability of the database. While it is unavailable, no delivery is taken from the broker and those already
/// received are parked.
pub(crate) struct Outage {
    state: watch::Sender<State>,
    /// How many deliveries may be unsettled, unless the source takes less at present.
    most: usize,
    health: Health,
    /// Asks for a ping: a connection was lost, or claims are held up for long. Work continues meanwhile.
    doubt: Notify,
    /// When a lost connection was last logged.
    logged: Rate,
    /// When it was last pinged because claims were held up.
    asked: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    database: Database,
    /// The deliveries that the database refuses one by one.
    refused: usize,
    /// How many may be unsettled at present. If all of them are refused, no further delivery can be taken.
    capacity: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    Up,
    /// It did not answer a ping.
    Away,
    /// It has answered, and refused its work.
    Refuses,
}

/// How long the database may take to answer a ping after a connection was lost.
const ANSWER: Duration = Duration::from_secs(2);

/// The minimum interval between two log lines about lost connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The longest delay before work goes on with a database that has answered and refused it.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a database has to work before these delays start again from the shortest.
const QUIET: Duration = Duration::from_secs(60);

/// The minimum interval between two pings because claims are held up.
const ASK: Duration = Duration::from_secs(1);

impl Outage {
    /// Creates the outage state of a worker with this health, and this maximum of unsettled deliveries.
    pub(crate) fn new(health: Health, unsettled: usize) -> Self {
        Self {
            state: watch::Sender::new(State { database: Database::Up, refused: 0, capacity: unsettled }),
            most: unsettled,
            health,
            doubt: Notify::new(),
            logged: Rate::default(),
            asked: Rate::default(),
        }
    }

    /// Reports why one of idem's own statements failed. If the database is the cause, the pause starts; if a connection
    /// was lost, the database is pinged first.
    pub(crate) fn report(&self, fault: &StoreError) {
        match fault {
            StoreError::LockTimeout | StoreError::Serialization(_) | StoreError::Message(_) => {}
            StoreError::ConnectionLost(error) => {
                // At a limited rate: each of many connections may be lost, again and again.
                if self.is_up() && self.logged.allows(LOG_INTERVAL) {
                    let error = crate::error::text(error.as_ref());
                    tracing::warn!(error, "a connection to the database was lost; the operation is retried");
                }
                self.doubt.notify_one();
            }
            StoreError::Unavailable(error) | StoreError::Denied(error) => {
                self.begins(Database::Refuses, &crate::error::text(error.as_ref()))
            }
        }
    }

    /// Pings the database, although no connection was lost, at a limited rate.
    pub(crate) fn ask(&self) {
        if self.asked.allows(ASK) {
            self.doubt.notify_one();
        }
    }

    /// Returns whether the database can be used, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.state.borrow().is_up()
    }

    /// Waits until the database cannot be used. Cancel safe.
    pub(crate) async fn began(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.state.subscribe().wait_for(|state| !state.is_up()).await;
    }

    /// Waits until the database can be used. Cancel safe.
    pub(crate) async fn over(&self) {
        // Checked first, because this is called for each delivery and nearly always true.
        if !self.is_up() {
            let _ = self.state.subscribe().wait_for(State::is_up).await;
        }
    }

    /// Watches the database forever.
    ///
    /// If it had answered and refused its work, an answer to a ping proves nothing: it may have room for a small row but not for
    /// a message. So work goes on after a delay, and waits longer if it is refused again soon.
    pub(crate) async fn watch<S: Engine>(&self, store: &S) {
        let (mut waits, mut ended) = (delays(), Instant::now());
        loop {
            tokio::select! {
                () = self.began() => {}
                () = self.doubt.notified() => match within(ANSWER, store.probe()).await {
                    Ok(()) => continue,
                    Err(error) => self.begins(Database::Away, &error),
                },
            }
            let mut pings = short();
            while let Err(fault) = store.probe().await {
                tracing::debug!(error = crate::error::text(&fault), "the database is still away");
                tokio::time::sleep(pings.next().unwrap_or_default()).await;
            }
            if self.state.borrow().database == Database::Refuses {
                tokio::time::sleep(next_delay(&mut waits, ended.elapsed())).await;
                ended = Instant::now();
            }
            self.change(|state| state.database = Database::Up);
            tracing::info!("the database can be used again; consumption goes on");
        }
    }

    /// Begins an outage, unless there is one. One that has answered and refused its work does so until it can be used.
    fn begins(&self, outage: Database, error: &str) {
        let before = self.change(|state| {
            if state.is_up() || outage == Database::Refuses {
                state.database = outage;
            }
        });
        match before.is_up() {
            true => tracing::warn!(error, "the database cannot be used; consumption pauses"),
            false => tracing::debug!(error, "the database still cannot be used"),
        }
    }

    /// Sets how many deliveries may be unsettled at present; `None` restores the normal limit. When the database refuses that
    /// many deliveries, no more are taken.
    pub(crate) fn set_capacity(&self, capacity: Option<usize>) {
        let capacity = capacity.map_or(self.most, |capacity| capacity.clamp(1, self.most));
        // Looked at first, because this is called for each delivery and nearly always changes nothing.
        if self.state.borrow().capacity != capacity {
            self.change(|state| state.capacity = capacity);
        }
    }

    /// Changes the number of deliveries that the database refuses one by one.
    pub(super) fn count_refused(&self, refused: impl FnOnce(usize) -> usize) {
        let before = self.change(|state| state.refused = refused(state.refused));
        if !before.is_full() && self.state.borrow().is_full() {
            tracing::error!(
                held = before.capacity,
                "the database refuses every held message, and no more messages can be received: check the \
                 constraints and triggers on idem's tables"
            );
        }
    }

    /// Changes the state, and with it the health. Returns the previous state.
    fn change(&self, change: impl FnOnce(&mut State)) -> State {
        let mut before = *self.state.borrow();
        self.state.send_if_modified(|state| {
            before = *state;
            change(state);
            // Under the lock of the state, so that health never shows an older state.
            self.health.set_database(state.is_up() && !state.is_full());
            before != *state
        });
        before
    }
}

impl State {
    fn is_up(&self) -> bool {
        self.database == Database::Up
    }

    fn is_full(&self) -> bool {
        self.refused >= self.capacity
    }
}

fn delays() -> ExponentialBackoff {
    growing_waits(Duration::from_millis(100), LONGEST)
}

/// Returns the delay before work goes on with a database that has refused it, so long after the last delay.
fn next_delay(waits: &mut ExponentialBackoff, since: Duration) -> Duration {
    if since >= QUIET {
        *waits = delays();
    }
    waits.next().unwrap_or(LONGEST)
}

/// Waits for an answer for at most `limit`. The error is a text.
pub(crate) async fn within<T, E: Into<BoxError>>(
    limit: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    let answer = timeout(limit, answer).await.map_err(|_| format!("it takes longer than {limit:?}"))?;
    answer.map_err(|error| {
        let error: BoxError = error.into();
        crate::error::text(error.as_ref())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_refuses_again_soon_is_tried_more_seldom_until_a_quiet_minute() {
        let mut waits = delays();
        // Each has a jitter of up to 100 percent.
        let shortest = Duration::from_millis(100)..=Duration::from_millis(200);
        let again: Vec<Duration> = (0..20).map(|_| next_delay(&mut waits, QUIET / 2)).collect();
        assert!(shortest.contains(&again[0]) && again[..8].is_sorted(), "{again:?}");
        assert!(again[8..].iter().all(|delay| (LONGEST / 2..=LONGEST).contains(delay)), "{again:?}");
        let quiet = next_delay(&mut waits, QUIET);
        assert!(shortest.contains(&quiet), "{quiet:?}");
    }
}
