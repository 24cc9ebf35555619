//! The lifecycle of a worker: start, run, drain.

use std::pin::pin;

use crate::runtime::Health;
use crate::{Error, Source, Store};

use super::builder::Parts;
use super::drain::drain;
use super::start::start;
use super::tasks::Tasks;

pub(super) async fn until<S: Store, Src: Source>(
    parts: Parts<S, Src>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let _ended = Ended(parts.health.clone());
    let mut shutdown = pin!(shutdown);
    let Some(started) = start(parts, shutdown.as_mut()).await? else { return Ok(()) };
    let mut tasks = Tasks::spawn(started);
    let ended = tasks.run(shutdown).await;
    drain(tasks, ended).await
}

/// Makes a worker unready however it ends, even if its future is dropped.
struct Ended(Health);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set_broker(false);
        self.0.set_unsubscribed(None);
        self.0.set_database(false);
    }
}
