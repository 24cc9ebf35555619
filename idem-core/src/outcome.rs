//! The result of one delivery, and how an observer sees it.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Delivery, Key};

/// The result of one delivery. Each result is committed in the database, so each is acked: at once, or with an order when
/// the message is processed or dead.
///
/// A later version may add outcomes, and fields to these, so a `match` needs `_` and `..`:
///
/// ```
/// # use idem_core::{Outcome, Reason};
/// fn describe(outcome: &Outcome) -> String {
///     match outcome {
///         Outcome::Scheduled { attempt, due, .. } => format!("attempt {attempt} failed, the next is due in {due:?}"),
///         Outcome::Dead { reason, .. } => format!("dead: {reason}"),
///         other => other.as_str().to_owned(),
///     }
/// }
/// assert_eq!(describe(&Outcome::dead(Reason::Exhausted)), "dead: exhausted");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler ran, and its writes are committed together with the claim.
    Processed,
    /// The message was claimed before; the handler did not run.
    Duplicate,
    /// The message waits in the inbox. Attempt 0 means that the message was stored before its first run.
    #[non_exhaustive]
    Scheduled {
        /// The number of failed attempts.
        attempt: u32,
        /// The time until it runs.
        due: Duration,
    },
    /// The message is a dead letter, kept whole.
    #[non_exhaustive]
    Dead {
        /// The reason.
        reason: Reason,
    },
}

/// A delivery, or a run from the inbox, with its outcome: the argument of the function that
/// [`Worker::observe`](crate::Worker::observe) takes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// The delivery. For a run from the inbox, it is the one that was stored.
    pub delivery: &'a Delivery,
    /// The name of the handler. `None` if this worker has no handler that takes the delivery.
    pub handler: Option<&'a str>,
    /// The key of the message for this handler. `None` if the message has none: it cannot be decoded, for example.
    pub key: Option<&'a Key>,
    /// The outcome.
    pub outcome: &'a Outcome,
}

impl Outcome {
    /// A dead letter with this reason, for comparisons in tests.
    pub fn dead(reason: Reason) -> Self {
        Self::Dead { reason }
    }

    /// A message that was stored before its first run.
    pub(crate) fn stored() -> Self {
        Self::Scheduled { attempt: 0, due: Duration::ZERO }
    }

    /// Whether the message was stored in the inbox before its first run.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self, Self::Scheduled { attempt: 0, .. })
    }

    /// The name of the outcome in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
            Self::Scheduled { .. } => "scheduled",
            Self::Dead { reason: Reason::Conflict } => "conflict",
            Self::Dead { .. } => "dead",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why a message became a dead letter. The names are those of the column `reason`.
        ///
        /// ```
        /// # use idem_core::Reason;
        /// let reason = Reason::parse("too old");
        /// assert_eq!(reason, Some(Reason::TooOld));
        /// assert!(reason.is_some_and(Reason::needs_force));
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name of the reason in the column `reason` and in the log.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// Returns the reason with this name.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$name),)* _ => None }
            }
        }
    };
}

// A new reason: also `needs_force` below, `Replay::answer`, and `counts` of the kill switch if the message is undeliverable.
reasons! {
    /// The last attempt failed.
    Exhausted = "exhausted",
    /// The handler returned [`permanent`](crate::permanent).
    Permanent = "permanent",
    /// The payload could not be decoded, or the delivery claims to be a CloudEvent but is malformed.
    Undecodable = "undecodable",
    /// No key could be created.
    NoKey = "no key",
    /// The broker delivered something that a [`Delivery`](crate::Delivery) cannot hold, such as a header name that is
    /// not UTF-8. The representable parts are kept, and the error describes the rest.
    Unrepresentable = "unrepresentable",
    /// The payload exceeds the size limit, or the answer of its external call does.
    TooLarge = "too large",
    /// No handler of the worker takes this event type.
    UnknownType = "unknown type",
    /// Another message was claimed under the same key. It can be replayed only under a new key.
    Conflict = "conflict",
    /// It was published, by the broker's clock, before the newest pruned claim, or within a tenth of the retention, at most
    /// five minutes, after it. So it is unknown whether it was processed. It can be replayed only by force.
    TooOld = "too old",
    /// The process ended four times while the message ran from the inbox, the last two times while it ran in isolation.
    /// A message that ends its process in a direct run is stored before it runs again, and that end is not counted, so it
    /// costs at most five processes; the guide on limits has the exceptions. Of a message with an external call, also: the
    /// call has begun ten times without a result. External kills look the same if they hit one message repeatedly; in that
    /// case, replay it. With a key-value store: the process ended four times while the message ran, in it or beside it. Nothing
    /// runs in isolation there, so messages that ran each time beside one that ends its process are dead as well.
    Crashed = "crashed",
    /// The database connection was lost ten times while it ran.
    BrokeConnection = "broke its connection",
    /// The handler ran ROLLBACK or PREPARE TRANSACTION: none of its writes are in the database.
    RolledBack = "rolled back by its handler",
    /// The handler ran COMMIT: some of its writes may be committed. It can be replayed only by force.
    Committed = "committed by its handler",
    /// Whether its external call had an effect is unknown, and calling again could repeat the effect.
    /// [`Operator::resolve`](crate::operator::Operator::resolve) records its outcome.
    Unresolved = "unresolved",
    /// Some of the writes of its handler to a key-value store were applied, and then one failed. It never runs again by itself.
    HalfApplied = "half applied",
}

impl Reason {
    /// Returns whether a dead letter with this reason can be replayed only by force, because some of its effects may
    /// persist. In a key-value store a replay needs no force, and the letter says what to check before.
    pub fn needs_force(self) -> bool {
        matches!(self, Self::Committed | Self::TooOld)
    }
}

/// As its name.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::parse(&word)
            .ok_or_else(|| D::Error::custom(format!("{word:?} is no reason that this version of idem knows")))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
