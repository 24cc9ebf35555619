//! The commit of a transaction in which no handler ran.

use crate::store::{Committed, StoreError};

/// What the commit of a transaction of our own means, in which no handler ran.
pub(crate) fn settled(committed: Committed) -> Result<(), StoreError> {
    match committed {
        Committed::Done => Ok(()),
        Committed::Retry(error) => Err(StoreError::Serialization(error)),
        Committed::Refused(error) => Err(StoreError::Message(error)),
        Committed::Unknown(fault) => Err(fault),
        Committed::Swallowed | Committed::RolledBack | Committed::CommittedEarly | Committed::CommitRefused => {
            Err(StoreError::Unavailable("the transaction was ended by somebody else".into()))
        }
    }
}
