//! Opening a source again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::{Source, SubscribeOptions};

const LONGEST: Duration = Duration::from_secs(5);

/// How long to wait before a source is opened again: longer each time, until a delivery was settled. A source that opens, and
/// fails before that, has not been of use.
pub(super) struct Reopening {
    waits: ExponentialBackoff,
    settled: u64,
}

impl Reopening {
    pub(super) fn new(settled: u64) -> Self {
        let waits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            // The jitter adds up to as much again.
            .with_max_delay(LONGEST / 2)
            .with_jitter()
            .without_max_times();
        Self { waits: waits.build(), settled }
    }

    /// The next wait, where so many deliveries were settled so far.
    fn wait(&mut self, settled: u64) -> Duration {
        if settled > self.settled {
            *self = Self::new(settled);
        }
        self.waits.next().unwrap_or(LONGEST)
    }

    /// Opens the source, for ever. Cancel safe as far as `open` is.
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
