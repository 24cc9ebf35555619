//! The availability of the database, and the pause while it is unavailable.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::Store;
use crate::store::StoreError;

use super::count::Count;
use super::health::Health;
use super::rate::Rate;
use super::running::Workload;
use super::suspect_lock::SuspectLock;
use super::waits::{Damped, short};

/// The availability of the database. While it is unavailable, no delivery is taken from the broker and those already
/// received are held.
pub(crate) struct Outage {
    state: watch::Sender<Database>,
    /// Whether the state is `Up`. Each delivery asks, and the state is behind a lock.
    up: AtomicBool,
    /// The permit for one trial in state `Trial`.
    trial: Semaphore,
    /// The deliveries that the database refuses one by one.
    pub(super) refused: Count,
    health: Health,
    pub(super) workload: Workload,
    /// When a lost connection was last logged.
    told: Rate,
    /// When it was last pinged because claims were held up.
    asked: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    Up,
    /// A connection was `lost`, or claims are held up for long. Work continues while the database is pinged.
    Asked {
        lost: bool,
    },
    /// The database did not answer a ping; or it answered, and refused its work.
    Down {
        refused: bool,
    },
    /// The database answers, and one delivery is let through to show that its work can be written.
    Trial,
}

/// How long the database may take to answer a ping after a connection was lost.
const ANSWER: Duration = Duration::from_secs(2);

/// How long a trial may take. A longer trial has at least not been refused.
const TRIAL: Duration = Duration::from_secs(5);

/// The minimum interval between two log lines about lost connections.
const TELL: Duration = Duration::from_secs(10);

/// The minimum interval between two pings because claims are held up.
const ASK: Duration = Duration::from_secs(1);

impl Outage {
    /// Creates the outage state of a worker with this health, this maximum of unsettled deliveries, and the lock of its process.
    pub(crate) fn new(health: Health, unsettled: usize, lock: SuspectLock) -> Self {
        Self {
            state: watch::Sender::new(Database::Up),
            up: AtomicBool::new(true),
            trial: Semaphore::new(0),
            refused: Count::of(unsettled),
            health,
            workload: Workload::new(lock),
            told: Rate::default(),
            asked: Rate::default(),
        }
    }

    /// Reports why one of idem's own statements failed. If the database is the cause, the pause starts; if a connection
    /// was lost, the database is pinged first.
    pub(crate) fn report(&self, fault: &StoreError) {
        match fault {
            StoreError::LockTimeout | StoreError::Serialization(_) | StoreError::Message(_) => {}
            StoreError::ConnectionLost(error) => {
                let before = self.turn(|state| match state {
                    Database::Up | Database::Asked { .. } => Database::Asked { lost: true },
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
                    Database::Up | Database::Asked { .. } => {
                        tracing::warn!(error, "the database cannot be used; consumption pauses");
                    }
                    _ => tracing::debug!(error, "the database still cannot be used"),
                }
            }
        }
    }

    /// Pings the database, although no connection was lost, at a limited rate. Only a refusal of the ping is then an
    /// outage: it may be slow because all connections are busy.
    pub(crate) fn ask(&self) {
        if self.asked.allows(ASK) {
            self.turn(|state| if state == Database::Up { Database::Asked { lost: false } } else { state });
        }
    }

    /// Logs a lost connection, at a limited rate: each of many connections may be lost, again and again.
    fn tell(&self, error: &(dyn std::error::Error + 'static)) {
        if self.told.allows(TELL) {
            let error = crate::error::text(error);
            tracing::warn!(error, "a connection to the database was lost; the operation is retried");
        }
    }

    /// Records that the outcome of a message was written: a trial has succeeded.
    pub(crate) fn works(&self) {
        if !self.up.load(Relaxed) {
            self.turn(|state| if state == Database::Trial { Database::Up } else { state });
        }
    }

    /// Waits until the database cannot be used. Cancel safe.
    pub(crate) async fn began(&self) {
        let _ = self.state.subscribe().wait_for(|state| !is_up(state)).await;
    }

    /// Waits until the database fails; a trial is no failure. Cancel safe.
    pub(crate) async fn failed(&self) {
        let _ = self.state.subscribe().wait_for(|state| matches!(state, Database::Down { .. })).await;
    }

    /// Waits until the database can be used. Cancel safe.
    pub(crate) async fn over(&self) {
        // Checked first, because this is called for each delivery and nearly always true.
        if !self.up.load(Relaxed) {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = self.state.subscribe().wait_for(is_up).await;
        }
    }

    /// Waits until the database can be used, and returns `false`; or until this caller is let through as the trial that
    /// shows whether work can be written, and returns `true`. Cancel safe.
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

    /// Watches the database forever.
    pub(crate) async fn watch<S: Store>(&self, store: &S) {
        let (mut state, mut damped) = (self.state.subscribe(), Damped::default());
        loop {
            let _ = state.wait_for(|state| *state != Database::Up).await;
            if matches!(*self.state.borrow(), Database::Asked { .. }) && !self.asked_in_vain(store).await {
                continue;
            }
            damped.begins();
            self.mend(store, &mut damped).await;
            damped.ends();
            tracing::info!("the database can be used again; consumption goes on");
        }
    }

    /// Pings the database. Returns whether that has shown an outage.
    async fn asked_in_vain<S: Store>(&self, store: &S) -> bool {
        let answer = asked(store).await;
        let before = self.turn(|state| match (state, &answer) {
            (Database::Asked { .. }, Ok(())) | (Database::Asked { lost: false }, Err((_, false))) => Database::Up,
            (Database::Asked { .. }, Err(_)) => Database::Down { refused: false },
            (other, _) => other,
        });
        if let (Database::Asked { .. }, Err((error, _))) = (before, answer)
            && !self.is_up()
        {
            tracing::warn!(error, "the database cannot be used; consumption pauses");
        }
        !self.is_up()
    }

    /// Waits until the database can be used. If it had answered and refused its work, another answer proves nothing: it
    /// may have room for a small row but not for a message. Then one message is let through, after increasing delays.
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
            // Removes a permit that no caller has taken.
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

    /// Changes the state and updates the health. Returns the previous state.
    fn turn(&self, next: impl FnOnce(Database) -> Database) -> Database {
        let mut before = Database::Up;
        self.state.send_if_modified(|state| {
            before = *state;
            *state = next(before);
            self.up.store(*state == Database::Up, Relaxed);
            self.show_as(*state);
            before != *state
        });
        before
    }

    /// Sets how many deliveries may be unsettled at present; `None` restores the normal limit. When the database refuses that
    /// many deliveries, no more are taken.
    pub(crate) fn set_room(&self, room: Option<usize>) {
        if self.refused.set_room(room) {
            self.show();
        }
    }

    /// Updates the health after the number of refused deliveries has changed.
    pub(super) fn show(&self) {
        self.turn(|same| same);
    }

    /// Runs under the lock of the state, so that health and workload never show an older state.
    fn show_as(&self, state: Database) {
        self.workload.set_unavailable(matches!(state, Database::Down { .. }));
        self.health.set_database(is_up(&state) && !self.refused.is_full());
    }
}

fn is_up(state: &Database) -> bool {
    matches!(state, Database::Up | Database::Asked { .. })
}

/// Pings the database with a timeout. The error is the text of its failure, and whether the database has answered.
async fn asked<S: Store>(store: &S) -> Result<(), (String, bool)> {
    match timeout(ANSWER, store.ping()).await {
        Ok(answer) => answer.map_err(|fault| (crate::error::text(&fault), fault.is_answered())),
        Err(_) => Err((format!("it did not answer within {ANSWER:?}"), false)),
    }
}

/// Waits until the database answers.
async fn answers<S: Store>(store: &S) {
    let mut waits = short();
    while let Err(fault) = store.ping().await {
        tracing::debug!(error = crate::error::text(&fault), "the database is still away");
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}
