//! The transaction of a request: begun with its claim, and ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use crate::outbox::{Origin, Outbox};
use crate::run::{Staged, in_claim_order, local};
use crate::runtime::{KeyQueue, KeyTicket};
use crate::store::{Claimed, CommitResult, Identity, REQUEST, Replies, StoreError, StoredReply, TxnOutcome};
use crate::telemetry::Meters;
use crate::{BoxError, Fingerprint, Key, Outcome, Reason};

use super::upkeep::Registered;
use super::{Begun, NotCommitted, RequestOptions};

/// The least time that the claim has, once it is the turn of a request. A store that waits for another claim gives up within it.
const LEAST: Duration = Duration::from_millis(1500);

/// The most that a wait and a handler have: a year. A later time may not exist.
const MOST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs requests under one name. Clones share their queues and their tasks, and each has its options.
pub struct RequestRunner<S: Replies> {
    pub(super) shared: Arc<Shared<S>>,
    /// The options.
    pub options: RequestOptions<S>,
}

/// What the clones share.
pub(super) struct Shared<S> {
    pub(super) name: String,
    pub(super) store: S,
    pub(super) registered: Mutex<Option<Arc<Registered<S>>>>,
    /// Held while one request registers, for which the others wait.
    pub(super) registration: Arc<tokio::sync::Mutex<()>>,
    /// The keys in progress in this process: a request that repeats another one needs no connection while it waits.
    keys: KeyQueue,
    tasks: TaskTracker,
    meters: Meters,
}

impl<S: Replies> Clone for RequestRunner<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), options: self.options.clone() }
    }
}

impl<S: Replies> RequestRunner<S> {
    /// Returns the runner of this name, which is part of every claim: under another name, all requests are new. Its outbox has
    /// the same name.
    pub fn new(name: impl Into<String>, store: S) -> Self {
        let name = name.into();
        let shared = Shared {
            meters: Meters::new(&name, REQUEST),
            name,
            store,
            registered: Mutex::default(),
            registration: Arc::default(),
            keys: KeyQueue::default(),
            tasks: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared), options: RequestOptions::default() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Begins the transaction of a request, with the claim of its key; without a key as a plain transaction.
    ///
    /// It must be called in a Tokio runtime, in which the tasks of the upkeep run. Dropping the future leaves no transaction open.
    pub async fn begin(&self, request: Option<(Key, Fingerprint)>) -> Begun<S> {
        let deadline = Instant::now() + self.options.wait.min(MOST);
        let limit = deadline.max(Instant::now() + LEAST);
        let registered = match timeout_at(limit, self.registered()).await {
            Ok(Ok(registered)) => registered,
            Ok(Err(fault)) => return Begun::Unavailable(fault),
            Err(_) => return Begun::Unavailable(late()),
        };
        let Some((key, fingerprint)) = request else {
            return match timeout_at(limit, self.shared.store.begin_first(self.options.timeout, None)).await {
                Ok(Ok((txn, _))) => Begun::Open(txn, self.open(registered, None)),
                Ok(Err(fault)) => Begun::Unavailable(fault),
                Err(_) => Begun::Unavailable(late()),
            };
        };
        let turn = self.shared.keys.enqueue(key.as_bytes());
        let has_turn = timeout_at(deadline, turn.turn()).await.is_ok();
        let request = Identity { handler: registered.handler, key, fingerprint };
        let begun = match has_turn {
            true => self.claim(registered, request, turn, deadline).await,
            false => Begun::Busy,
        };
        let meters = &self.shared.meters;
        match &begun {
            Begun::Replied(_) => meters.count(&Outcome::Duplicate),
            Begun::Conflict => meters.count(&Outcome::dead(Reason::Conflict)),
            Begun::Busy => meters.parked.increment(1),
            _ => {}
        }
        begun
    }

    /// Begins with the claim, again if another request with this key ends meanwhile.
    async fn claim(
        &self,
        registered: Arc<Registered<S>>,
        request: Identity,
        turn: KeyTicket,
        deadline: Instant,
    ) -> Begun<S> {
        let (store, meters, began) = (&self.shared.store, &self.shared.meters, Instant::now());
        let mut waits_for_claim = false;
        loop {
            let limit = deadline.max(Instant::now() + LEAST);
            let begun = match timeout_at(limit, store.begin_first(self.options.timeout, Some(&request))).await {
                Ok(begun) => begun,
                Err(_) if waits_for_claim => return Begun::Busy,
                Err(_) => return Begun::Unavailable(late()),
            };
            let (txn, claimed) = match begun {
                Ok(begun) => begun,
                Err(StoreError::LockTimeout) if S::WAITS_FOR_CLAIM => {
                    waits_for_claim = true;
                    if Instant::now() >= deadline {
                        return Begun::Busy;
                    }
                    continue;
                }
                Err(StoreError::Serialization(_)) if Instant::now() < deadline => continue,
                Err(fault) => return Begun::Unavailable(fault),
            };
            meters.claim.record(began.elapsed());
            return match claimed {
                Claimed::New { .. } => Begun::Open(txn, self.open(registered, Some((request, turn)))),
                // It was committed while the statement ran, or removed.
                Claimed::Found(None) => match store.rollback(txn).await {
                    Ok(_) if Instant::now() < deadline => continue,
                    Ok(_) => Begun::Busy,
                    Err(fault) => Begun::Unavailable(fault),
                },
                Claimed::Found(Some(claim)) if !request.is_copy(claim.fingerprint) => {
                    // Nothing was written. If there is no answer, the connection is closed.
                    let _ = store.rollback(txn).await;
                    Begun::Conflict
                }
                Claimed::Found(Some(claim)) => match store.find_reply(txn, &request).await {
                    Ok(Some(reply)) => {
                        claim.age.into_iter().for_each(|age| meters.duplicate_age.record(age));
                        Begun::Replied(reply)
                    }
                    Ok(None) => Begun::Unanswered,
                    Err(fault) => Begun::Unavailable(fault),
                },
            };
        }
    }

    fn open(&self, registered: Arc<Registered<S>>, claim: Option<(Identity, KeyTicket)>) -> OpenRequest<S> {
        let (request, turn) = claim.unzip();
        let (runner, began) = (self.clone(), Instant::now());
        OpenRequest { runner, registered, request, outbox: Outbox::default(), began, _turn: turn }
    }

    /// Runs a request in a task of its own, which goes on if nobody waits for it any more.
    pub fn spawn<F>(&self, request: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.shared.tasks.spawn(request)
    }

    /// Waits until all requests have ended that have begun, also those whose clients are gone. Call it when no further ones
    /// arrive. Cancel safe.
    pub async fn finished(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// Why a request that waits for a connection, or for the writer of a file, does not begin.
fn late() -> StoreError {
    StoreError::ConnectionLost("no transaction could begin in time".into())
}

/// A request whose transaction is open. It has its place in the queue of its key.
pub struct OpenRequest<S: Replies> {
    runner: RequestRunner<S>,
    registered: Arc<Registered<S>>,
    request: Option<Identity>,
    outbox: Outbox,
    began: Instant,
    _turn: Option<KeyTicket>,
}

impl<S: Replies> OpenRequest<S> {
    /// The outbox, into which its handler stages messages. They are written by [`commit`](Self::commit).
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// When its handler is late.
    pub fn deadline(&self) -> Instant {
        self.began + self.runner.options.timeout.min(MOST)
    }

    /// Whether it has a key, so that its reply is kept.
    pub fn has_key(&self) -> bool {
        self.request.is_some()
    }

    /// The handler has returned, or was dropped: refuses what its tasks may still stage.
    pub fn handled(&self) {
        self.outbox.end(REQUEST);
        self.runner.shared.meters.handler.record(self.began.elapsed());
    }

    /// Writes what the handler has staged, and the reply, and commits: nothing of it, if the handler has ended the transaction.
    ///
    /// # Errors
    /// It is not known to be committed.
    pub async fn commit(self, mut txn: S::Txn, reply: Option<StoredReply>) -> Result<(), NotCommitted> {
        let Shared { store, meters, .. } = &*self.runner.shared;
        let began = Instant::now();
        let Staged { outgoing, local } = match self.staged() {
            Ok(staged) => staged,
            Err(error) => {
                self.roll_back(txn).await;
                return Err(NotCommitted::Refused(error.to_string()));
            }
        };
        let (publishes, hands_over) = (!outgoing.is_empty(), !local.is_empty());
        if publishes || hands_over {
            store.stage(&mut txn, self.registered.outbox, outgoing, in_claim_order(local));
        }
        if let (Some(request), Some(reply)) = (&self.request, reply) {
            store.keep_reply(&mut txn, request, reply);
        }
        let committed = store.commit(txn).await;
        meters.commit.record(began.elapsed());
        // Also without an answer: the messages may be there.
        if publishes {
            store.facts().notifier.notify();
        }
        if let Some((_, settings)) = self.registered.local.as_ref().filter(|_| hands_over) {
            settings.handed_over.notify_one();
        }
        ended(committed).inspect(|()| meters.count(&Outcome::Processed))
    }

    /// Rolls back: nothing of the request is kept, and its key is free. If the database does not answer, the connection is closed,
    /// which has the same effect. Returns `false` if the handler had run COMMIT before: its writes and the claim are there.
    pub async fn roll_back(&self, txn: S::Txn) -> bool {
        match self.runner.shared.store.rollback(txn).await {
            Ok(TxnOutcome::CommittedEarly) => {
                tracing::error!("the handler of a request has committed by itself, and then failed: let idem commit");
                false
            }
            Ok(_) => true,
            Err(fault) => {
                tracing::debug!(error = %fault, "the rollback of a request was not answered; its connection is closed");
                true
            }
        }
    }

    /// Takes the messages that the handler has staged. Their ids are random: once its claim is removed, the key may be that of
    /// another request, and derived ids would make copies of its messages.
    fn staged(&self) -> Result<Staged, BoxError> {
        let mut staged = Staged::default();
        let messages = self.outbox.take();
        if messages.is_empty() {
            return Ok(staged);
        }
        let Registered { outbox, local: worker, .. } = &*self.registered;
        let limit = self.runner.shared.store.facts().notifier.limit(*outbox);
        let (consumer, handler) = (self.runner.name(), REQUEST);
        let origin = Origin { namespace: outbox.namespace, consumer, handler, key: None };
        staged.add(messages, limit, &origin, |id, message| match worker {
            Some((routes, settings)) => local(routes, settings, id, message, None),
            None => Err(format!(
                "the handler {:?} cannot take a local message: the requests have no worker, so give them one, `.local_to(&worker)`",
                message.to()
            )),
        })?;
        Ok(staged)
    }
}

/// Returns what the answer to COMMIT says.
fn ended(committed: CommitResult) -> Result<(), NotCommitted> {
    let text = |error: BoxError| crate::error::text(error.as_ref());
    Err(match committed {
        CommitResult::Done => return Ok(()),
        CommitResult::Unknown(fault) | CommitResult::NotSent(fault, _) => {
            NotCommitted::Unknown(crate::error::text(&fault))
        }
        CommitResult::Retry(error) | CommitResult::Busy(error) => NotCommitted::Raced(text(error)),
        CommitResult::Refused(error) => NotCommitted::Refused(text(error)),
        CommitResult::Swallowed => NotCommitted::Refused("the handler has ignored an error of a statement".to_owned()),
        CommitResult::RolledBack | CommitResult::CommitRefused | CommitResult::CommittedEarly(_) => {
            let why = "the handler has ended its transaction: let idem commit, and return an error to roll back";
            NotCommitted::Refused(why.to_owned())
        }
    })
}

impl<S: Replies> fmt::Debug for RequestRunner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRunner").field("name", &self.name()).field("options", &self.options).finish()
    }
}

impl<S: Replies> fmt::Debug for OpenRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRequest").field("request", &self.request).finish_non_exhaustive()
    }
}
