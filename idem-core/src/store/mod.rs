//! The database seam: claims, the inbox, and the transaction that a handler is lent.

mod claim;
pub mod envelope;
mod fault;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod ledger;
mod row;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tables;
mod waiting;

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::time::Duration;

use uuid::Uuid;

use crate::{Error, Key};

pub use claim::{Claimed, Committed, Fate, HandlerId, Identity, Promise, Standing, Ticket, Undone};
pub use fault::Fault;
pub use row::{
    Filter, Isolation, JUDGE_LEASES, Kind, Level, Limit, MAX_BREAKS, MAX_STARTS, NewRow, Note, Page, Pruned, Replayed,
    Row, Since, Survey,
};
pub use waiting::{Cures, SEEN_RECENTLY, Waiting};

/// The database seam. Each method is one statement, or one short transaction of its own; what they are for, and in what
/// order they come, is decided once for all databases: by the pipeline and the inbox.
///
/// All times are the database's clock. A store is a handle: clones share their connections.
///
/// Cancel safety: a dropped future of any method leaves no open transaction behind. Where the driver cannot promise
/// that, the store closes the connection.
pub trait Store: Clone + Send + Sync + 'static {
    /// An open transaction, on a connection that nothing else uses. Dropping it closes the connection, which makes the
    /// database roll back: the way out where the connection's state is unknown (a cancelled or panicked handler).
    type Txn: Send + 'static;

    // ===== start =====

    /// Interns the names under this consumer, in the order given, and raises their retention to that of this store where
    /// it is less. The empty name stands for "no handler known".
    fn register(&self, consumer: &str, names: &[&str]) -> impl Future<Output = Result<Vec<HandlerId>, Fault>> + Send;

    /// Notes that a worker has these handlers now. Waits for no other worker that does so: a handler that another one has
    /// in hand, or has noted within half a minute, is left out.
    fn seen(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<(), Fault>> + Send;

    /// This consumer's handlers that have inbox rows, parked or dead, and when a worker had them last.
    fn waiting(&self, consumer: &str) -> impl Future<Output = Result<Vec<Waiting>, Fault>> + Send;

    /// The SQL with which an operator takes the rows of a handler out of the way that nobody has any more; `new` is a
    /// handler of the same consumer that may have taken its place.
    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures;

    /// Whether any handler of this consumer has, or has had, a claim.
    fn has_history(&self, consumer: &str) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Sets connections aside for a worker: as many as it can use at once. They are given back when the value is
    /// dropped.
    ///
    /// # Errors
    /// The store has fewer connections left than that. The text says how to get more.
    fn reserve(&self, connections: usize) -> Result<Reservation, Error>;

    /// For how long dated claims of these handlers are kept, in the order given: the greatest value that a store has
    /// registered them with, unless an operator has changed it. `None` where they are kept for ever.
    fn retention(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<Vec<Option<Duration>>, Fault>> + Send;

    /// Asks the database for a sign of life, on a new connection where none is known to be good.
    fn ping(&self) -> impl Future<Output = Result<(), Fault>> + Send;

    // ===== transactions =====

    /// Begins. No statement in the transaction may run for longer than `deadline`, which is a handler's.
    fn begin(&self, deadline: Duration) -> impl Future<Output = Result<Self::Txn, Fault>> + Send;

    /// Called between two handlers that share a transaction, to get it ready for the next one. `false` where the handler
    /// before has ended or aborted it, and it is known here: then nothing more may run in it. A store in which nothing can
    /// be written outside of its transactions may leave that to the guard.
    fn between(&self, _txn: &mut Self::Txn) -> impl Future<Output = Result<bool, Fault>> + Send {
        async { Ok(true) }
    }

    /// Checks that the transaction is still the one in which the claim was made or the row was started (the guard), and
    /// commits. Without claim or start there is nothing to guard.
    fn commit(&self, txn: Self::Txn) -> impl Future<Output = Committed> + Send;

    /// Whether a handler's error says that it lost against a concurrent transaction (40001, 40P01), so that a new
    /// transaction may succeed. An error that hides its sources is an ordinary failure.
    fn lost_race(&self, _error: &(dyn std::error::Error + 'static)) -> bool {
        false
    }

    /// Whether the lost race was a deadlock (40P01), for which another transaction is needed. Any other one can be of the
    /// handler's own making, each time that it runs, and says nothing about the batches beside it.
    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.lost_race(error)
    }

    /// Rolls back. [`Fault::Lost`] means that the connection is lost; the transaction then ends by itself.
    /// Where a claim was made or a row started, it looks whether the handler had committed that before it failed.
    fn rollback(&self, txn: Self::Txn) -> impl Future<Output = Result<Undone, Fault>> + Send;

    /// What the transaction is known by when its connection is gone. `None` where it can only have been rolled back: no
    /// claim was made and no row started in it, or no handler can commit it and this one has not tried.
    fn ticket(&self, _txn: &Self::Txn) -> Option<Ticket> {
        None
    }

    /// What became of a transaction that was dropped while it was a handler's, asked on another connection. Where it still
    /// runs, the store may end it.
    ///
    /// # Errors
    /// The database did not answer: it is asked again.
    fn fate(&self, _ticket: &Ticket) -> impl Future<Output = Result<Fate, Fault>> + Send {
        async { Ok(Fate::RolledBack) }
    }

    // ===== claims, each in a transaction =====

    /// Inserts the claim where there is none, and reads how far claims of its handler were pruned, in one statement that
    /// sees a claim or what prune wrote as it deleted it. Waits a short while for an uncommitted one of another transaction, then
    /// answers [`Fault::Busy`].
    fn claim(
        &self,
        txn: &mut Self::Txn,
        identity: &Identity,
        promise: Promise,
    ) -> impl Future<Output = Result<Claimed, Fault>> + Send;

    /// Begins and claims: what every first delivery does first. A store that can say both at once saves a round trip.
    ///
    /// On a fault there is no transaction left.
    fn begin_with_claim(
        &self,
        deadline: Duration,
        identity: &Identity,
        promise: Promise,
    ) -> impl Future<Output = Result<(Self::Txn, Claimed), Fault>> + Send {
        async move {
            let mut txn = self.begin(deadline).await?;
            match self.claim(&mut txn, identity, promise).await {
                Ok(claimed) => Ok((txn, claimed)),
                Err(fault) if !fault.is_answered() => Err(fault),
                Err(fault) => self.rollback(txn).await.and(Err(fault)),
            }
        }
    }

    /// Reads the claim and keeps it from being deleted until the transaction ends (`FOR KEY SHARE`).
    /// `None` where there is no claim (any more).
    fn standing(
        &self,
        txn: &mut Self::Txn,
        handler: HandlerId,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Standing>, Fault>> + Send;

    /// [`claim`](Self::claim) for several messages, in one statement where the database can; the answers are in the order
    /// given. No two identities have the same handler and key, and they come sorted by handler and by the bytes of the
    /// key: claims are made in that order, so that two transactions never wait for each other in a circle.
    ///
    /// One claim that is held up for too long fails all of them with [`Fault::Busy`], and the database does not say which
    /// one it was.
    fn claim_many(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
        promise: Promise,
    ) -> impl Future<Output = Result<Vec<Claimed>, Fault>> + Send {
        async move {
            let mut claimed = Vec::with_capacity(identities.len());
            for identity in identities {
                claimed.push(self.claim(txn, identity, promise).await?);
            }
            Ok(claimed)
        }
    }

    /// [`standing`](Self::standing) for several messages, sorted as for [`claim_many`](Self::claim_many); the answers are
    /// in the order given.
    fn standing_many(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<Vec<Option<Standing>>, Fault>> + Send {
        async move {
            let mut standing = Vec::with_capacity(identities.len());
            for identity in identities {
                standing.push(self.standing(txn, identity.handler, &identity.key).await?);
            }
            Ok(standing)
        }
    }

    /// Reads the claims as [`standing_many`](Self::standing_many) does, without keeping them from being deleted: enough to
    /// tell a copy, which needs no write and so no commit to disk.
    fn known(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<Vec<Option<Standing>>, Fault>> + Send {
        self.standing_many(txn, identities)
    }

    /// Sets the claim back to waiting, since an inbox row is about to own it.
    fn reopen(
        &self,
        txn: &mut Self::Txn,
        handler: HandlerId,
        key: &Key,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    // ===== inbox rows, each in a transaction =====

    /// Inserts an inbox row. Where one of this handler, key and fingerprint is there, a sighting is counted instead.
    fn insert(&self, txn: &mut Self::Txn, row: &NewRow<'_>) -> impl Future<Output = Result<(), Fault>> + Send;

    /// [`insert`](Self::insert) for several rows, in one statement where the database can. No two have the same handler,
    /// key and fingerprint.
    fn insert_many(&self, txn: &mut Self::Txn, rows: &[NewRow<'_>]) -> impl Future<Output = Result<(), Fault>> + Send {
        async move {
            for row in rows {
                self.insert(txn, row).await?;
            }
            Ok(())
        }
    }

    /// Counts a sighting of a dead row, if there is one; a parked row is left alone.
    fn sight(&self, txn: &mut Self::Txn, identity: &Identity) -> impl Future<Output = Result<(), Fault>> + Send;

    /// [`sight`](Self::sight) for several messages, in one statement where the database can. Copies among them count each.
    fn sight_many(
        &self,
        txn: &mut Self::Txn,
        identities: &[&Identity],
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        async move {
            for identity in identities {
                self.sight(txn, identity).await?;
            }
            Ok(())
        }
    }

    /// Starts a taken row: deletes it and dates its claim, in one statement. `false` where the token is no longer the
    /// row's: the lease was lost.
    fn start(&self, txn: &mut Self::Txn, row: &Row) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// [`start`](Self::start) for several rows, in one statement where the database can; the answers are in the order given.
    fn start_many(&self, txn: &mut Self::Txn, rows: &[&Row]) -> impl Future<Output = Result<Vec<bool>, Fault>> + Send {
        async move {
            let mut started = Vec::with_capacity(rows.len());
            for row in rows {
                started.push(self.start(txn, row).await?);
            }
            Ok(started)
        }
    }

    /// Deletes a taken row and leaves claims alone. `false` where the token is no longer the row's.
    fn remove(&self, txn: &mut Self::Txn, row: &Row) -> impl Future<Output = Result<bool, Fault>> + Send;

    // ===== inbox rows, each committed by itself =====

    /// What is to be done for these handlers now. Cheap at any number of rows: it is asked at each poll.
    fn survey(&self, handlers: &[HandlerId], lease: Duration) -> impl Future<Output = Result<Survey, Fault>> + Send;

    /// [`survey`](Self::survey) of what became due since then, for a store that has to step over what is gone before it
    /// finds what is there.
    fn survey_since(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
        _since: Since,
    ) -> impl Future<Output = Result<Survey, Fault>> + Send {
        self.survey(handlers, lease)
    }

    /// Takes at most `limit` due rows of these handlers, the oldest first: sets token and lease, and counts the start of
    /// ordinary ones. Rows that another transaction has locked are skipped. A row that is larger than the limit is taken
    /// alone.
    fn take(
        &self,
        handlers: &[HandlerId],
        kind: Kind,
        limit: Limit,
        token: Uuid,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<Row>, Fault>> + Send;

    /// Counts the start of a reserved suspect: one more than it was reserved with, however often this is repeated, and its
    /// lease begins anew. `false` where the token is no longer the row's: it must not begin.
    fn count_start(&self, row: &Row, lease: Duration) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Lets the leases of those of these rows begin anew that still have this token. Waits for nobody: a row that runs is
    /// locked, and needs none.
    fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> impl Future<Output = Result<(), Fault>> + Send;

    /// The rows that carry this token: what a take whose answer was lost has taken.
    fn taken(&self, token: Uuid) -> impl Future<Output = Result<Vec<Row>, Fault>> + Send;

    /// Writes what became of a taken row, and clears its token. `false` where the token is no longer the row's.
    fn note(&self, row: &Row, note: &Note) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Whether this message has an inbox row that is parked, be it taken or running. Waits for nobody.
    fn is_parked(&self, identity: &Identity) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Makes a row due that was stored ahead of its turn, if it has neither run nor been taken.
    fn make_due(&self, identity: &Identity) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Takes back the start of a row whose lease was lost, whoever has it now; never below 0, and the token stays.
    fn unstart(&self, row: &Row) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Gives up the rows that have 4 starts without an outcome and whose last lease has been over for three leases:
    /// they become dead, `crashed`. Answers how many.
    fn judge(&self, handlers: &[HandlerId], lease: Duration) -> impl Future<Output = Result<u64, Fault>> + Send;

    // ===== the operator =====

    /// How full the inbox of these handlers is. Counts rows, so it is asked seldom.
    fn level(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<Level, Fault>> + Send;

    /// The inbox rows of a consumer, newest first.
    fn list(&self, consumer: &str, filter: &Filter, page: Page)
    -> impl Future<Output = Result<Vec<Row>, Fault>> + Send;

    /// Makes a dead row due now, with no start and no token.
    fn replay(&self, consumer: &str, id: i64, force: bool) -> impl Future<Output = Result<Replayed, Fault>> + Send;

    /// Makes a conflict row due now under a key of its own: claims the new key and moves the row to it, in one
    /// transaction.
    fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> impl Future<Output = Result<Replayed, Fault>> + Send;

    /// Deletes a dead row, and dates the claim that it owned, in one statement. `false` where there is no such row.
    fn discard(&self, consumer: &str, id: i64) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Deletes the claims that are older than the retention of their handler, in chunks, until none is left, and writes
    /// down how far it went in the transaction that deletes. One pruner works at a time for all handlers; another one
    /// answers at once that it did nothing.
    fn prune(&self) -> impl Future<Output = Result<Pruned, Fault>> + Send;
}

/// A store that can lend a handler the connection type that it asks for.
#[diagnostic::on_unimplemented(
    message = "this handler takes `&mut {C}`, which the store `{Self}` cannot lend",
    note = "`Postgres` lends `&mut sqlx::PgConnection`, `Sqlite` lends `&mut sqlx::SqliteConnection`"
)]
pub trait Lends<C>: Store {
    /// The connection of the transaction.
    fn lend(txn: &mut Self::Txn) -> &mut C;
}

/// Connections set aside for one worker; given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    taken: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    connections: usize,
}

impl Reservation {
    /// Sets `connections` of `capacity` aside, of which `taken` counts those that are spoken for.
    /// `None` where there are not that many left; then nothing is set aside.
    pub fn of(
        taken: &std::sync::Arc<std::sync::atomic::AtomicUsize>,
        capacity: usize,
        connections: usize,
    ) -> Option<Self> {
        use std::sync::atomic::Ordering::SeqCst;
        let more = |n: usize| n.checked_add(connections).filter(|sum| *sum <= capacity);
        taken.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Self { taken: taken.clone(), connections })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.connections, std::sync::atomic::Ordering::SeqCst);
    }
}
