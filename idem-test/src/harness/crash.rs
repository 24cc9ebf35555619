//! The point at which a process crashes.

/// The point at which a worker's process ends as if by SIGKILL. All its tasks vanish, and it sends nothing to the
/// broker or the database.
///
/// ```no_run
/// # use idem_core::{BoxError, Outcome, Store};
/// # use idem_test::{Crash, Trial};
/// # async fn test<S: Store>(trial: Trial<S>, event: serde_json::Value) -> Result<(), BoxError> {
/// // The commit has happened, the ack has not: the next process gets the message again, and finds the claim.
/// let outcomes = trial.deliver_json(&event)?.crash(Crash::AfterCommit).once().await?;
/// assert_eq!(outcomes, [Outcome::Duplicate]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Crash {
    /// The delivery has arrived; no transaction has begun.
    BeforeBegin,
    /// The claim is made but not committed.
    AfterClaim,
    /// The handler has reached its first await point: its first statement is running.
    InHandler,
    /// The handler has returned; nothing is committed.
    BeforeCommit,
    /// The transaction is committed; the broker has not received the ack.
    AfterCommit,
    /// The broker has received the ack.
    AfterAck,
}

impl Crash {
    /// Every point, in the order in which a delivery reaches them.
    pub const ALL: &[Self] =
        &[Self::BeforeBegin, Self::AfterClaim, Self::InHandler, Self::BeforeCommit, Self::AfterCommit, Self::AfterAck];
}
