//! Changes of many rows, in chunks.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::store::{Replay, Replayed, Resolution};
use crate::{Error, Reason, Store};

use super::{Filter, Operator, Time};

/// How many rows are changed in one statement: they are locked for about 30 milliseconds.
const CHUNK: usize = 500;

/// How many rows are looked at in one statement, unless they are compared with a filter.
const WINDOW: u32 = 10_000;

/// How many rows are changed, and how fast.
///
/// ```
/// # use idem_core::operator::Bulk;
/// let first = Bulk { limit: Some(100), dry_run: true, ..Bulk::default() };
/// assert!(first.rate.is_none() && !first.force);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
// Exhaustive, so that it can be written down.
pub struct Bulk {
    /// At most so many rows; `None`: all.
    pub limit: Option<u64>,
    /// At most so many rows a second; `None`: as fast as the database can. Zero is an error.
    pub rate: Option<u32>,
    /// Changes nothing, without regard to the rate, and counts what a replay would do and leave; for a discard, all rows that match.
    pub dry_run: bool,
    /// Replays also rows that need [force](Operator::replay_by_force).
    pub force: bool,
    /// Replays also conflicts: they go back through decode and key, for a handler that makes another key of them since. Only if they
    /// are other events: one that is the same event in other bytes would run twice. Those of handlers with an external call and of
    /// local messages are left; [`replay_as`](Operator::replay_as) runs them.
    pub new_keys: bool,
}

/// What has become of many rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Done {
    /// How many are due now; those whose call is in doubt, when its lease has ended.
    pub due: u64,
    /// How many were discarded.
    pub discarded: u64,
    /// How many were left because they need force, see [`Replayed::NeedsForce`].
    pub needs_force: u64,
    /// How many were left because they need another key, see [`Replayed::NeedsKey`].
    pub needs_key: u64,
    /// How many were left because their call may have had an effect: [resolve](Operator::resolve) them.
    pub unresolved: u64,
    /// How many somebody else has changed meanwhile, or has locked at this moment.
    pub gone: u64,
    /// How many rows were compared with the filter.
    pub looked: u64,
    /// How many of them have payloads above 1 MiB, which were not searched.
    pub unsearched: u64,
    /// Only rows that died before this time, by the database's clock, were changed.
    pub before: Time,
    /// Whether it was ended while more rows may match.
    pub is_cut: bool,
}

impl Done {
    fn count(&mut self, replayed: Replayed) {
        let counter = match replayed {
            Replayed::Due => &mut self.due,
            Replayed::NeedsForce => &mut self.needs_force,
            Replayed::NeedsKey | Replayed::KeyTaken => &mut self.needs_key,
            Replayed::Unresolved => &mut self.unresolved,
            Replayed::NotFound => &mut self.gone,
        };
        *counter += 1;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Replay,
    Discard,
}

impl<S: Store> Operator<S> {
    /// Replays all dead letters that match and that died before this call, by the database's clock, newest first, in chunks of at
    /// most 500, as [`replay`](Self::replay) does. Those that need force, a new key or a search at the provider are counted and left as
    /// they are, unless `bulk` says otherwise.
    ///
    /// `told` is called after each chunk with what was done so far; `Break` ends it. It may be dropped between chunks and repeated:
    /// what is done stays done, and no row is replayed twice, since one that has died again did so after the call.
    ///
    /// # Errors
    /// [`Error::Config`] for a filter of rows that are not dead, which are due by themselves, and for a rate of zero.
    pub async fn replay_all(
        &self,
        filter: &Filter,
        bulk: Bulk,
        told: impl FnMut(&Done) -> ControlFlow<()> + Send,
    ) -> Result<Done, Error> {
        self.change_all(filter, bulk, Change::Replay, told).await
    }

    /// Discards all dead letters that match and that died before this call, as [`discard`](Self::discard) does; otherwise like
    /// [`replay_all`](Self::replay_all).
    ///
    /// # Errors
    /// As those of [`replay_all`](Self::replay_all).
    pub async fn discard_all(
        &self,
        filter: &Filter,
        bulk: Bulk,
        told: impl FnMut(&Done) -> ControlFlow<()> + Send,
    ) -> Result<Done, Error> {
        self.change_all(filter, bulk, Change::Discard, told).await
    }

    async fn change_all(
        &self,
        filter: &Filter,
        bulk: Bulk,
        change: Change,
        mut told: impl FnMut(&Done) -> ControlFlow<()> + Send,
    ) -> Result<Done, Error> {
        if filter.scheduled {
            return Err(Error::Config(
                "only dead letters are replayed or discarded: scheduled rows run by themselves".into(),
            ));
        }
        let chunk = match bulk.rate {
            Some(0) => return Err(Error::Config("a rate of 0 rows a second would never end: give at least 1".into())),
            Some(rate) => CHUNK.min(usize::try_from(rate).unwrap_or(CHUNK)),
            None => CHUNK,
        };
        let (_, handlers) = self.matching(filter.handler.as_deref()).await?;
        let (began, mut visited) = (Instant::now(), 0_u64);
        let limit = bulk.limit.unwrap_or(u64::MAX);
        let (mut done, mut next, mut died_before) = (Done::default(), Some(i64::MAX), None);
        while let Some(before) = next {
            let window = self.window(filter, &handlers, before, WINDOW, died_before).await?;
            done.before = *died_before.get_or_insert(window.at);
            (done.looked, done.unsearched) = (done.looked + window.looked, done.unsearched + window.unsearched);
            next = window.next;
            let mut left = &window.ids[..];
            loop {
                let at_most = usize::try_from(limit - visited).unwrap_or(usize::MAX).min(chunk).min(left.len());
                let (some, rest) = left.split_at(at_most);
                if let Some(rate) = bulk.rate.filter(|_| !bulk.dry_run) {
                    sleep_until(began + Duration::from_secs_f64(visited as f64 / f64::from(rate))).await;
                }
                self.change(some, bulk, change, &mut done).await?;
                (visited, left) = (visited + at_most as u64, rest);
                done.is_cut = !left.is_empty() || next.is_some();
                if told(&done).is_break() || visited == limit {
                    return Ok(done);
                }
                if left.is_empty() {
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Changes some rows in one statement, or in two.
    async fn change(&self, ids: &[i64], bulk: Bulk, change: Change, done: &mut Done) -> Result<(), Error> {
        let all = ids.len() as u64;
        match change {
            _ if ids.is_empty() => return Ok(()),
            Change::Replay if bulk.dry_run => return self.foresee(ids, bulk, done).await,
            Change::Discard if bulk.dry_run => done.discarded += all,
            Change::Replay => return self.replay_some(ids, bulk, done).await,
            Change::Discard => {
                let discarded = self.decide(ids, None, &Resolution::Discard).await?;
                let left: Vec<i64> = ids.iter().copied().filter(|id| !discarded.contains(id)).collect();
                let there = self.read(&left, false).await?.iter().filter(|row| row.reason.is_some()).count() as u64;
                done.discarded += discarded.len() as u64;
                (done.unresolved, done.gone) = (done.unresolved + there, done.gone + (left.len() as u64 - there));
            }
        }
        Ok(())
    }

    /// Counts the rows by what a replay would do with them: their reasons decide. A conflict of a local message or of a call is
    /// counted as due for a new key, and left when it is replayed.
    async fn foresee(&self, ids: &[i64], bulk: Bulk, done: &mut Done) -> Result<(), Error> {
        let (_, handlers) = self.matching(None).await?;
        let mut due = ids.len() as u64;
        for reason in Reason::ALL.iter().copied() {
            let left = match reason {
                Reason::Unresolved => &mut done.unresolved,
                Reason::Conflict if !bulk.new_keys => &mut done.needs_key,
                reason if reason.needs_force() && !bulk.force => &mut done.needs_force,
                _ => continue,
            };
            let mut filter = Filter::new().reason(reason);
            filter.ids = ids.to_vec();
            let rows = self.window(&filter, &handlers, i64::MAX, WINDOW, None).await?.ids.len() as u64;
            (*left, due) = (*left + rows, due.saturating_sub(rows));
        }
        done.due += due;
        Ok(())
    }

    async fn replay_some(&self, ids: &[i64], bulk: Bulk, done: &mut Done) -> Result<(), Error> {
        let how = if bulk.force { Replay::Forced } else { Replay::Plain };
        let replayed = self.replay_rows(ids, how).await?;
        let is_conflict = |(_, replayed): &&(i64, Replayed)| bulk.new_keys && *replayed == Replayed::NeedsKey;
        let conflicts: Vec<i64> = replayed.iter().filter(is_conflict).map(|(id, _)| *id).collect();
        replayed.iter().filter(|one| !is_conflict(one)).for_each(|(_, replayed)| done.count(*replayed));
        if !conflicts.is_empty() {
            let replayed = self.replay_rows(&conflicts, Replay::NewKeys).await?;
            replayed.iter().for_each(|(_, replayed)| done.count(*replayed));
        }
        Ok(())
    }
}
