//! Handlers and their claims.

use std::time::Duration;

use crate::Key;

use super::{Claimed, Fault, HandlerId, Identity, Promise, Standing, Transactions};

/// The handlers that a store knows, and the claims that they have. A claim is made, read and reopened in a transaction.
pub trait Claims: Transactions {
    /// Interns the names under this consumer, in the order given, and raises their retention to that of this store where
    /// it is less. The empty name stands for "no handler known".
    fn register(&self, consumer: &str, names: &[&str]) -> impl Future<Output = Result<Vec<HandlerId>, Fault>> + Send;

    /// Notes that a worker has these handlers now. Waits for no other worker that does so: a handler that another one has
    /// in hand, or has noted within half a minute, is left out.
    fn seen(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Whether any handler of this consumer has, or has had, a claim.
    fn has_history(&self, consumer: &str) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// For how long dated claims of these handlers are kept, in the order given: the greatest value that a store has
    /// registered them with, unless an operator has changed it. `None` where they are kept for ever.
    fn retention(&self, handlers: &[HandlerId]) -> impl Future<Output = Result<Vec<Option<Duration>>, Fault>> + Send;

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
}
