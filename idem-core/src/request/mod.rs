//! Requests: each runs once, and its repeats get its reply. Everything about them that is not HTTP, for a layer in front of a service.
//!
//! The claim of a request, what its handler writes and stages, and its reply are one commit. So there is no moment at which one
//! of them is there without the others.
//!
//! | file | contents |
//! |---|---|
//! | this one | the options, and the results |
//! | `runner` | begin with the claim, and the end of the transaction |
//! | `upkeep` | the registration, and what is done each minute |

mod runner;
mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registered;
use crate::runtime::Settings;
use crate::store::{Replies, StoreError, StoredReply};
use crate::{Source, Store, Worker};

pub use runner::{OpenRequest, RequestRunner};

/// The options of requests.
#[derive(Clone)]
#[non_exhaustive]
pub struct RequestOptions<S> {
    /// How long a handler may run; 30 seconds by default.
    pub timeout: Duration,
    /// How long a request waits for another one with its key, and for a connection; 2 seconds by default. With PostgreSQL a wait
    /// for a request of another process takes at least a second.
    pub wait: Duration,
    /// How long claims and replies are kept; 24 hours by default.
    pub retention: Duration,
    /// The worker that has the handlers of local messages.
    local: Option<Arc<LocalWorker<S>>>,
}

/// The handlers of a worker, and what it does with a message before they run.
struct LocalWorker<S> {
    consumer: String,
    handlers: Vec<Arc<dyn Registered<S>>>,
    settings: Settings,
}

impl<S> Default for RequestOptions<S> {
    fn default() -> Self {
        let (timeout, wait) = (Duration::from_secs(30), Duration::from_secs(2));
        Self { timeout, wait, retention: Duration::from_secs(24 * 3600), local: None }
    }
}

impl<S: Store> RequestOptions<S> {
    /// Lets handlers of requests stage [local messages](crate::Outbox::local) for the handlers that this worker has now. If it
    /// runs in this process, it finds them at once; in another one, on the same database, at its next
    /// [poll](crate::Worker::poll_interval).
    pub fn local_to<Src: Source, St, C, Stage>(&mut self, worker: &Worker<S, Src, St, C, Stage>) {
        let (consumer, handlers, settings) = worker.for_local_messages();
        self.local = Some(Arc::new(LocalWorker { consumer, handlers, settings }));
    }
}

impl<S> fmt::Debug for RequestOptions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions")
            .field("timeout", &self.timeout)
            .field("wait", &self.wait)
            .field("retention", &self.retention)
            .field("local", &self.local.as_ref().map(|worker| &worker.consumer))
            .finish()
    }
}

/// What a request is, by the claim of its key.
#[non_exhaustive]
pub enum Begun<S: Replies> {
    /// It is new, or has no key: its handler runs in this transaction.
    Open(S::Txn, OpenRequest<S>),
    /// It was committed before, with this reply.
    Replied(StoredReply),
    /// Its key is claimed, and there is no reply: the application has claimed it by itself, or the handler of the first request
    /// has ended its transaction. It must not run again.
    Unanswered,
    /// Another request has its key.
    Conflict,
    /// Another request with its key runs.
    Busy,
    /// The database, or a connection, could not be had in time. Nothing is known about the request.
    Unavailable(StoreError),
}

impl<S: Replies> fmt::Debug for Begun<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(_, request) => f.debug_tuple("Open").field(request).finish(),
            Self::Replied(reply) => f.debug_tuple("Replied").field(reply).finish(),
            Self::Unanswered => f.write_str("Unanswered"),
            Self::Conflict => f.write_str("Conflict"),
            Self::Busy => f.write_str("Busy"),
            Self::Unavailable(fault) => f.debug_tuple("Unavailable").field(fault).finish(),
        }
    }
}

/// Why a request is not known to be committed. The text is for the log: it may have values of the application.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCommitted {
    /// The database did not answer, so that the request may be committed or not. A repeat finds out.
    #[error("the outcome of the transaction is not known: {0}")]
    Unknown(String),
    /// It has lost a race with another transaction, and nothing was written. A repeat may succeed.
    #[error("another transaction was faster: {0}")]
    Raced(String),
    /// It cannot be committed, through its handler: nothing was written, unless the handler had run COMMIT.
    #[error("{0}")]
    Refused(String),
}
