//! The commit of a transaction in which no handler ran.

use crate::store::{Committed, Fault};

/// What the commit of a transaction of our own means, in which no handler ran.
pub(crate) fn settled(committed: Committed) -> Result<(), Fault> {
    match committed {
        Committed::Done => Ok(()),
        Committed::Retry(error) => Err(Fault::Retry(error)),
        Committed::Refused(error) => Err(Fault::Message(error)),
        Committed::Unknown(fault) => Err(fault),
        Committed::Swallowed | Committed::RolledBack | Committed::CommittedEarly | Committed::CommitRefused => {
            Err(Fault::Outage("the transaction was ended by somebody else".into()))
        }
    }
}
