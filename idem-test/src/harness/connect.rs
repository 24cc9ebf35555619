//! How each process of a trial connects to its database.

use idem_core::{Error, Store};

use super::cleanup::Cleanup;

/// A function that connects to a database.
pub trait Connect: Send + Sync + 'static {
    /// The future of the connection.
    type Output: Connecting;

    /// Connects.
    fn connect(&self) -> Self::Output;

    /// Returns what runs at the end of the trial.
    #[doc(hidden)]
    fn cleanup(&self) -> Cleanup {
        Cleanup::default()
    }
}

/// The future of a connection to a database.
pub trait Connecting: Future<Output = Result<Self::Store, Error>> + Send + 'static {
    /// The store.
    type Store: Store;
}

impl<F: Fn() -> Fut + Send + Sync + 'static, Fut: Connecting> Connect for F {
    type Output = Fut;

    fn connect(&self) -> Fut {
        self()
    }
}

impl<S: Store, Fut: Future<Output = Result<S, Error>> + Send + 'static> Connecting for Fut {
    type Store = S;
}

/// The error of the SQL that creates the handler's tables.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn no_tables(error: impl Into<idem_core::BoxError>) -> Error {
    Error::database("could not create the tables given to .tables(..)", error)
}
