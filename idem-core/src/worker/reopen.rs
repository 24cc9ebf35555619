//! Reopening a source after it failed.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::{Source, SubscribeOptions};

const LONGEST: Duration = Duration::from_secs(5);

/// The delays before a source is reopened. They grow until a delivery was settled: a source that opens and fails before
/// that has not recovered.
pub(super) struct Reopening {
    waits: ExponentialBackoff,
    settled: u64,
}

impl Reopening {
    pub(super) fn new(settled: u64) -> Self {
        let waits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            // The jitter adds up to 100 percent.
            .with_max_delay(LONGEST / 2)
            .with_jitter()
            .without_max_times();
        Self { waits: waits.build(), settled }
    }

    /// Returns the next delay, given the number of deliveries settled so far.
    fn wait(&mut self, settled: u64) -> Duration {
        if settled > self.settled {
            *self = Self::new(settled);
        }
        self.waits.next().unwrap_or(LONGEST)
    }

    /// Reopens the source, with unlimited retries. As cancel safe as [`Source::subscribe`].
    pub(super) async fn open<Src: Source>(&mut self, source: &mut Src, options: &SubscribeOptions, settled: u64) {
        loop {
            tokio::time::sleep(self.wait(settled)).await;
            match source.subscribe(options.clone()).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(source = source.name(), error, "the broker is still away"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_grow_until_a_delivery_was_settled() {
        let mut reopening = Reopening::new(3);
        let waits: Vec<_> = (0..8).map(|_| reopening.wait(3)).collect();
        assert!(waits[0] < Duration::from_millis(250) && (LONGEST / 2..=LONGEST).contains(&waits[7]), "{waits:?}");
        assert!(reopening.wait(4) < Duration::from_millis(250));
        assert!(reopening.wait(4) >= Duration::from_millis(200), "it grows again");
    }
}
