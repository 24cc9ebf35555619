//! The operator's interface to the inbox.

use serde::de::IgnoredAny;
use uuid::Uuid;

use crate::store::{Filter, Page, Replay, Replayed, ReplayedAll, Resolution, Row, StoreError};
use crate::{Error, Key, KeyError, Store};

/// The inbox of one consumer, for an operator: list, replay, resolve, discard. It needs no worker.
///
/// ```no_run
/// # use idem_core::{BoxError, Inbox, Reason, Store, store::{Filter, Page}};
/// # async fn admin<S: Store>(store: S) -> Result<(), BoxError> {
/// let inbox = Inbox::open(&store, "billing").await?;
/// for row in inbox.list(&Filter::default(), Page::default()).await? {
///     println!("{} {} {} {:?}: {}", row.id, row.handler, row.identity.key, row.reason, row.error);
/// }
/// let exhausted = Filter::new().reason(Reason::Exhausted);
/// println!("{} replayed", inbox.replay_all(&exhausted).await?.due);
/// # Ok(()) }
/// ```
///
/// Every method is one committed statement or transaction. If its future is dropped, the work may or may not have been
/// done; each method can be repeated.
#[derive(Debug, Clone)]
pub struct Inbox<S> {
    store: S,
    consumer: String,
}

impl<S: Store> Inbox<S> {
    /// Returns the inbox of a consumer that a worker has had in this database.
    ///
    /// # Errors
    /// [`Error::Config`] if no worker has ever had this name; the text lists the names that there are.
    /// [`Error::Database`] if the database cannot be used.
    pub async fn open(store: &S, consumer: impl Into<String>) -> Result<Self, Error> {
        let consumer = consumer.into();
        let known = store.handlers(None).await.map_err(|fault| failed("list the consumers", fault))?;
        // Sorted by their consumers.
        let mut known: Vec<String> = known.into_iter().map(|handler| handler.consumer).collect();
        known.dedup();
        if known.contains(&consumer) {
            return Ok(Self::new(store, consumer));
        }
        Err(Error::Config(format!(
            "no worker has ever had the consumer name {consumer:?} in this database: the names here are {known:?}"
        )))
    }

    /// Returns the inbox of this consumer, without a check that there is one: it may be that no worker has started yet.
    /// An operator's command uses [`open`](Self::open), so that a misspelled name is not an empty inbox.
    pub fn new(store: &S, consumer: impl Into<String>) -> Self {
        Self { store: store.clone(), consumer: consumer.into() }
    }

    /// Returns one page of the rows that match, newest first ([`Page::default()`]: 100 rows); dead letters by default.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn list(&self, filter: &Filter, page: Page) -> Result<Vec<Row>, Error> {
        self.store.list(&self.consumer, filter, page).await.map_err(|fault| failed("list the inbox", fault))
    }

    /// Returns the row with this id, dead or scheduled; `None` if this consumer has no such row (any more).
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Inbox, Store};
    /// # async fn show<S: Store>(inbox: Inbox<S>, id: i64) -> Result<(), BoxError> {
    /// let row = inbox.get(id).await?.ok_or("there is no such row any more")?;
    /// println!("after {} attempts: {}", row.attempts, row.error);
    /// println!("{}", String::from_utf8_lossy(row.delivery.payload()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn get(&self, id: i64) -> Result<Option<Row>, Error> {
        read_row(&self.store, &self.consumer, id).await.map_err(|fault| failed("read a row of the inbox", fault))
    }

    /// Replays all dead letters that match, newest first, each in its own transaction, as [`replay`](Self::replay)
    /// does. Those that need force, a new key or a search at the provider are counted and left as they are. A message
    /// that dies again meanwhile is not replayed a second time. If it fails in the middle, those before are replayed,
    /// and it can be repeated.
    ///
    /// # Errors
    /// [`Error::Config`] for a filter of scheduled rows, which are due by themselves; [`Error::Database`] if the
    /// database cannot be used.
    pub async fn replay_all(&self, filter: &Filter) -> Result<ReplayedAll, Error> {
        if filter.scheduled {
            return Err(Error::Config("only dead letters are replayed: take `.scheduled()` out of the filter".into()));
        }
        // Each row is read with its payload.
        let mut page = Page::new(20);
        let mut all = ReplayedAll::default();
        loop {
            let rows = self.list(filter, page).await?;
            let Some(last) = rows.last() else { return Ok(all) };
            page.before = Some(last.id);
            for row in &rows {
                match self.replay(row.id).await? {
                    Replayed::Due => all.due += 1,
                    Replayed::NeedsForce => all.needs_force += 1,
                    Replayed::NeedsKey | Replayed::KeyTaken => all.needs_key += 1,
                    Replayed::Unresolved => all.unresolved += 1,
                    // Somebody else has replayed or discarded it.
                    Replayed::NotFound => {}
                }
            }
        }
    }

    /// Makes a dead letter due now, with all its attempts as if it were new. Its claim is kept throughout, so nothing
    /// else can process the message, and a second replay finds nothing to do. It runs out of order.
    ///
    /// A dead letter whose external call is in doubt is due when the lease of that call has ended, at most its timeout and ten
    /// seconds later: until then its request may be on its way.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn replay(&self, id: i64) -> Result<Replayed, Error> {
        self.replay_how(id, Replay::Plain).await
    }

    /// Replays a dead letter whose handler had run COMMIT, or that was too old to determine whether it was processed.
    /// Effects that are already committed are written again, unless the handler checks for them.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn replay_by_force(&self, id: i64) -> Result<Replayed, Error> {
        self.replay_how(id, Replay::Forced).await
    }

    /// Replays a conflict under `key`, which is claimed for it.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Inbox, Key, Store, store::Replayed};
    /// # async fn correct<S: Store>(inbox: Inbox<S>, id: i64) -> Result<(), BoxError> {
    /// // The producer has used the key `e-1` for two payments, and this is the second one.
    /// let replayed = inbox.replay_as(id, &Key::of("e-1-corrected")?).await?;
    /// assert_eq!(replayed, Replayed::Due);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The database cannot be used, or the key is empty ([`Key::stored`] returns such a one).
    pub async fn replay_as(&self, id: i64, key: &Key) -> Result<Replayed, Error> {
        if key.as_bytes().is_empty() {
            return Err(Error::Config(KeyError::Empty.to_string()));
        }
        self.replay_how(id, Replay::As(key)).await
    }

    /// Records the outcome of the external call of a dead letter, after a search at the provider: the message completes
    /// with an answer, calls again under another key, or is discarded. Returns `false` if there is no such dead letter
    /// (any more), if its call has another key by now, since somebody else has let the message call again, or if the message is
    /// to call again although it has an answer.
    ///
    /// `provider_key` is the key that was looked for at the provider: [`Row::provider_key`].
    ///
    /// This is the only way to change a dead letter with the reason [`Unresolved`](crate::Reason::Unresolved). Other dead letters of
    /// a call can be resolved as well: a replay uses the same key again while the provider knows it, and asks or is unresolved
    /// after that.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Inbox, Reason, Store, store::{Filter, Page, Resolution}};
    /// # async fn known(_: &str) -> Option<String> { None }
    /// # async fn resolve<S: Store>(inbox: Inbox<S>) -> Result<(), BoxError> {
    /// for row in inbox.list(&Filter::new().reason(Reason::Unresolved), Page::default()).await? {
    ///     let key = row.provider_key.ok_or("it has called nobody")?;
    ///     // The page of the provider shows the charge with this key.
    ///     let resolution = match known(&key.to_string()).await {
    ///         Some(charge) => Resolution::answer(&charge)?,
    ///         None => Resolution::CallAgain,
    ///     };
    ///     inbox.resolve(row.id, key, resolution).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The answer is not JSON, or the database cannot be used.
    pub async fn resolve(&self, id: i64, provider_key: Uuid, resolution: Resolution) -> Result<bool, Error> {
        if let Resolution::Answer(answer) = &resolution
            && let Err(error) = serde_json::from_slice::<IgnoredAny>(answer.as_bytes())
        {
            return Err(Error::Config(format!("the answer of a call has to be JSON, and this is not: {error}")));
        }
        self.decide(id, Some(provider_key), &resolution).await
    }

    /// Deletes a dead letter permanently. Its claim is kept and dated now, so that late copies are still duplicates. In the
    /// database it then looks like that of a processed message; the log, at level info, is the only trace of the discard.
    /// Returns `false` if there is no such dead letter (any more).
    ///
    /// A dead letter whose external call has begun, and may have had an effect, is left alone, and the answer is `false`,
    /// whatever made it a dead letter: with it, its key and the answer of the call would be gone. [`resolve`](Self::resolve) it with
    /// [`Resolution::Discard`].
    ///
    /// A scheduled message is left alone, and the answer is `false`: its handler may be running. It is a dead letter
    /// after its last attempt, or at once if its handler returns [`permanent`](crate::permanent).
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn discard(&self, id: i64) -> Result<bool, Error> {
        self.decide(id, None, &Resolution::Discard).await
    }

    async fn replay_how(&self, id: i64, how: Replay<'_>) -> Result<Replayed, Error> {
        let replayed = self.store.replay(&self.consumer, id, how).await;
        replayed.map_err(|fault| failed("replay a dead letter", fault))
    }

    async fn decide(&self, id: i64, provider_key: Option<Uuid>, resolution: &Resolution) -> Result<bool, Error> {
        let is_discard = *resolution == Resolution::Discard;
        let what = if is_discard { "discard a dead letter" } else { "resolve a dead letter" };
        let consumer = &self.consumer;
        let is_done =
            self.store.resolve(consumer, id, provider_key, resolution).await.map_err(|fault| failed(what, fault))?;
        if is_discard && is_done {
            tracing::info!(
                consumer,
                id,
                "a dead letter was discarded: its message was not processed, and copies of it count as duplicates"
            );
        }
        Ok(is_done)
    }
}

/// Reads a row of a consumer, scheduled or dead.
pub(crate) async fn read_row<S: Store>(store: &S, consumer: &str, id: i64) -> Result<Option<Row>, StoreError> {
    // Scheduled rows come first, so that a row that dies meanwhile is found.
    for scheduled in [true, false] {
        let filter = Filter { scheduled, ..Filter::default() };
        let page = Page::new(1).before(id.saturating_add(1));
        let row = store.list(consumer, &filter, page).await?.pop().filter(|row| row.id == id);
        if row.is_some() {
            return Ok(row);
        }
    }
    Ok(None)
}

fn failed(what: &str, fault: StoreError) -> Error {
    Error::Database { what: format!("could not {what}"), source: fault.into() }
}
