//! A store that does what another one does, except where its tap stops it or lets it fail.

mod claims;
mod inbox_rows;
mod operator;
mod over;
mod transactions;

use idem_core::store::Fault;
use idem_core::{BoxError, Lends, Store};

use crate::harness::Crash;

pub(crate) use over::Over;

/// What [`TappedStore`] does otherwise than the store within. All of it is left as it is by default.
pub(crate) trait StoreTap: Clone + Send + Sync + 'static {
    /// Before `ping`, `seen`, `survey` and `level`, and before each `claim` and `insert`, with the key of the message.
    fn before(&self, _method: &'static str, _key: &[u8]) -> impl Future<Output = Result<(), Fault>> + Send {
        std::future::ready(Ok(()))
    }

    /// At each point at which a process can crash.
    fn reach(&self, _point: Crash) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Runs a handler.
    fn handle<R>(&self, run: R) -> impl Future<Output = Result<(), BoxError>> + Send
    where
        R: Future<Output = Result<(), BoxError>> + Send,
    {
        run
    }
}

/// A store that hands all calls on to the store within, by way of its tap. Its handlers are [`Over`] those of that store.
#[derive(Clone)]
pub(crate) struct TappedStore<S, T> {
    within: S,
    tap: T,
}

impl<S, T> TappedStore<S, T> {
    pub(crate) fn new(within: S, tap: T) -> Self {
        Self { within, tap }
    }
}

/// A transaction of the store within, and the tap.
pub(crate) struct TappedTxn<X, T> {
    within: X,
    tap: T,
}

/// Lends the transaction itself, because [`Over`] needs the tap that comes with it.
impl<S: Store, T: StoreTap> Lends<TappedTxn<S::Txn, T>> for TappedStore<S, T> {
    fn lend(txn: &mut Self::Txn) -> &mut TappedTxn<S::Txn, T> {
        txn
    }
}
