//! The lifecycle of a relay: it opens its sink, stands by, publishes for as long as it has the lease, and drains. Beside that it
//! sets the gauges of its outbox.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::outbox::{Sink, SinkError, Unread};
use crate::runtime::{jittered, within};
use crate::store::{LeaseAnswer, LeaseRequest, OutboxId};
use crate::telemetry::{self, OUTBOX_COUNTED, RelayMetrics};
use crate::worker::Member;
use crate::{Error, ReplayWindow, Store};

use super::builder::Relay;
use super::circuit::wait;
use super::tenure::{End, Tenure};

/// How many statements a relay runs at once at most: a read, a delete, a record, a renewal, and one for the gauges. That for its row
/// in `workers` can wait.
const STATEMENTS: usize = 5;

/// How long the end of the connection to the broker, or the return of the lease, may take.
const CLOSE: Duration = Duration::from_secs(5);

/// How often a relay that stands by asks for the lease, and how often one shows at least that it waits for its broker.
const ASK: Duration = Duration::from_secs(1);
const SHOW: Duration = Duration::from_secs(5);

/// How often the gauges are read, and how long that may take.
const GAUGES: Duration = Duration::from_secs(15);
const COUNT: Duration = Duration::from_secs(5);

impl<S: Store, K: Sink> Relay<S, K> {
    /// Runs until `shutdown` completes, and then drains: it publishes nothing more, waits for the confirms of what is
    /// published, deletes that, and releases its lease, so that another relay goes on at once.
    ///
    /// Dropping the future ends the relay at once, like a crash, without harm: what was not deleted is published again,
    /// by another relay once the lease has ended.
    ///
    /// # Errors
    /// At the start: settings that cannot work, a database that cannot be used, or what
    /// [`Sink::open`] says that no message can change. Once the relay runs, only `shutdown` ends it,
    /// or a sink that panics at several messages in a row: then it drains and returns [`Error::Panicked`]. A panic at one
    /// message counts as an attempt, as if the broker had rejected it.
    pub async fn run_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        self.settings.check(&self.name)?;
        // However it ends, even if its future is dropped.
        let _ended = scopeguard::guard(self.health(), |health| {
            health.set_broker(false);
            health.set_database(false);
        });
        let mut shutdown = pin!(shutdown);
        // Counted, so that the advice on connections is right.
        let _connections = self.store.facts().connections.add_relay(STATEMENTS)?;
        let outbox = self.store.register_outbox(&self.name).await?;
        telemetry::describe();
        let opened = tokio::select! {
            opened = self.open() => opened.map(|()| true),
            () = shutdown.as_mut() => Ok(false),
            never = self.show(outbox) => match never {},
        };
        if !matches!(opened, Ok(true)) {
            self.close().await;
            return opened.map(|_| ());
        }
        tracing::info!(
            outbox = self.name,
            sink = self.sink.name(),
            broker = self.sink.system(),
            store = self.store.facts().name,
            concurrency = self.settings.concurrency,
            version = env!("CARGO_PKG_VERSION"),
            "the relay has started"
        );
        let _limit = self.store.facts().notifier.set_limit(outbox, self.sink.limit());
        self.health.set_broker(true);
        // In a task of its own, as the tasks of a worker are: `main` runs on a thread outside the runtime's worker threads.
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        task.spawn(self.serve(outbox, stop.clone()));
        let ended = tokio::select! {
            ended = task.join_next() => ended,
            () = shutdown => {
                stop.cancel();
                task.join_next().await
            }
        };
        match ended {
            Some(Ok(result)) => result,
            Some(Err(error)) if error.is_panic() => {
                let text = crate::panic_text::panic_text(error.into_panic().as_ref()).to_owned();
                Err(Error::Panicked { task: "relay", text })
            }
            // The runtime is shutting down.
            _ => Ok(()),
        }
    }

    /// Opens the sink, as soon as the broker answers.
    async fn open(&self) -> Result<(), Error> {
        let sink = &self.sink;
        for failures in 0.. {
            match sink.open().await {
                Ok(()) => break,
                Err(SinkError::Message(error)) => {
                    return Err(Error::Broker { what: format!("could not publish to {}", sink.name()), source: error });
                }
                Err(SinkError::Broker(error)) => {
                    let error = crate::error::text(error.as_ref());
                    tracing::warn!(error, sink = sink.name(), "the relay could not open its sink; it tries again");
                    sleep(wait(failures)).await;
                }
            }
        }
        Ok(())
    }

    /// Shows that a relay runs while it opens its sink, until the future is dropped: workers that stage must not take it for
    /// missing. It begins after a while, since most sinks open at once.
    async fn show(&self, outbox: OutboxId) -> Infallible {
        loop {
            sleep(jittered(SHOW.min(self.settings.lease / 3))).await;
            if let Err(fault) = self.store.lease_outbox(outbox, Uuid::nil(), LeaseRequest::Show).await {
                let error = crate::error::text(&fault);
                tracing::debug!(error, "a relay could not show that it waits for its broker");
            }
        }
    }

    async fn close(&self) {
        if timeout(CLOSE, self.sink.close()).await.is_err() {
            tracing::warn!("the connection to the broker was not closed in time");
        }
    }

    /// Releases the lease, if it is held.
    async fn release(&self, outbox: OutboxId, token: Uuid) {
        let released = timeout(CLOSE, self.store.lease_outbox(outbox, token, LeaseRequest::Release)).await;
        if !matches!(released, Ok(Ok(_))) {
            tracing::warn!("the lease was not released; another relay takes it when it has ended");
        }
    }

    async fn serve(self, outbox: OutboxId, stop: CancellationToken) -> Result<(), Error> {
        let metrics = RelayMetrics::new(&self.name);
        let roster = &self.store.facts().roster;
        let member = roster.join(("relay", &self.name), &self.settings.version, ReplayWindow::Unknown, &self.health);
        let result = tokio::select! {
            result = self.tenures(outbox, (&metrics, &member), &stop) => result,
            never = self.watch(outbox) => match never {},
            never = member.beats(&self.store) => match never {},
        };
        self.close().await;
        result
    }

    /// Sets the gauges of the outbox, and looks for outboxes that no relay looks at, until the future is dropped; also while it
    /// stands by. Health does not depend on it.
    async fn watch(&self, outbox: OutboxId) -> Infallible {
        let mut unread = Unread::default();
        loop {
            match within(COUNT, self.store.outbox_stats(outbox, OUTBOX_COUNTED)).await {
                Ok(stats) => telemetry::outbox(&self.name, &stats),
                // The gauges keep their values.
                Err(error) => tracing::warn!(error, "the messages of the outbox could not be counted"),
            }
            unread.check(&self.store, None).await;
            sleep(jittered(GAUGES)).await;
        }
    }

    /// Waits until this relay gets the lease under this token. Returns when it has asked for it, and the outbox: that may have been
    /// registered again. Cancel safe: a lease that was taken by then ends by itself, or is released.
    async fn stand_by(&self, mut outbox: OutboxId, token: Uuid) -> (Instant, OutboxId) {
        let length = self.settings.lease;
        loop {
            let began = Instant::now();
            let answer = self.store.lease_outbox(outbox, token, LeaseRequest::Hold(length)).await;
            self.health.set_database(answer.is_ok());
            match answer {
                Ok(LeaseAnswer::Held) => return (began, outbox),
                // Its broker may have been away when it last published.
                Ok(LeaseAnswer::Other) => self.health.set_broker(true),
                Ok(LeaseAnswer::Unknown) => match self.store.register_outbox(&self.name).await {
                    Ok(registered) => outbox = registered,
                    Err(error) => tracing::warn!(%error, "the relay could not register its outbox; it tries again"),
                },
                Err(fault) => {
                    let error = crate::error::text(&fault);
                    tracing::warn!(error, "the relay could not ask for the lease of its outbox; it tries again");
                }
            }
            sleep(jittered(ASK.min(length / 3))).await;
        }
    }

    /// Publishes whenever it has the lease, until it is stopped, or the sink is broken.
    async fn tenures(
        &self,
        mut outbox: OutboxId,
        (metrics, member): (&RelayMetrics, &Member),
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        loop {
            let token = Uuid::new_v4();
            metrics.active.set(0.0);
            let (began, registered) = tokio::select! {
                leased = self.stand_by(outbox, token) => leased,
                () = stop.cancelled() => {
                    self.release(outbox, token).await;
                    return Ok(());
                }
            };
            outbox = registered;
            metrics.active.set(1.0);
            let mut tenure = Tenure::new(self, (metrics, member), (outbox, token), began);
            let end = tenure.run(stop).await;
            if let End::Stopped | End::Away | End::Defect(_) = end {
                self.health.set_broker(false);
                tracing::info!(outbox = self.name, "the relay drains");
                tenure.drain().await;
            }
            drop(tenure);
            if matches!(end, End::Lost) {
                tracing::warn!(
                    outbox = self.name,
                    "another relay has taken the lease of this one, which did not renew it in time"
                );
            } else {
                self.release(outbox, token).await;
            }
            match end {
                End::Stopped => return Ok(()),
                End::Defect(error) => return Err(error),
                End::Away => {
                    tracing::warn!(
                        outbox = self.name,
                        "the broker is still away: the relay leaves the lease to another one, if there is one"
                    );
                    // One that stands by has asked for it by then.
                    tokio::select! {
                        () = sleep(2 * ASK) => {}
                        () = stop.cancelled() => return Ok(()),
                    }
                }
                End::Lost | End::Replaced => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_takes_at_most_ten_seconds() {
        let lease = super::super::builder::RelaySettings::default().lease;
        assert!(lease + 2 * ASK <= Duration::from_secs(10));
    }
}
