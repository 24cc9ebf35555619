//! What became of one delivery.

use std::fmt;
use std::time::Duration;

/// What became of one delivery. Each of them is an answer of the database, so that each is acked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler ran, and its writes are committed together with the claim.
    Processed,
    /// The message was taken over before; the handler did not run.
    Duplicate,
    /// The message waits in the inbox. Attempt 0 is a message that was stored before its first run.
    Parked {
        /// How many attempts have failed.
        attempt: u32,
        /// In how long it runs.
        due: Duration,
    },
    /// The message was given up, and is kept whole as a dead letter.
    Dead {
        /// Why.
        reason: Reason,
    },
}

impl Outcome {
    /// The word for it in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
            Self::Parked { .. } => "parked",
            Self::Dead { reason: Reason::Conflict } => "conflict",
            Self::Dead { .. } => "dead",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why a message was given up. The words are those of the column `reason`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word in the column `reason` and in metrics.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// The reason of this word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$name),)* _ => None }
            }
        }
    };
}

reasons! {
    /// The last attempt failed.
    Exhausted = "exhausted",
    /// The handler returned [`permanent`](crate::permanent).
    Permanent = "permanent",
    /// The payload could not be decoded, or the delivery says that it is a CloudEvent, and is none.
    Undecodable = "undecodable",
    /// No key could be made.
    NoKey = "no key",
    /// The broker delivered what a [`Delivery`](crate::Delivery) cannot hold, such as a header name that is not UTF-8. What
    /// it can hold is kept, and the error says what it cannot.
    Unrepresentable = "unrepresentable",
    /// The payload is over the limit.
    TooLarge = "too large",
    /// No handler of the worker takes this type of event.
    UnknownType = "unknown type",
    /// Another message has been taken over under the same key. It is replayed only under a new key.
    Conflict = "conflict",
    /// It was published, by the broker's clock, before the last claims that were pruned, so that nobody can tell whether it
    /// was processed. It is replayed only by force.
    TooOld = "too old",
    /// Four times the process ended while it ran from the inbox, the last two times with nothing beside it. A message that
    /// ends its process directly is stored before it runs again, so that it costs five processes at most. Kills from
    /// outside look the same where they meet one message again and again: replay it.
    Crashed = "crashed",
    /// Ten times the database connection was lost while it ran.
    BrokeConnection = "broke its connection",
    /// The handler ran ROLLBACK: nothing of it is in the database.
    RolledBack = "rolled back by its handler",
    /// The handler ran COMMIT: some of its effects stand. It is replayed only by force.
    Committed = "committed by its handler",
}

impl Reason {
    /// Whether a dead letter of this reason is replayed only by force: effects of it may stand already.
    pub fn needs_force(self) -> bool {
        matches!(self, Self::Committed | Self::TooOld)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
