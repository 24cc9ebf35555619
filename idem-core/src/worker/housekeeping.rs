//! Background tasks of a worker: it prunes old claims, reads the gauges and the lag of its source, and records that it is alive, for
//! other workers and for people.

use std::time::Duration;

use tokio::sync::watch;

use crate::runtime::{Pipeline, within};
use crate::store::{HandlerMark, RELEASED_AT_ONCE, Remedies, StoreError};
use crate::{Error, Lag, Store, telemetry};

use super::register::{is_gone, rows_of_another};

/// How often the gauges are read.
const READ_EVERY: Duration = Duration::from_secs(15);
/// When the gauges are read again after a read that has failed.
const SELDOM: Duration = Duration::from_secs(60);
/// How long reading the gauges may take. This is shorter than any store's timeout for its own statements, so that a
/// slow count costs one connection and is not mistaken for an outage.
const COUNT: Duration = Duration::from_secs(5);
const PRUNE: Duration = Duration::from_secs(60);
/// How often a worker records that its handlers are alive.
const SEEN: Duration = Duration::from_secs(60);
/// How many of these intervals pass between two looks for rows that no worker of this version runs.
const REMIND: u64 = 60;

/// Reads the inbox counts for the gauges, until the future is dropped. No message depends on the gauges, so their
/// failure is never an outage.
pub(crate) async fn stats<S: Store>(pipeline: &Pipeline<S>) {
    let handlers = pipeline.routes.ids();
    loop {
        let wait = match within(COUNT, pipeline.store.stats(&handlers)).await {
            Ok(stats) => {
                pipeline.metrics.scheduled.set(stats.scheduled as f64);
                pipeline.metrics.dead.set(stats.dead as f64);
                pipeline.metrics.oldest_due.set(stats.oldest_due.unwrap_or_default().as_secs_f64());
                READ_EVERY
            }
            Err(error) => {
                tracing::warn!(consumer = pipeline.consumer, error, "the inbox gauges could not be read");
                SELDOM
            }
        };
        tokio::time::sleep(wait).await;
        pipeline.outage.over().await;
    }
}

/// Reads the lag of the current subscription for its gauges, until the future is dropped. `current` is `None` while there
/// is no subscription, or if the source does not report its lag. No message depends on it: a failure is logged, and the
/// gauge keeps its last value.
pub(crate) async fn source_lag(consumer: &str, mut current: watch::Receiver<Option<Lag>>) {
    loop {
        let Ok(Some(lag)) = current.wait_for(Option::is_some).await.map(|lag| lag.clone()) else { return };
        let wait = match within(COUNT, lag.call()).await {
            Ok(lags) => {
                lags.iter().for_each(|(source, messages)| telemetry::lag(consumer, source, *messages));
                READ_EVERY
            }
            // The subscription ended while its lag was read, as it does in each shutdown.
            Err(_) if current.borrow().is_none() => continue,
            Err(error) => {
                tracing::warn!(consumer, error, "the lag could not be read");
                SELDOM
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Lets the inbox look for the messages that requests of this process hand over, until the future is dropped.
pub(crate) async fn handed_over<S: Store>(pipeline: &Pipeline<S>) {
    loop {
        pipeline.settings.handed_over.notified().await;
        pipeline.wake_inbox();
    }
}

/// Removes claims older than the retention, until the future is dropped. Only one pruner works at a time, whatever the
/// number of workers.
pub(crate) async fn prune<S: Store>(pipeline: &Pipeline<S>) {
    loop {
        // Wait first: pruning should not slow down a deployment that starts many workers.
        tokio::time::sleep(PRUNE).await;
        pipeline.outage.over().await;
        match pipeline.store.prune().await {
            Ok(claims) if claims > 0 => tracing::debug!(claims, "old claims are pruned"),
            Ok(_) => {}
            Err(fault @ StoreError::ConnectionLost(_)) => pipeline.outage.report(&fault),
            // A database that refuses to prune may take messages; if it does not, they find out by themselves.
            Err(fault) => tracing::debug!(error = %fault, "pruning failed; it is retried later"),
        }
    }
}

/// Records that the worker's handlers are alive, until the future is dropped or the worker has to end, so that other workers of
/// this consumer leave their rows to them. Once an hour, and at the start, it lets messages run that another version has stored for
/// an external call. Once an hour it reports rows that no worker runs, as the registration does at the start.
///
/// If handlers are not in the database any more, it ends the worker: a start registers them, under the numbers that they had.
///
/// No message depends on it, so its failure is not an outage.
pub(crate) async fn record_seen<S: Store>(pipeline: &Pipeline<S>) {
    let (handlers, consumer) = (pipeline.routes.ids(), &pipeline.consumer);
    for minute in 0_u64.. {
        // The first time without a wait: the registration of the handlers skipped locked rows.
        match pipeline.store.mark(&handlers, HandlerMark::Seen).await {
            Ok(true) => {}
            Ok(false) => {
                let why = format!(
                    "the database does not know all handlers of {consumer:?} any more: it was restored from an older backup, has \
                     lost transactions in a failover, or a handler was renamed meanwhile, under whose new name the messages that \
                     this worker has processed since are new. Start the worker again, which registers its handlers"
                );
                // A program that runs the worker beside a server may never look at what it returns.
                tracing::error!(consumer, "the worker ends: {why}");
                return pipeline.defect.end(Error::Config(why));
            }
            Err(fault) => {
                tracing::debug!(error = %fault, "the handlers' last-seen time was not written; it is retried later");
            }
        }
        if minute % REMIND == 0 {
            release_calls(pipeline).await;
            // The registration has just looked for such rows.
            if minute > 0 {
                remind(pipeline).await;
            }
        }
        tokio::time::sleep(SEEN).await;
        pipeline.outage.over().await;
    }
}

/// Writes the rows of this process in the table `workers`, until the future is dropped.
pub(crate) async fn beats<S: Store>(pipeline: &Pipeline<S>) {
    match pipeline.member.beats(&pipeline.store).await {}
}

/// Warns of rows in the inbox that no worker has run for a day.
async fn remind<S: Store>(pipeline: &Pipeline<S>) {
    let Pipeline { consumer, store, routes, .. } = pipeline;
    let (ours, known) = (routes.ids(), store.handlers(Some(consumer)).await.unwrap_or_default());
    for old in known.iter().filter(|old| old.has_rows && is_gone(old) && !ours.contains(&old.id)) {
        tracing::warn!(show = %store.facts().command(&["doctor"], &[]), "{}", rows_of_another(old, &Remedies::of(store, consumer, &old.name, "")));
    }
}

/// Lets messages run that another version of the service has stored for an external call, if no call has begun for them: this
/// version does without the call. Warns of messages whose call may have begun, which only the other version can complete.
/// A failure is not an outage: in the next hour this is repeated.
async fn release_calls<S: Store>(pipeline: &Pipeline<S>) {
    let routes = pipeline.routes.routes.iter().filter(|route| route.external.is_none());
    let handlers: Vec<_> = routes.map(|route| route.id).collect();
    let consumer = &pipeline.consumer;
    loop {
        let left = match pipeline.store.release_calls(&handlers).await {
            Ok(left) => left,
            Err(fault) => {
                return tracing::debug!(consumer, error = %fault, "messages of another version were not looked at; retried later");
            }
        };
        if left.released > 0 {
            let messages = left.released;
            tracing::info!(
                consumer,
                messages,
                "messages run without the external call of another version of the service"
            );
            pipeline.wake_inbox();
        }
        if left.released >= u64::from(RELEASED_AT_ONCE) {
            continue;
        }
        if left.in_doubt > 0 {
            tracing::warn!(
                consumer,
                messages = left.in_doubt,
                show = %pipeline.store.facts().command(&["calls"], &[]),
                "the handlers of this version make no external call, and messages wait for which a call may have begun in another \
                 version of the service: start that version again, or make dead letters of them and resolve each, see \
                 \"Deployments\" in the guide `docs::external_recovery`; this is repeated every hour"
            );
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Returns the number of the call, except for an error on the second call and no answer on the third.
    fn counting() -> (Lag, Arc<AtomicU64>) {
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let lag = Lag::new(move || {
            let number = count.fetch_add(1, SeqCst) + 1;
            async move {
                match number {
                    2 => Err("the broker does not say".into()),
                    3 => std::future::pending().await,
                    number => Ok(vec![("orders".into(), number), ("refunds".into(), 7)]),
                }
            }
        });
        (lag, asked)
    }

    fn gauges(snapshots: &Snapshotter) -> Vec<(String, f64)> {
        let mut gauges: Vec<_> = snapshots
            .snapshot()
            .into_vec()
            .into_iter()
            .filter_map(|(key, _, _, value)| match value {
                DebugValue::Gauge(value) => Some((key.key().to_string(), value.into_inner())),
                _ => None,
            })
            .collect();
        gauges.sort_by(|one, other| one.0.cmp(&other.0));
        gauges
    }

    #[tokio::test(start_paused = true)]
    async fn the_lag_is_read_again_after_an_error_and_after_a_silence() {
        let recorder = DebuggingRecorder::new();
        let snapshots = recorder.snapshotter();
        let _metrics = metrics::set_default_local_recorder(&recorder);
        let (lag, asked) = counting();
        let current = watch::Sender::new(None);
        let task = source_lag("billing", current.subscribe());
        let ended = timeout(Duration::from_secs(600), async {
            tokio::join!(task, async {
                sleep(Duration::from_secs(100)).await;
                assert_eq!(asked.load(SeqCst), 0, "there is nobody to ask");
                current.send_replace(Some(lag));
                sleep(Duration::from_secs(10)).await;
                let [orders, refunds] = &gauges(&snapshots)[..] else { panic!("one gauge for each source") };
                assert_eq!((orders.1, refunds.1), (1.0, 7.0));
                assert!(orders.0.contains("idem_source_lag") && orders.0.contains("orders"), "{orders:?}");
                assert!(orders.0.contains("billing"), "{orders:?}");
                // 15 seconds to the error, 60 to the silence of 5, and 60 more.
                sleep(Duration::from_secs(140)).await;
                assert_eq!(gauges(&snapshots)[0].1, 4.0);
            })
        });
        assert!(ended.await.is_err(), "it ends with the worker only");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_ends_with_its_subscription_is_not_a_failure() {
        let slow = Lag::new(|| async {
            sleep(Duration::from_secs(1)).await;
            Err("the subscription has ended".into())
        });
        let (next, asked) = counting();
        let current = watch::Sender::new(Some(slow));
        let ended = timeout(Duration::from_secs(10), async {
            tokio::join!(source_lag("billing", current.subscribe()), async {
                sleep(Duration::from_millis(500)).await;
                current.send_replace(None);
                sleep(Duration::from_secs(1)).await;
                current.send_replace(Some(next));
                sleep(Duration::from_secs(1)).await;
                assert_eq!(asked.load(SeqCst), 1, "the next subscription is read at once");
            })
        });
        assert!(ended.await.is_err());
    }
}
