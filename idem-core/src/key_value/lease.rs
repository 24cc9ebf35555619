//! The leases that a worker holds in a key-value store, and their renewal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use uuid::Uuid;

use crate::runtime::Pipeline;

use super::{Held, Id, KeyValue, KeyValueStore};

/// How many leases are renewed at once.
const AT_ONCE: usize = 64;

/// The leases of a worker, by their tokens.
#[derive(Clone, Default)]
pub(crate) struct HeldLeases(Arc<Mutex<HashMap<Uuid, HeldLease>>>);

struct HeldLease {
    id: Id,
    since: Instant,
}

/// The lease of a delivery, from before its first `acquire` until it is settled. It keeps its token, so that a step whose answer
/// was lost is repeated as the same step. It is renewed until this is dropped, also while the delivery is parked after a failure.
pub(crate) struct Lease {
    pub(super) id: Id,
    pub(super) token: Uuid,
    /// How many attempts have failed in this process.
    pub(super) attempts: u32,
    /// Whether the store may count it as held.
    pub(super) may_be_held: bool,
    all: HeldLeases,
}

impl HeldLeases {
    /// Returns a lease that is not acquired yet.
    pub(super) fn lease(&self, id: Id) -> Lease {
        Lease { id, token: Uuid::new_v4(), attempts: 0, may_be_held: false, all: self.clone() }
    }

    /// Returns those that are at least that old.
    fn older_than(&self, age: Duration) -> Vec<(Uuid, Id)> {
        let held = self.0.lock();
        let old = held.iter().filter(|(_, held)| held.since.elapsed() >= age);
        old.map(|(token, held)| (*token, held.id.clone())).collect()
    }
}

impl Lease {
    /// Lets it be renewed from now on.
    pub(super) fn hold(&self) {
        let held = HeldLease { id: self.id.clone(), since: Instant::now() };
        self.all.0.lock().insert(self.token, held);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.token);
    }
}

impl<K: KeyValueStore> Pipeline<KeyValue<K>> {
    /// Renews the leases each quarter of their duration, until the future is dropped. A renewal without an answer is given up as soon as
    /// the next one is due, so it delays no other lease. One that is lost is found out by the completion, so an error is only logged.
    pub(super) async fn renew_leases(&self) {
        let lease = self.settings.lease;
        // No interval may be zero.
        let quarter = (lease / 4).max(Duration::from_nanos(1));
        let mut rounds = interval(quarter);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let renew =
                async |(token, id): (Uuid, Id)| match timeout(quarter, self.store.store.renew(&id, token, lease)).await
                {
                    Ok(Ok(Held::Yes)) => {}
                    Ok(Ok(Held::Lost)) => {
                        self.held.0.lock().remove(&token);
                        tracing::debug!(key = %id.key, "the lease of a message that runs is lost");
                    }
                    Ok(Err(fault)) => {
                        self.outage.report(&fault);
                        tracing::debug!(error = %fault, "a lease was not renewed; it is tried again");
                    }
                    Err(_) => tracing::debug!("a lease was not renewed in time; it is tried again"),
                };
            stream::iter(self.held.older_than(quarter / 2)).for_each_concurrent(AT_ONCE, renew).await;
        }
    }
}
