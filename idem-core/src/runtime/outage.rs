//! Whether the database can be used, and the pause while it cannot.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::Store;
use crate::store::StoreError;

use super::count::Count;
use super::health::Health;
use super::waits::{Damped, short};

/// Whether the database can be used. While it cannot, no delivery is taken from the broker and those at hand are held.
pub(crate) struct Outage {
    state: watch::Sender<Database>,
    /// The right to try while the database has only been asked.
    trial: Semaphore,
    /// The deliveries that it refuses one by one.
    pub(super) refused: Count,
    health: Health,
    /// When it was last told that a connection was lost.
    told: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    Up,
    /// A connection was lost. Everything goes on while the database is asked.
    Asked,
    /// It gave no answer when it was asked; or it has answered, and refused its work.
    Down {
        refused: bool,
    },
    /// It answers, and one is let through, to show that its work can be written.
    Trial,
}

/// How long the database may take to answer when it is asked because a connection was lost.
const ANSWER: Duration = Duration::from_secs(2);

/// How long a trial may take. One that takes longer has at least not been refused.
const TRIAL: Duration = Duration::from_secs(5);

/// How often it is told at most that connections are lost.
const TELL: Duration = Duration::from_secs(10);

impl Outage {
    /// For a worker of this health, which may have so many deliveries unsettled.
    pub(crate) fn new(health: Health, unsettled: usize) -> Self {
        Self {
            state: watch::Sender::new(Database::Up),
            trial: Semaphore::new(0),
            refused: Count::of(unsettled),
            health,
            told: Mutex::default(),
        }
    }

    /// Says why a statement of idem's own failed. Where the database is to blame, the pause begins; where a connection was
    /// lost, it is asked first.
    pub(crate) fn report(&self, fault: &StoreError) {
        match fault {
            StoreError::LockTimeout | StoreError::Serialization(_) | StoreError::Message(_) => {}
            StoreError::ConnectionLost(error) => {
                let before = self.turn(|state| match state {
                    Database::Up => Database::Asked,
                    Database::Trial => Database::Down { refused: true },
                    other => other,
                });
                if before == Database::Up {
                    self.tell(error.as_ref());
                }
            }
            StoreError::Unavailable(error) => {
                let before = self.turn(|_| Database::Down { refused: true });
                let error = crate::error::text(error.as_ref());
                match before {
                    Database::Up | Database::Asked => {
                        tracing::warn!(error, "the database cannot be used; consumption pauses");
                    }
                    _ => tracing::debug!(error, "the database still cannot be used"),
                }
            }
        }
    }

    /// Told seldom: each of many connections may be lost, again and again.
    fn tell(&self, error: &(dyn std::error::Error + 'static)) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TELL) {
            *told = Some(Instant::now());
            let error = crate::error::text(error);
            tracing::warn!(error, "a connection to the database was lost; what it was for is tried again");
        }
    }

    /// A message has its outcome, which was written: a trial has succeeded.
    pub(crate) fn works(&self) {
        if *self.state.borrow() == Database::Trial {
            self.turn(|state| if state == Database::Trial { Database::Up } else { state });
        }
    }

    /// Waits until the database cannot be used. Cancel safe.
    pub(crate) async fn began(&self) {
        let _ = self.state.subscribe().wait_for(|state| !is_up(state)).await;
    }

    /// Waits until the database can be used. Cancel safe.
    pub(crate) async fn over(&self) {
        // Looked at first, since it is asked for each delivery and nearly always over.
        if !self.is_up() {
            // The sender lives in `self`, so that waiting cannot fail.
            let _ = self.state.subscribe().wait_for(is_up).await;
        }
    }

    /// The same, or until it is this one that is let through to show that its work can be written: `true` then. Cancel safe.
    pub(crate) async fn over_or_trial(&self) -> bool {
        while !self.is_up() {
            let mut state = self.state.subscribe();
            tokio::select! {
                biased;
                _ = state.wait_for(is_up) => {}
                Ok(permit) = self.trial.acquire() => {
                    permit.forget();
                    if *self.state.borrow() == Database::Trial {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Looks after the database, for ever.
    pub(crate) async fn watch<S: Store>(&self, store: &S) {
        let (mut state, mut damped) = (self.state.subscribe(), Damped::default());
        loop {
            let _ = state.wait_for(|state| *state != Database::Up).await;
            if *self.state.borrow() == Database::Asked {
                let Err(error) = asked(store).await else {
                    self.turn(|state| if state == Database::Asked { Database::Up } else { state });
                    continue;
                };
                let before = self.turn(|state| match state {
                    Database::Asked => Database::Down { refused: false },
                    other => other,
                });
                if before == Database::Asked {
                    tracing::warn!(error, "the database cannot be used; consumption pauses");
                }
            }
            damped.begins();
            self.mend(store, &mut damped).await;
            damped.ends();
            tracing::info!("the database can be used again; consumption goes on");
        }
    }

    /// Waits until the database can be used. Where it had answered and refused, another answer proves nothing: it may have
    /// room for a small row and none for a message. Then one message is let through, later each time.
    async fn mend<S: Store>(&self, store: &S, damped: &mut Damped) {
        while !self.is_up() {
            answers(store).await;
            let before = self.turn(|state| match state {
                Database::Down { refused: false } => Database::Up,
                other => other,
            });
            if before != (Database::Down { refused: true }) {
                continue;
            }
            tokio::time::sleep(damped.wait()).await;
            // One that nobody has taken before.
            self.trial.forget_permits(self.trial.available_permits());
            let mut state = self.state.subscribe();
            self.turn(|_| Database::Trial);
            self.trial.add_permits(1);
            if timeout(TRIAL, state.wait_for(|state| *state != Database::Trial)).await.is_err() {
                self.works();
            }
            self.trial.forget_permits(self.trial.available_permits());
        }
    }

    fn is_up(&self) -> bool {
        is_up(&self.state.borrow())
    }

    /// Changes the state, and shows it in the health. Answers what it was.
    fn turn(&self, next: impl FnOnce(Database) -> Database) -> Database {
        let mut before = Database::Up;
        self.state.send_if_modified(|state| {
            before = *state;
            *state = next(before);
            self.show_as(*state);
            before != *state
        });
        before
    }

    /// Shows in the health what has become of the deliveries that are refused.
    pub(super) fn show(&self) {
        self.turn(|same| same);
    }

    /// Under the lock of the state, so that the health is never that of an older one.
    fn show_as(&self, state: Database) {
        self.health.set_database(is_up(&state) && !self.refused.is_full());
    }
}

fn is_up(state: &Database) -> bool {
    matches!(state, Database::Up | Database::Asked)
}

/// Whether the database answers soon. The error is what it said instead.
async fn asked<S: Store>(store: &S) -> Result<(), String> {
    match timeout(ANSWER, store.ping()).await {
        Ok(answer) => answer.map_err(|fault| crate::error::text(&fault)),
        Err(_) => Err(format!("it did not answer within {ANSWER:?}")),
    }
}

/// Waits until it answers.
async fn answers<S: Store>(store: &S) {
    let mut waits = short();
    while let Err(fault) = store.ping().await {
        tracing::debug!(error = crate::error::text(&fault), "the database is still away");
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}
