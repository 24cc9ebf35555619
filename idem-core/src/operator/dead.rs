//! Rows of the inbox, one at a time: list, show, replay, resolve, discard.

use std::cmp::Reverse;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::store::{Of, Page, Replay, Replayed, Resolution, Row, Value};
use crate::{Error, Key, KeyError, Reason, Store};

use super::questions;
use super::shown::headers;
use super::{Filter, Operation, Operator, Pretty, Time, failed};

/// How many windows of rows one list looks at.
const WINDOWS: usize = 10;

/// How often a list begins again because every row that it found was changed before it was read.
const AGAIN: usize = 10;

/// How many rows are read at once if their payloads are not wanted.
const WITHOUT_PAYLOADS: usize = 8;

/// How many operations are shown with a row.
const OPERATIONS: i64 = 100;

/// How much of a payload is shown in JSON, in characters.
const SHOWN: usize = 4096;

/// Rows that match a filter.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Found {
    /// The rows, newest first.
    pub rows: Vec<Row>,
    /// How many rows were compared with the filter.
    pub looked: u64,
    /// How many of them have payloads above 1 MiB, which were not searched.
    pub unsearched: u64,
    /// [`Page::before`] of the next page; `None`: all rows were looked at.
    pub next: Option<i64>,
}

/// One row, and what has been done and may be done with its message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Shown {
    /// The row.
    pub row: Row,
    /// The consumer of its handler; empty if that has no row in `handlers`.
    pub consumer: String,
    /// What operators have done with its message, the newest first.
    pub operations: Vec<Operation>,
    /// What may be done with it now; nothing unless it is dead.
    pub may: Vec<May>,
}

/// What an operator may do with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum May {
    /// [`Operator::replay`].
    Replay,
    /// [`Operator::replay_by_force`].
    Force,
    /// [`Operator::replay_as`].
    As,
    /// [`Operator::resolve`].
    Resolve,
    /// [`Operator::discard`].
    Discard,
}

impl May {
    /// What may be done with a row: its reason decides, and whether its call may have had an effect.
    fn of(row: &Row) -> Vec<Self> {
        let Some(reason) = row.reason else { return Vec::new() };
        let first = match reason {
            Reason::Unresolved => return vec![Self::Resolve],
            Reason::Conflict => Self::As,
            reason if reason.needs_force() => Self::Force,
            _ => Self::Replay,
        };
        vec![first, if row.may_have_called() { Self::Resolve } else { Self::Discard }]
    }
}

/// One window of rows, as the database answers.
#[derive(Debug, Deserialize)]
pub(super) struct Window {
    /// The newest first.
    #[serde(deserialize_with = "newest_first")]
    pub(super) ids: Vec<i64>,
    pub(super) looked: u64,
    pub(super) unsearched: u64,
    /// Where the next window begins; none if there is none.
    pub(super) next: Option<i64>,
    /// The next millisecond by the database's clock.
    pub(super) at: Time,
}

/// Reads ids that are not sorted; null if no row matches.
fn newest_first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    let mut ids = Option::<Vec<i64>>::deserialize(deserializer)?.unwrap_or_default();
    ids.sort_unstable_by_key(|id| Reverse(*id));
    Ok(ids)
}

impl<S: Store> Operator<S> {
    /// Returns one page of the rows that match, newest first ([`Page::default()`]: 100 rows). It may look at a part of the table, see
    /// [`Found::looked`]: at ten windows of 10,000 rows, or of 1,000 if it searches payloads. Without a row and a
    /// [next page](Found::next), no row matched.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn list(&self, filter: &Filter, page: Page) -> Result<Found, Error> {
        let (_, handlers) = self.matching(filter.handler.as_deref()).await?;
        let mut tries = 0..AGAIN;
        loop {
            let (ids, mut found) = self.find(filter, &handlers, page).await?;
            found.rows = self.read(&ids, page.payloads).await?;
            // One that was changed since is another list's, also if it is the only one, or has another id now: others may match.
            found.rows.retain(|row| row.reason.is_none() == filter.scheduled);
            if ids.is_empty() || !found.rows.is_empty() || tries.next().is_none() {
                return Ok(found);
            }
        }
    }

    /// The ids of one page, with all but its rows.
    async fn find(&self, filter: &Filter, handlers: &str, page: Page) -> Result<(Vec<i64>, Found), Error> {
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let (mut ids, mut looked, mut unsearched, mut next) = (Vec::new(), 0, 0, page.before.or(Some(i64::MAX)));
        for _ in 0..WINDOWS {
            let Some(before) = next.filter(|_| ids.len() < limit) else { break };
            let window = self.window(filter, handlers, before, page.limit, None).await?;
            ids.extend(window.ids);
            (looked, unsearched, next) = (looked + window.looked, unsearched + window.unsearched, window.next);
        }
        if ids.len() > limit {
            ids.truncate(limit);
            next = ids.last().copied();
        }
        Ok((ids, Found { rows: Vec::new(), looked, unsearched, next }))
    }

    /// The rows of one window. `died_before`: only those, so that none is changed a second time.
    pub(super) async fn window(
        &self,
        filter: &Filter,
        handlers: &str,
        before: i64,
        wanted: u32,
        died_before: Option<Time>,
    ) -> Result<Window, Error> {
        let (question, values) = filter.ask_ids(handlers, before, wanted, died_before);
        let windows = self.ask(&question, &values).await?;
        windows.into_iter().next().ok_or_else(|| Error::database("could not read the inbox", "there was no answer"))
    }

    /// Reads the rows with these ids, as far as they are there.
    pub(super) async fn read(&self, ids: &[i64], with_payloads: bool) -> Result<Vec<Row>, Error> {
        let at_once = if with_payloads { ids.len().max(1) } else { WITHOUT_PAYLOADS };
        let mut rows = Vec::with_capacity(ids.len());
        for ids in ids.chunks(at_once) {
            let mut read = self.store.rows(ids).await.map_err(|fault| failed("read the inbox", fault))?;
            if !with_payloads {
                read.iter_mut().for_each(|row| row.delivery.payload = Bytes::new());
            }
            rows.append(&mut read);
        }
        Ok(rows)
    }

    /// Returns the row with this id, dead or scheduled, with what operators did to its message before; `None` if this consumer has
    /// no such row (any more).
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Store, operator::Operator};
    /// # async fn show<S: Store>(operator: Operator<S>, id: i64) -> Result<(), BoxError> {
    /// let shown = operator.show(id).await?.ok_or("there is no such row any more")?;
    /// println!("after {} attempts: {}", shown.row.attempts, shown.row.error);
    /// println!("{}", String::from_utf8_lossy(shown.row.delivery.payload()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn show(&self, id: i64) -> Result<Option<Shown>, Error> {
        let Some(row) = self.read(&[id], true).await?.pop() else { return Ok(None) };
        let handler = self.handlers().await?.into_iter().find(|handler| handler.id == row.identity.handler);
        if self.consumer.is_some() && handler.is_none() {
            return Ok(None);
        }
        let consumer = handler.map(|handler| handler.consumer).unwrap_or_default();
        let key = row.identity.key.as_bytes().to_vec();
        let handler = i64::from(row.identity.handler.0);
        let mut values: Vec<Value> = vec![i64::MAX.into(), OPERATIONS.into(), handler.into(), key.into()];
        let mut which = "o.handler_id = $3 AND o.key = $4".to_owned();
        if !row.identity.has_key() {
            // All messages without a key have the same one.
            which.push_str(" AND o.row_id = $5");
            values.push(Value::from(id));
        }
        let operations = self.ask(&questions::operations(&which), &values).await?;
        let may = May::of(&row);
        Ok(Some(Shown { row, consumer, operations, may }))
    }

    /// Makes a dead letter due now, with all its attempts as if it were new. Its claim is kept throughout, so nothing
    /// else can process the message, and a second replay finds nothing to do. It runs out of order.
    ///
    /// A dead letter whose external call is in doubt is due when the lease of that call has ended, at most its timeout and ten
    /// seconds later: until then its request may be on its way.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn replay(&self, id: i64) -> Result<Replayed, Error> {
        self.replay_how(id, Replay::Plain).await
    }

    /// Replays a dead letter whose handler had run COMMIT, or that was too old to determine whether it was processed.
    /// Effects that are already committed are written again, unless the handler checks for them.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn replay_by_force(&self, id: i64) -> Result<Replayed, Error> {
        self.replay_how(id, Replay::Forced).await
    }

    /// Replays a conflict under `key`, which is claimed for it.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Key, Store, operator::Operator, store::Replayed};
    /// # async fn correct<S: Store>(operator: Operator<S>, id: i64) -> Result<(), BoxError> {
    /// // The producer has used the key `e-1` for two payments, and this is the second one.
    /// let replayed = operator.replay_as(id, &Key::of("e-1-corrected")?).await?;
    /// assert_eq!(replayed, Replayed::Due);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if the key is empty ([`Key::stored`] returns such a one).
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
    /// # use idem_core::{BoxError, Reason, Store, operator::{Filter, Operator, Page}, store::Resolution};
    /// # async fn known(_: &str) -> Option<String> { None }
    /// # async fn resolve<S: Store>(operator: Operator<S>) -> Result<(), BoxError> {
    /// for row in operator.list(&Filter::new().reason(Reason::Unresolved), Page::default()).await?.rows {
    ///     let key = row.provider_key.ok_or("it has called nobody")?;
    ///     // The page of the provider shows the charge with this key.
    ///     let resolution = match known(&key.to_string()).await {
    ///         Some(charge) => Resolution::answer(&charge)?,
    ///         None => Resolution::CallAgain,
    ///     };
    ///     operator.resolve(row.id, key, resolution).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if the answer is not JSON.
    pub async fn resolve(&self, id: i64, provider_key: Uuid, resolution: Resolution) -> Result<bool, Error> {
        if let Resolution::Answer(answer) = &resolution
            && let Err(error) = serde_json::from_slice::<IgnoredAny>(answer.as_bytes())
        {
            return Err(Error::Config(format!("the answer of a call has to be JSON, and this is not: {error}")));
        }
        Ok(!self.decide(&[id], Some(provider_key), &resolution).await?.is_empty())
    }

    /// Deletes a dead letter permanently. Its claim is kept and dated now, so that late copies are still duplicates. The table
    /// `operations` says that it was discarded. Returns `false` if there is no such dead letter (any more).
    ///
    /// A dead letter whose external call has begun, and may have had an effect, is left alone, and the answer is `false`,
    /// whatever made it a dead letter: with it, its key and the answer of the call would be gone. [`resolve`](Self::resolve) it with
    /// [`Resolution::Discard`].
    ///
    /// A scheduled message is left alone, and the answer is `false`: its handler may be running. It is a dead letter
    /// after its last attempt, or at once if its handler returns [`permanent`](crate::permanent).
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn discard(&self, id: i64) -> Result<bool, Error> {
        Ok(!self.decide(&[id], None, &Resolution::Discard).await?.is_empty())
    }

    async fn replay_how(&self, id: i64, how: Replay<'_>) -> Result<Replayed, Error> {
        let replayed = self.replay_rows(&[id], how).await?;
        Ok(replayed.first().map_or(Replayed::NotFound, |(_, replayed)| *replayed))
    }

    pub(super) async fn replay_rows(&self, ids: &[i64], how: Replay<'_>) -> Result<Vec<(i64, Replayed)>, Error> {
        let of = Of { consumer: self.consumer.as_deref(), ids };
        let replayed = self.store.replay(of, how, &self.by).await;
        replayed.map_err(|fault| failed("replay dead letters", fault))
    }

    /// Returns the ids of the rows for which it is done.
    pub(super) async fn decide(
        &self,
        ids: &[i64],
        provider_key: Option<Uuid>,
        resolution: &Resolution,
    ) -> Result<Vec<i64>, Error> {
        let of = Of { consumer: self.consumer.as_deref(), ids };
        let done = self.store.resolve(of, provider_key, resolution, &self.by).await;
        let done = done.map_err(|fault| failed("discard or resolve dead letters", fault))?;
        if *resolution == Resolution::Discard && !done.is_empty() {
            tracing::info!(
                ids = ?done,
                by = &*self.by.actor,
                "dead letters were discarded: their messages were not processed, and copies of them count as duplicates"
            );
        }
        Ok(done)
    }
}

/// The row, its headers without secrets, and the beginning of its payload.
impl Serialize for Shown {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        let payload = self.row.delivery.payload();
        let mut shown = serializer.serialize_struct("Shown", 7)?;
        shown.serialize_field("consumer", &self.consumer)?;
        shown.serialize_field("row", &self.row)?;
        shown.serialize_field("headers", &headers(&self.row))?;
        shown.serialize_field("payload", &Pretty::of(payload, SHOWN).0)?;
        shown.serialize_field("payload_bytes", &payload.len())?;
        shown.serialize_field("operations", &self.operations)?;
        shown.serialize_field("may", &self.may)?;
        shown.end()
    }
}
