//! Reopening a source after it failed.

use std::time::Duration;

use backon::ExponentialBackoff;

use crate::error::{chain, text};
use crate::runtime::{Health, growing_waits};
use crate::{Error, Source, SubscribeOptions};

const LONGEST: Duration = Duration::from_secs(5);

/// The delays before a source is reopened. They grow until a delivery was settled: a source that opens and fails before
/// that has not recovered.
pub(super) struct Reopening {
    waits: ExponentialBackoff,
    settled: u64,
}

impl Reopening {
    pub(super) fn new(settled: u64) -> Self {
        Self { waits: growing_waits(Duration::from_millis(100), LONGEST), settled }
    }

    /// Returns the next delay, given the number of deliveries settled so far.
    fn wait(&mut self, settled: u64) -> Duration {
        if settled > self.settled {
            *self = Self::new(settled);
        }
        self.waits.next().unwrap_or(LONGEST)
    }

    /// Reopens the source, with unlimited retries. A source that refuses although its broker answers is an error in the log
    /// and in `health`. As cancel safe as [`Source::subscribe`].
    pub(super) async fn open<Src: Source>(
        &mut self,
        source: &mut Src,
        options: &SubscribeOptions,
        settled: u64,
        health: &Health,
    ) {
        loop {
            tokio::time::sleep(self.wait(settled)).await;
            let opened = source.subscribe(options.clone()).await;
            let refused = opened.as_ref().err().and_then(|error| refusal(&**error));
            let is_new = health.set_unsubscribed(refused.clone());
            match (opened, refused) {
                (Ok(()), _) => return,
                (Err(_), Some(why)) if is_new => {
                    tracing::error!(source = source.name(), why, "nothing is consumed until this is repaired");
                }
                (Err(error), Some(_)) => tracing::debug!(source = source.name(), error, "nothing is consumed yet"),
                (Err(error), None) => tracing::warn!(source = source.name(), error, "the broker is still away"),
            }
        }
    }
}

/// Returns the text of an error that does not pass with an outage: one of the configuration.
fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let config = chain(error).filter_map(|part| part.downcast_ref()).find(|part| matches!(part, Error::Config(_)));
    config.map(|config| text(config))
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
