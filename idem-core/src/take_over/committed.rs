//! The end of a transaction in which no handler ran.

use crate::Store;
use crate::runtime::{Pipeline, Progress};
use crate::store::{CommitResult, StoreError};

impl<S: Store> Pipeline<S> {
    /// Ends a transaction in which no handler ran: commits what was `written`, or abandons it. On error, returns the
    /// [`Progress`] that holds the message.
    pub(super) async fn commit_written<T>(&self, txn: S::Txn, written: Result<T, StoreError>) -> Result<T, Progress> {
        match written {
            Ok(written) => match committed(self.store.commit(txn).await) {
                Ok(()) => Ok(written),
                Err(fault) => Err(self.outage.hold_for(fault)),
            },
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }
}

/// Converts the commit result of our own transaction, in which no handler ran.
pub(crate) fn committed(result: CommitResult) -> Result<(), StoreError> {
    match result {
        CommitResult::Done => Ok(()),
        CommitResult::Retry(error) => Err(StoreError::Serialization(error)),
        // No message was staged.
        CommitResult::Busy(_) => Err(StoreError::LockTimeout),
        CommitResult::Refused(error) => Err(StoreError::Message(error)),
        CommitResult::Unknown(fault) | CommitResult::NotSent(fault, _) => Err(fault),
        CommitResult::Swallowed
        | CommitResult::RolledBack
        | CommitResult::CommittedEarly(_)
        | CommitResult::CommitRefused => {
            Err(StoreError::Unavailable("the transaction ended although idem had not ended it".into()))
        }
    }
}
