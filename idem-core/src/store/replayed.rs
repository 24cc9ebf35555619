//! The pages in which an operator lists rows, and the results of replays.

use crate::Key;

/// A page of a list, newest rows first. By default the first 100 rows.
///
/// ```
/// # use idem_core::store::Page;
/// let next = Page::new(20).before(4711);
/// assert_eq!((next.limit, next.before), (20, Some(4711)));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Page {
    /// Lists only rows with a smaller id: the last one of the previous page.
    pub before: Option<i64>,
    /// The maximum number of rows.
    pub limit: u32,
    /// Whether rows are read with their payloads, which may be large.
    pub payloads: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self::new(100)
    }
}

impl Page {
    /// The first page, of at most this many rows.
    pub fn new(limit: u32) -> Self {
        Self { before: None, limit, payloads: true }
    }

    /// The page behind the row with this id, the last one of the page before.
    pub fn before(self, id: i64) -> Self {
        Self { before: Some(id), ..self }
    }

    /// Rows without their payloads, as a list shows them.
    pub fn without_payloads(self) -> Self {
        Self { payloads: false, ..self }
    }
}

/// How a dead row is replayed.
// Exhaustive: a store does each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay<'a> {
    /// Unless its state needs force, another key or a resolution.
    Plain,
    /// Also if it needs force.
    Forced,
    /// A conflict, under a new key: claims the key and moves the row to it, in one transaction.
    As(&'a Key),
    /// As `Plain`, and a conflict goes back through decode and key: it loses the key that belongs to another message, and runs under
    /// the one that its handler makes of it now. A local message, and one whose handler makes an external call, still need a key.
    NewKeys,
}

/// The result of a replay.
///
/// ```no_run
/// # use idem_core::{Error, Store, operator::Operator, store::Replayed};
/// # async fn replay<S: Store>(operator: Operator<S>, id: i64) -> Result<&'static str, Error> {
/// Ok(match operator.replay(id).await? {
///     Replayed::Due => "it runs now",
///     Replayed::NeedsForce => "look at its effects, then `replay_by_force` or `discard` it",
///     Replayed::NeedsKey => "another message has its key: `replay_as` under a new one, or `discard` it",
///     Replayed::Unresolved => "look at the provider, then `resolve` it",
///     _ => "somebody else has replayed or discarded it",
/// })
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// The row is due now, or when no request of its external call can be on its way any more.
    Due,
    /// There is no dead row with this id, or no longer one. For [`replay_as`](crate::operator::Operator::replay_as): none that is a
    /// conflict. `replay` takes the others, and asks the handler for the key of a row that has none.
    NotFound,
    /// Its handler had committed, or it was too old to know whether it was processed, so some of its effects may
    /// persist: replay it by force, or discard it.
    NeedsForce,
    /// Its key belongs to another message: replay it under a new key.
    NeedsKey,
    /// The new key belongs to another message.
    KeyTaken,
    /// Whether its external call had an effect is unknown: `resolve` it.
    Unresolved,
}
