//! The lifecycle of a worker: start, run, drain.

use std::pin::pin;

use crate::{Error, Source, Store};

use super::builder::Parts;
use super::drain::drain;
use super::start::start;
use super::tasks::Tasks;

pub(super) async fn until<S: Store, Src: Source>(
    parts: Parts<S, Src>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    // It is unready however it ends, even if its future is dropped.
    let _ended = scopeguard::guard(parts.health.clone(), |health| {
        health.set_broker(false);
        health.set_unsubscribed(None);
        health.set_database(false);
    });
    let mut shutdown = pin!(shutdown);
    let Some(started) = start(parts, shutdown.as_mut()).await? else { return Ok(()) };
    let mut tasks = Tasks::spawn(started);
    let ended = tasks.run(shutdown).await;
    drain(tasks, ended).await
}
