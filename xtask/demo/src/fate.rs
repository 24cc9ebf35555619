//! The behaviour of a message's handler, and the required outcome of the message.

use serde::{Deserialize, Serialize};

macro_rules! fates {
    ($($(#[$doc:meta])* $name:ident, $often:literal => $end:expr;)*) => {
        /// The behaviour of a handler after it has written the message's effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum Fate { $($(#[$doc])* $name,)* }

        impl Fate {
            /// Every fate except the ordinary one.
            pub(crate) const CARELESS: &'static [Self] = &[$(Self::$name,)*].split_at(1).1;

            /// Returns how many of 10,000 messages have it. In a smaller run, at least one message has it.
            pub(crate) fn often(self) -> u64 {
                match self { $(Self::$name => $often,)* }
            }

            /// Returns the required outcome of the message.
            pub(crate) fn end(self) -> End {
                match self { $(Self::$name => $end,)* }
            }
        }
    };
}

fates! {
    /// It succeeds.
    Works, 0 => End::Effect;
    /// It fails twice, then succeeds.
    Flaky, 100 => End::Effect;
    /// It fails at each attempt.
    Poison, 100 => EXHAUSTED;
    /// It returns a permanent error.
    Permanent, 40 => End::Dead("permanent");
    /// It panics.
    Panic, 30 => EXHAUSTED;
    /// It waits beyond the handler timeout, in the process.
    Hang, 4 => EXHAUSTED;
    /// It never waits: whatever it asks for is there at once, and it asks again. Rare, since it keeps a thread busy.
    Spin, 1 => EXHAUSTED;
    /// It waits beyond the handler timeout for a statement, which continues in the database.
    SlowQuery, 4 => EXHAUSTED;
    /// It ignores the error of a statement.
    Swallow, 30 => EXHAUSTED;
    /// A deferred constraint fails at COMMIT.
    Deferred, 30 => EXHAUSTED;
    /// It runs ROLLBACK.
    Rollback, 30 => ROLLED_BACK;
    /// It runs ROLLBACK, then writes.
    RollbackWrite, 30 => ROLLED_BACK;
    /// It runs ROLLBACK, then writes, then fails.
    RollbackFail, 30 => ROLLED_BACK;
    /// It runs COMMIT.
    Commit, 20 => End::Committed;
    /// It runs COMMIT, then writes.
    CommitWrite, 20 => End::Committed;
    /// It runs COMMIT, then waits beyond the handler timeout.
    CommitHang, 4 => End::Committed;
    /// It runs SET ROLE, to a role without privileges.
    SetRole, 20 => End::Effect;
    /// It changes its session in another way: a setting, a lock, LISTEN, a temporary table.
    Session, 30 => End::Effect;
    /// It ends its connection each time.
    Breaker, 3 => End::Dead("broke its connection");
    /// It ends its connection the first time.
    BreakOnce, 10 => End::Effect;
    /// It ends its process each time.
    Killer, 1 => End::Dead("crashed");
    /// Its payload is not JSON.
    Undecodable, 20 => End::Dead("undecodable");
    /// It has no key.
    Keyless, 20 => End::Dead("no key");
}

const EXHAUSTED: End = End::Dead("exhausted");
const ROLLED_BACK: End = End::Dead("rolled back by its handler");

/// The required outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// One effect.
    Effect,
    /// No effect, and one dead letter of this reason.
    Dead(&'static str),
    /// One dead letter of the reason [`COMMITTED`]; its effect may or may not exist.
    Committed,
}

/// The reason of messages whose handlers ran COMMIT.
pub(crate) const COMMITTED: &str = "committed by its handler";
/// The reason of the second of two messages with one key.
pub(crate) const CONFLICT: &str = "conflict";
