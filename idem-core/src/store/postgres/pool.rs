//! A connection pool. sqlx's pool can neither keep its count of transactions right nor close a connection abruptly.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Failure;
use super::begin::Kind;
use super::connection::Connection;
use super::limits::Use;
use super::login::Login;
use super::ready::Shared;
use super::room::Room;

/// The connections of one store; clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

/// How many of idem's own statements run at once: they are short.
const OWN_AT_ONCE: usize = 8;

/// How many connections are opened at once. After an outage all tasks want one, in each process: a server that gets all
/// logins at the same time answers none in time, and all would be tried again.
const LOGINS: usize = 4;

/// How many of idem's own statements a store with so many connections runs at once.
fn own_at_once(connections: usize) -> usize {
    (connections / 2).clamp(1, OWN_AT_ONCE)
}

/// Returns how many statements that may take long run at once, so that another one of idem's own can run beside them.
/// `None`: the store has too few connections for that, and so for a relay.
pub(super) fn long_statements(connections: usize) -> Option<usize> {
    own_at_once(connections).checked_sub(1).filter(|long| *long > 0)
}

impl Pool {
    /// Creates a pool of at most `connections` that log in this way.
    pub(super) fn new(login: Login, connections: usize, kind: Kind, resets: bool) -> Self {
        let Kind { pooled, durable, isolation } = kind;
        let own = Arc::new(Semaphore::new(own_at_once(connections)));
        let room = Room::new(connections);
        let logins = Semaphore::new(LOGINS);
        Self(Arc::new(Shared {
            login,
            durable,
            isolation,
            pooled,
            resets: AtomicBool::new(resets),
            room,
            own,
            logins,
            learnt: Mutex::default(),
        }))
    }

    /// Returns a connection for a transaction, idle or new; waits while all are in use.
    pub(super) async fn lent(&self) -> Result<Connection, Failure> {
        self.connection(Use::Lent, Some(&self.0.logins), None).await
    }

    /// Returns a connection for idem's own statements.
    pub(super) async fn own(&self) -> Result<Connection, Failure> {
        let own = self.0.own.clone().acquire_owned().await.map_err(|closed| Failure::Lost(closed.into()))?;
        self.connection(Use::Own, Some(&self.0.logins), Some(own)).await
    }

    /// As [`own`](Self::own), without waiting for other logins and statements: those of a server that hangs would delay
    /// it.
    pub(super) async fn own_at_once(&self) -> Result<Connection, Failure> {
        self.connection(Use::Own, None, None).await
    }

    async fn connection(
        &self,
        of: Use,
        logins: Option<&Semaphore>,
        own: Option<OwnedSemaphorePermit>,
    ) -> Result<Connection, Failure> {
        let (slot, idle) =
            self.0.room.enter(of, logins.is_none()).await.map_err(|closed| Failure::Lost(closed.into()))?;
        let ready = match idle {
            Some(ready) => ready,
            // Boxed: the future is large and seldom used, and would be part of every delivery's future.
            None => Box::pin(self.0.log_in(of, logins, &slot)).await?,
        };
        Ok(Connection::new(ready, of, self.0.clone(), slot, own))
    }
}
