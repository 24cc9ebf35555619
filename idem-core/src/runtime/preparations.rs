//! Codec preparations for rows of the inbox, which run outside the slots for running rows.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::store::{HandlerId, Row};
use crate::{Delivery, PrepareError, Store};

use super::{Pipeline, Queue};

/// The preparations in progress, whose rows were given back meanwhile, and the rows that can never be decoded.
pub(crate) struct Preparations {
    rows: Mutex<HashMap<i64, State>>,
    wanted: Queue<Wanted>,
}

enum State {
    Runs,
    Undecodable(Arc<str>, Instant),
}

struct Wanted {
    id: i64,
    /// `None` for a row without a key, whose handler is looked up again.
    handler: Option<HandlerId>,
    delivery: Delivery,
    tries: usize,
}

/// The maximum that run at once, because each keeps a message in memory. A row beyond it is tried again later.
const AT_ONCE: usize = 64;

/// How long an undecodable row is remembered: longer than the time until it is taken again. Another process that takes
/// it finds out by itself. An operator may replay the row once what was missing is available.
const REMEMBERED: Duration = Duration::from_secs(300);

impl Default for Preparations {
    fn default() -> Self {
        Self { rows: Mutex::default(), wanted: Queue::new() }
    }
}

impl Preparations {
    /// Starts a preparation for a row, unless one is already running. The next run of the row finds it done.
    pub(crate) fn want(&self, row: &Row, tries: usize) {
        let mut rows = self.rows();
        let running = rows.values().filter(|state| matches!(state, State::Runs)).count();
        if running < AT_ONCE && !rows.contains_key(&row.id) {
            rows.insert(row.id, State::Runs);
            let handler = (!row.identity.key.as_bytes().is_empty()).then_some(row.identity.handler);
            self.wanted.push(Wanted { id: row.id, handler, delivery: row.delivery.clone(), tries });
        }
    }

    /// Returns why a row can never be decoded, if its preparation has shown that. The reason is returned only once.
    pub(crate) fn undecodable(&self, id: i64) -> Option<Arc<str>> {
        let mut rows = self.rows();
        rows.retain(|_, state| !matches!(state, State::Undecodable(_, since) if since.elapsed() > REMEMBERED));
        if matches!(rows.get(&id), Some(State::Runs)) {
            return None;
        }
        match rows.remove(&id) {
            Some(State::Undecodable(why, _)) => Some(why),
            _ => None,
        }
    }

    fn ended(&self, id: i64, undecodable: Option<Arc<str>>) {
        let mut rows = self.rows();
        match undecodable {
            Some(why) => rows.insert(id, State::Undecodable(why, Instant::now())),
            None => rows.remove(&id),
        };
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<i64, State>> {
        // The map is consistent at all times.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Pipeline<S> {
    /// Runs the preparations for rows, until the future is dropped.
    pub(crate) async fn prepare_rows(&self) -> Infallible {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(wanted) = self.preparations.wanted.recv() => running.push(self.prepare_row(wanted)),
                Some(()) = running.next() => {}
                else => std::future::pending().await,
            }
        }
    }

    async fn prepare_row(&self, wanted: Wanted) {
        let Wanted { id, handler, delivery, tries } = wanted;
        let route = match handler {
            Some(handler) => self.routes.get(handler),
            None => self.routes.find(&delivery).ok(),
        };
        let prepared = match route {
            Some(route) => self.prepare(route, &delivery).await,
            // The run of the row reports the reason.
            None => Ok(()),
        };
        let undecodable = match prepared {
            Ok(()) => None,
            Err(PrepareError::Undecodable(error)) => Some(crate::error::text(error.as_ref()).into()),
            Err(PrepareError::Unavailable(error)) => {
                self.warn_of_unprepared(&delivery, tries, error.as_ref());
                None
            }
        };
        self.preparations.ended(id, undecodable);
    }
}
