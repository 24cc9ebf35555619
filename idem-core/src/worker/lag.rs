//! The gauge of the messages that wait at the broker.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::{Lag, telemetry};

const EVERY: Duration = Duration::from_secs(15);
/// If the lag cannot be read, the interval doubles up to this.
const SELDOM: Duration = Duration::from_secs(300);
const LIMIT: Duration = Duration::from_secs(5);

/// Reads the lag of the current subscription for its gauges, until the future is dropped. `lag` is `None` while there
/// is no subscription, or if the source does not report its lag. No message depends on it: a failure is logged, and the
/// gauge keeps its last value.
pub(crate) async fn publish(consumer: &str, mut lag: watch::Receiver<Option<Lag>>) {
    let mut wait = EVERY;
    loop {
        let Ok(Some(current)) = lag.wait_for(Option::is_some).await.map(|lag| lag.clone()) else { return };
        match timeout(LIMIT, current.read()).await {
            Ok(Ok(lags)) => {
                wait = EVERY;
                lags.iter().for_each(|(source, messages)| telemetry::lag(consumer, source, *messages));
            }
            // The subscription ended while its lag was read, as it does in each shutdown.
            Ok(Err(_)) if lag.borrow().is_none() => continue,
            Ok(Err(error)) => {
                wait = (wait * 2).min(SELDOM);
                tracing::warn!(consumer, error, next = ?wait, "the lag could not be read");
            }
            Err(_) => {
                wait = (wait * 2).min(SELDOM);
                tracing::warn!(consumer, limit = ?LIMIT, next = ?wait, "reading the lag timed out");
            }
        }
        sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

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
        let task = publish("billing", current.subscribe());
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
                // 15 seconds to the error, 30 to the silence of 5, and 60 more.
                sleep(Duration::from_secs(110)).await;
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
            tokio::join!(publish("billing", current.subscribe()), async {
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
