//! What is written in front of COMMIT: staged messages, and those for other handlers.

use super::local::Local;
use super::staged::Staged;
use super::{Postgres, local_sql, outbox_sql};

/// The size up to which a message travels as text in the string of guard and COMMIT.
const SMALL: usize = 8 * 1024;

/// The size up to which all messages of a transaction do. The server parses each of them.
const SMALL_IN_ALL: usize = 256 * 1024;

/// How long each claim of a batch waits for a lock, in milliseconds: the batch is split then, and waits again.
const BATCH_WAIT: u64 = 100;

/// How long each of several claims may wait at least, in milliseconds.
const LEAST_WAIT: u64 = 100;

/// How long all claims of a transaction may wait together, in milliseconds, if each could wait for `LEAST_WAIT`. Guard and
/// COMMIT, which may stand in the same string, must be answered within `OWN`.
const WAIT_IN_ALL: u64 = 5000;

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

    /// Returns the statements of all of it. They call prepared ones if the session has these; a pooler's has none. Claims come
    /// first, as they may wait for another transaction: `own` and `batch` are those of `claim_wait`.
    pub(super) fn statements(&self, store: &Postgres, prepared: bool, own: u64, batch: bool) -> Vec<String> {
        let statement = |name: &str, template: &str, values: &[String]| match prepared {
            true => format!("EXECUTE {name}({})", values.join(", ")),
            false => store.text_with(template, values),
        };
        let local = self.local.iter().map(|local| {
            let values = local.values(claim_wait(local.len(), own, batch));
            statement("idem_local", &local_sql::stage(), &values)
        });
        let staged = self.staged.iter().flat_map(|staged| staged.values());
        local.chain(staged.map(|values| statement("idem_stage", outbox_sql::STAGE, &values))).collect()
    }
}

/// How long the claim of one of so many local messages waits for a lock, in milliseconds. `own` is how long another of
/// idem's statements does; the server applies its limit to each lock.
pub(super) fn claim_wait(count: usize, own: u64, batch: bool) -> u64 {
    let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
    let wait = (own / count).max(LEAST_WAIT.min(own)).min((WAIT_IN_ALL / count).max(1));
    if batch { wait.min(BATCH_WAIT) } else { wait }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{LOCK_WAIT, OWN};
    use super::*;

    #[test]
    fn however_many_claims_wait_the_commit_is_answered_in_time() {
        let waits = |counts: [usize; 6], batch| counts.map(|count| claim_wait(count, LOCK_WAIT, batch));
        assert_eq!(waits([1, 2, 10, 50, 100, 9000], false), [1000, 500, 100, 100, 50, 1]);
        assert_eq!(waits([1, 2, 10, 50, 100, 9000], true), [100, 100, 100, 100, 50, 1]);
        assert_eq!(claim_wait(3, 40, false), 40, "a statement may not take longer");
        for count in 1..=5000 {
            assert!(u128::from(claim_wait(count, LOCK_WAIT, false)) * count as u128 <= OWN.as_millis() / 2, "{count}");
        }
    }
}
