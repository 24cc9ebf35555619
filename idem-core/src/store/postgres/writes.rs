//! What is written in front of COMMIT: staged messages, and those for other handlers.

use super::local::Local;
use super::staged::Staged;

/// The size up to which a message travels as text in the string of guard and COMMIT.
const SMALL: usize = 8 * 1024;

/// The size up to which all messages of a transaction do. The server parses each of them.
const SMALL_IN_ALL: usize = 256 * 1024;

/// How long the claims of a batch wait for a lock, in milliseconds: the batch is split then, and waits again.
const BATCH_WAIT: u64 = 100;

/// What COMMIT writes. It allocates nothing while it is empty.
#[derive(Default)]
pub(super) struct Writes {
    pub(super) local: Option<Box<Local>>,
    pub(super) staged: Option<Box<Staged>>,
}

impl Writes {
    /// Returns whether all of it can travel in the string of guard and COMMIT.
    pub(super) fn are_small(&self) -> bool {
        let local = self.local.iter().flat_map(|local| local.sizes());
        let mut sum = 0;
        for size in local.chain(self.staged.iter().flat_map(|staged| staged.sizes())) {
            sum += size;
            if size > SMALL || sum > SMALL_IN_ALL {
                return false;
            }
        }
        true
    }

    /// Returns a statement for each kind. Claims come first, as they may wait for another transaction.
    pub(super) fn texts(&self, lock_wait: u64) -> Vec<String> {
        let local = self.local.iter().map(|local| local.text(lock_wait));
        local.chain(self.staged.iter().map(|staged| staged.text())).collect()
    }
}

/// How long the claims of local messages wait for a lock.
pub(super) fn claim_wait(own: u64, batch: bool) -> u64 {
    if batch { own.min(BATCH_WAIT) } else { own }
}
