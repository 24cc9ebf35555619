//! The commit result of a transaction in which no handler ran.

use crate::store::{CommitResult, StoreError};

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
