//! The transaction of a request, lent to its handler: taken out of the request, and given back.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use http::Extensions;
use idem_core::store::Replies;
use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

/// The transaction of the current request: what is written by it is committed with the reply, or rolled back with it.
///
/// It dereferences to the connection: `sqlx::query(..).execute(&mut *tx)`. A nested transaction that the handler begins is a
/// savepoint. idem commits: a handler that runs COMMIT or ROLLBACK by itself gets the status 500, and so does one that keeps the
/// transaction beyond its return.
///
/// ```
/// # #[cfg(feature = "axum")] mod example {
/// # struct PgConnection; use http::StatusCode; use idem_http::Tx;
/// async fn create(mut tx: Tx<PgConnection>) -> StatusCode {
///     let connection: &mut PgConnection = &mut tx;
///     # let _ = connection;
///     StatusCode::CREATED
/// }
/// # }
/// ```
pub struct Tx<C: Send + 'static> {
    connection: OwnedMappedMutexGuard<Place<C>, C>,
    // Declared behind the connection, so that it is dropped after it.
    _back: Back<C>,
}

/// Why there is no transaction for a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxError {
    /// The route is not within the layer of the requests, its method passes through it, or the connection is of another database.
    NoTransaction,
    /// Something else has the transaction, or the request has ended.
    Taken,
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTransaction => {
                "the request has no transaction with such a connection: put its route into the layer of `Requests`, allow its \
                 method with `.methods(..)`, and take the connection of the store's database"
            }
            Self::Taken => "the transaction of the request is in use: take `Tx` once, and pass it on as `&mut`",
        })
    }
}

impl std::error::Error for TxError {}

impl<C: Send + 'static> Tx<C> {
    /// Takes the transaction of a request, by its extensions, for services without the extractors of axum. It is given back when it
    /// is dropped.
    ///
    /// # Errors
    /// The request has none, or it is taken.
    pub fn of(extensions: &Extensions) -> Result<Self, TxError> {
        let lender: &Lender<C> = extensions.get().ok_or(TxError::NoTransaction)?;
        let place = lender.place.clone().try_lock_owned().map_err(|_| TxError::Taken)?;
        let connection = OwnedMutexGuard::try_map(place, |place| place.as_mut().map(|txn| txn.connection()));
        let connection = connection.map_err(|_| TxError::Taken)?;
        lender.is_used.store(true, SeqCst);
        Ok(Self { connection, _back: Back(lender.clone()) })
    }
}

impl<C: Send + 'static> Deref for Tx<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C: Send + 'static> DerefMut for Tx<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.connection
    }
}

impl<C: Send + 'static> fmt::Debug for Tx<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// A transaction of any store with this type of connections.
trait Lent<C>: Any + Send {
    fn connection(&mut self) -> &mut C;
}

/// The transaction of a store.
struct Open<S: Replies>(S::Txn);

impl<S: Replies> Lent<S::Connection> for Open<S> {
    fn connection(&mut self) -> &mut S::Connection {
        S::lend(&mut self.0)
    }
}

/// The transaction, until the request has ended.
type Place<C> = Option<Box<dyn Lent<C>>>;

/// The transaction in the extensions of a request. Middleware may clone or keep it, and gets no second transaction by that.
pub(crate) struct Lender<C> {
    place: Arc<Mutex<Place<C>>>,
    /// Whether the handler has taken it.
    is_used: Arc<AtomicBool>,
    /// Whether the request has ended.
    is_closed: Arc<AtomicBool>,
}

impl<C> Clone for Lender<C> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), is_used: self.is_used.clone(), is_closed: self.is_closed.clone() }
    }
}

impl<C: Send + 'static> Lender<C> {
    /// Lends a transaction.
    pub(crate) fn of<S: Replies<Connection = C>>(txn: S::Txn) -> Self {
        let place: Place<C> = Some(Box::new(Open::<S>(txn)));
        Self { place: Arc::new(Mutex::new(place)), is_used: Arc::default(), is_closed: Arc::default() }
    }

    /// Whether a handler has taken it.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(SeqCst)
    }

    /// Takes the transaction back, for good. `None`: something still has it, and it is dropped when it comes back.
    pub(crate) fn close<S: Replies<Connection = C>>(&self) -> Option<S::Txn> {
        self.is_closed.store(true, SeqCst);
        let txn = self.place.try_lock().ok()?.take()?;
        let txn: Box<dyn Any> = txn;
        txn.downcast::<Open<S>>().ok().map(|open| open.0)
    }
}

/// Drops a transaction that comes back after its request has ended, which closes its connection.
struct Back<C>(Lender<C>);

impl<C> Drop for Back<C> {
    fn drop(&mut self) {
        // The end is recorded before the place is looked at, so one of the two finds the transaction.
        if self.0.is_closed.load(SeqCst)
            && let Ok(mut place) = self.0.place.try_lock()
        {
            drop(place.take());
        }
    }
}

/// The outbox of the current request: what is staged is committed with the reply, and published by a relay with the name of the
/// requests. It dereferences to [`idem_core::Outbox`], which has the methods.
#[derive(Debug, Clone, Default)]
pub struct Outbox(pub(crate) idem_core::Outbox);

impl Deref for Outbox {
    type Target = idem_core::Outbox;

    fn deref(&self) -> &idem_core::Outbox {
        &self.0
    }
}
