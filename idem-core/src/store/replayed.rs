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
}

impl Default for Page {
    fn default() -> Self {
        Self::new(100)
    }
}

impl Page {
    /// The first page, of at most this many rows.
    pub fn new(limit: u32) -> Self {
        Self { before: None, limit }
    }

    /// The page behind the row with this id, the last one of the page before.
    pub fn before(self, id: i64) -> Self {
        Self { before: Some(id), ..self }
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
}

/// The result of a replay.
///
/// ```no_run
/// # use idem_core::{Error, Inbox, Store, store::Replayed};
/// # async fn replay<S: Store>(inbox: Inbox<S>, id: i64) -> Result<&'static str, Error> {
/// Ok(match inbox.replay(id).await? {
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
    /// There is no dead row with this id, or no longer one. For [`replay_as`](crate::Inbox::replay_as): none that is a
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

/// The result of a replay of many dead letters.
///
/// ```no_run
/// # use idem_core::{Error, Inbox, Store, store::Filter};
/// # async fn replay<S: Store>(inbox: Inbox<S>) -> Result<(), Error> {
/// let all = inbox.replay_all(&Filter::new().handler("order_paid")).await?;
/// println!("{} replayed, {} to look at", all.due, all.needs_force + all.needs_key);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayedAll {
    /// How many are due now.
    pub due: u64,
    /// How many were left because they need force, see [`Replayed::NeedsForce`].
    pub needs_force: u64,
    /// How many were left because they need another key, see [`Replayed::NeedsKey`].
    pub needs_key: u64,
    /// How many were left because the effect of their call is unknown, see [`Replayed::Unresolved`].
    pub unresolved: u64,
}
