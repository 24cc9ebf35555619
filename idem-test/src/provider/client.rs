//! The provider, as its clients see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::BoxError;
use tokio::sync::watch;

use super::fault::Fault;
use super::reply::Reply;
use super::state::{Begun, Charge, State};

/// A fake payment provider in the process, for tests of [external calls](idem_core::External). Clones share it.
///
/// A request has a key and a body. The provider charges once for a key: it answers a further request with that key as it did
/// the first time, also with an error (`500`), while it remembers the key. Meanwhile it answers `409` while the first request is
/// in progress, and `422` to another body. Once it has forgotten the key, the same request is a new one. A request without a
/// key is always a new one. Between the charge and its answer the caller waits, so that its process can end there.
///
/// ```
/// # use idem_core::BoxError;
/// use idem_test::provider::{Fault, Provider};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let provider = Provider::new();
/// provider.fail("order 7", [Fault::LoseAnswer]);
/// assert!(provider.charge(Some("key 1"), "order 7").await.is_err(), "the answer is lost, and the charge is there");
/// assert_eq!(provider.charge(Some("key 1"), "order 7").await?.status, 200);
/// assert_eq!(provider.ledger().len(), 1);
/// provider.forget();
/// assert_eq!(provider.charge(Some("key 1"), "order 7").await?.status, 200);
/// assert_eq!(provider.ledger().len(), 2, "the key was forgotten");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Provider {
    state: Arc<Mutex<State>>,
    /// How many requests wait until the test releases them.
    waiting: watch::Sender<usize>,
    go: watch::Sender<bool>,
}

impl Default for Provider {
    fn default() -> Self {
        Self::new()
    }
}

impl Provider {
    /// A provider that remembers keys until a test lets it [forget](Self::forget) them.
    pub fn new() -> Self {
        Self::with_key_life(Duration::MAX)
    }

    /// A provider that remembers a key for so long after its first use.
    pub fn with_key_life(life: Duration) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(life))),
            waiting: watch::Sender::new(0),
            go: watch::Sender::new(false),
        }
    }

    /// Lets the next requests with this body fail, one after another. Those behind them work.
    pub fn fail(&self, body: &str, faults: impl IntoIterator<Item = Fault>) {
        self.state().plan(body, faults);
    }

    /// Makes a request.
    ///
    /// # Errors
    /// The connection was lost, by a planned [`Fault`].
    ///
    /// # Panics
    /// By [`Fault::Panic`].
    pub async fn charge(&self, key: Option<&str>, body: &str) -> Result<Reply, BoxError> {
        // The guard is dropped before anything is awaited.
        let begun = self.state().begin(key, body);
        let request = match begun {
            Begun::Answered(reply) => return Ok(reply),
            Begun::Failed(fault) => {
                assert!(fault != Fault::Panic, "the client of the provider panics");
                return Err("the connection was lost".into());
            }
            Begun::Request(request) => request,
        };
        let waits = matches!(request.fault, Some(Fault::Wait));
        // If the caller gives up, the request has no effect, and its key is forgotten.
        let _in_progress = waits.then(|| Ending { provider: self, key: key.map(ToOwned::to_owned) });
        if waits {
            self.waiting.send_modify(|waiting| *waiting += 1);
            self.go.subscribe().wait_for(|go| *go).await?;
        }
        if matches!(request.fault, Some(Fault::Hang)) {
            std::future::pending::<()>().await;
        }
        let reply = self.state().end(&request);
        // As that of a server, the answer comes later than the effect.
        tokio::task::yield_now().await;
        reply.ok_or_else(|| "the connection was lost before the answer".into())
    }

    /// Returns the charges under this key, however old it is: what the page of the provider shows.
    pub fn find(&self, key: &str) -> Vec<Charge> {
        self.ledger().into_iter().filter(|charge| charge.key.as_deref() == Some(key)).collect()
    }

    /// Returns all charges, in their order.
    pub fn ledger(&self) -> Vec<Charge> {
        self.state().ledger.clone()
    }

    /// Returns the charges for this body.
    pub fn charged(&self, body: &str) -> usize {
        self.state().ledger.iter().filter(|charge| charge.body == body).count()
    }

    /// Returns the keys of all requests with this body, in their order, also of those that failed.
    pub fn requests(&self, body: &str) -> Vec<Option<String>> {
        self.state().requests.iter().filter(|(_, of)| of == body).map(|(key, _)| key.clone()).collect()
    }

    /// Forgets all keys.
    pub fn forget(&self) {
        self.state().keys.clear();
    }

    /// Waits until so many requests have come to [`Fault::Wait`].
    pub async fn waits(&self, requests: usize) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting >= requests).await;
    }

    /// Lets all requests go on that wait, and those that come.
    pub fn release(&self) {
        self.go.send_replace(true);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the progress of a request whose caller is gone.
struct Ending<'a> {
    provider: &'a Provider,
    key: Option<String>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.provider.state().leave(self.key.as_deref());
    }
}
