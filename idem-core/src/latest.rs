//! The latest version of each entity, as a handler has seen it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::KeyPart;
use crate::store::{HandlerId, LatestVersions};
use crate::{BoxError, Extract, Extraction, Key, Param};

/// Tells whether a message is newer than all that its handler has seen of the same entity, for events that carry state:
/// of two copies the second one, and of two versions the older one, changes nothing, however late it comes. One row for
/// each entity does that, which is kept forever, where claims need one for each message.
///
/// It is not for events that carry changes: of "5 more" and "3 more", in any order, each has to be added.
///
/// ```
/// # #[cfg(feature = "sqlite")] mod example { use idem_core::Latest; use sqlx::SqliteConnection;
/// struct OrderChanged { order_id: i64, version: i64, status: String }
///
/// // With `#[idempotent(key = "event_id", natural)]` it needs no claim.
/// pub async fn order_changed(event: OrderChanged, tx: &mut SqliteConnection, latest: Latest) -> Result<(), sqlx::Error> {
///     if !latest.advance(tx, event.order_id, event.version).await? {
///         return Ok(());
///     }
///     let upsert = "INSERT INTO orders (id, status) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET status = ?2";
///     sqlx::query(upsert).bind(event.order_id).bind(event.status).execute(tx).await?;
///     Ok(())
/// }
/// # }
/// ```
///
/// The versions of an entity are those of one consumer and handler: each handler sees each version. They belong to the
/// transaction of the handler, so a run that fails has seen nothing.
///
/// A worker with a handler that takes it needs the table of migration 3, and refuses to start without it. A parameter of
/// your own that passes it on has to declare [`Param::ADVANCES`].
#[derive(Clone)]
#[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), expect(dead_code, reason = "no connection reads it"))]
pub struct Latest(Seen);

#[derive(Clone)]
#[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), expect(dead_code, reason = "no connection reads them"))]
enum Seen {
    Table(LatestVersions, HandlerId),
    /// Of a test: nothing is stored.
    Memory(Arc<Mutex<HashMap<Key, i64>>>),
}

impl Latest {
    /// The latest versions of this handler, in the table of a store, for code that no worker calls, such as an import.
    pub fn new(versions: LatestVersions, handler: HandlerId) -> Self {
        Self(Seen::Table(versions, handler))
    }

    /// Returns `true` and remembers the version if the entity has no version yet, or only lower ones; returns `false` if
    /// this one, or a higher one, was there before. If another transaction has advanced the entity and not ended yet, it
    /// waits for that.
    ///
    /// `entity` is encoded as a key is, with at most 255 bytes; for several parts, such as a tenant and a number, take
    /// `Key::composite(&[..])?.as_bytes()`. It has no type: the order 7 and the customer 7 are one entity, so a handler of
    /// several kinds names the kind in it. An entity that has no version yet takes any one: where the handler's own tables
    /// have rows already, fill the table of versions first (the guide `docs::natural` has the SQL). A version is an integer that rises: a counter of the producer, or a time in
    /// microseconds, if two versions cannot have the same one.
    ///
    /// # Errors
    /// The database returned an error, or the entity is empty or longer than 255 bytes ([`sqlx::Error::Encode`]). The
    /// handler returns it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub async fn advance<C: LatestConnection>(
        &self,
        tx: &mut C,
        entity: impl KeyPart,
        version: impl Into<i64>,
    ) -> Result<bool, sqlx::Error> {
        let (entity, version) = (Key::of(&entity).map_err(|error| sqlx::Error::Encode(error.into()))?, version.into());
        match &self.0 {
            Seen::Table(table, handler) => tx.advance(table, *handler, &entity, version).await,
            Seen::Memory(seen) => {
                let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let is_newer = seen.get(&entity).is_none_or(|known| *known < version);
                if is_newer {
                    seen.insert(entity, version);
                }
                Ok(is_newer)
            }
        }
    }
}

/// For a test that calls a handler itself: the versions are kept in memory, whatever becomes of the transaction. Clones
/// share them.
impl Default for Latest {
    fn default() -> Self {
        Self(Seen::Memory(Arc::default()))
    }
}

impl fmt::Debug for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latest").finish_non_exhaustive()
    }
}

impl Param for Latest {
    const ADVANCES: bool = true;
}

impl<S> Extract<S> for Latest {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let undeclared = || {
            "no parameter of the handler has said that it takes `Latest`: an extractor that passes it on has to declare \
             `const ADVANCES: bool = true;` in its implementation of `Param`"
        };
        let (table, handler) = from.latest.ok_or_else(undeclared)?;
        Ok(Self::new(table.clone(), handler))
    }
}

/// A connection on which [`Latest::advance`] works: `sqlx::PgConnection` and `sqlx::SqliteConnection`.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub trait LatestConnection: sealed::Sealed + Send {
    /// Inserts or raises the version of an entity; returns whether it did.
    #[doc(hidden)]
    fn advance(
        &mut self,
        table: &LatestVersions,
        handler: HandlerId,
        entity: &Key,
        version: i64,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sealed {
    pub trait Sealed {}

    #[cfg(feature = "postgres")]
    impl Sealed for sqlx::PgConnection {}
    #[cfg(feature = "sqlite")]
    impl Sealed for sqlx::SqliteConnection {}
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! connection {
    ($connection:ty) => {
        impl LatestConnection for $connection {
            async fn advance(
                &mut self,
                table: &LatestVersions,
                handler: HandlerId,
                entity: &Key,
                version: i64,
            ) -> Result<bool, sqlx::Error> {
                let advanced = sqlx::query(table.statement()).bind(handler.0).bind(entity.as_bytes()).bind(version);
                Ok(advanced.fetch_optional(self).await?.is_some())
            }
        }
    };
}

#[cfg(feature = "postgres")]
connection!(sqlx::PgConnection);
#[cfg(feature = "sqlite")]
connection!(sqlx::SqliteConnection);
