//! The rows of the inbox: inserted, taken, started, noted.

use std::time::Duration;

use uuid::Uuid;

use super::{Fault, HandlerId, Identity, Kind, Limit, NewRow, Note, Row, Since, Survey, Transactions};

/// The inbox rows of a store. What has a transaction as its argument is part of that; all else is committed by itself.
pub trait InboxRows: Transactions {
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
}
