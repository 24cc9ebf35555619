//! Messages of before the claims that were pruned: too old to tell whether they were processed.

use std::time::{Duration, SystemTime};

use crate::pipeline::Pipeline;
use crate::store::{Fault, HandlerId};
use crate::{Delivery, Error, Horizon, Source, Store};

impl<S: Store> Pipeline<S> {
    /// Why a delivery that has found no claim is too old all the same: it was published before the last claims that were
    /// pruned, and its own may have been among them. Asked in the transaction of its new claim, behind the claim.
    ///
    /// Nothing was pruned of a new consumer, so that it reads a history of any length.
    pub(crate) async fn too_old(
        &self,
        txn: &mut S::Txn,
        handler: HandlerId,
        delivery: &Delivery,
    ) -> Result<Option<String>, Fault> {
        if self.is_fresh(delivery) {
            return Ok(None);
        }
        let through = self.store.pruned_through(txn, handler).await?;
        Ok(through.and_then(|through| self.older(delivery, through)))
    }

    /// Whether nobody need ask how old it is. Our clock decides nothing: it spares the question of all that is fresh.
    pub(crate) fn is_fresh(&self, delivery: &Delivery) -> bool {
        let Some(published) = delivery.published_at() else { return true };
        let retention = self.store.retention();
        SystemTime::now().duration_since(published).unwrap_or_default() < retention.saturating_sub(margin(retention))
    }

    /// Why it is too old, where claims up to this time were pruned.
    pub(crate) fn older(&self, delivery: &Delivery, through: SystemTime) -> Option<String> {
        let published = delivery.published_at()?;
        let retention = self.store.retention();
        // What was processed before it was published, by another clock, differs by no more than the margin.
        if published.duration_since(through).is_ok_and(|later| later > margin(retention)) {
            return None;
        }
        Some(format!(
            "it was published {} ago, and claims are kept for {}: claims as old as it were pruned, so that nobody can tell \
             whether it was processed. If it was not, replay it by force; if this happens again, keep claims longer, \
             `.retention(..)` of the store",
            text(SystemTime::now().duration_since(published).unwrap_or_default()),
            text(retention)
        ))
    }
}

/// By how much the clocks of broker, database and worker may differ.
fn margin(retention: Duration) -> Duration {
    (retention / 10).min(Duration::from_secs(300))
}

/// Refuses a broker that can deliver again what is older than the claims that are kept.
pub(crate) fn check(source: &impl Source, retention: Duration) -> Result<(), Error> {
    match source.horizon() {
        Horizon::Within(horizon) if horizon > retention => Err(Error::Refused(format!(
            "{} keeps messages for {}, and can deliver them again for as long, but claims are kept for {}: a message \
             that comes again after that would pass for a new one. Keep claims longer, `.retention(..)` of the store, or \
             let the broker keep messages for less",
            source.name(),
            text(horizon),
            text(retention)
        ))),
        Horizon::Unlimited => {
            tracing::warn!(
                source = source.name(),
                retention = text(retention),
                "the broker keeps messages without a limit of time, and claims are kept for less: a message that is \
                 delivered again after that becomes a dead letter, too old, or where the broker has no clock of its own, \
                 passes for a new one"
            );
            Ok(())
        }
        Horizon::Within(_) | Horizon::Unstated => Ok(()),
    }
}

/// In the largest unit that makes it a whole number, down to seconds.
fn text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (number, unit) = match seconds {
        0 => return format!("{duration:?}"),
        _ if seconds.is_multiple_of(86_400) => (seconds / 86_400, "day"),
        _ if seconds.is_multiple_of(3_600) => (seconds / 3_600, "hour"),
        _ if seconds.is_multiple_of(60) => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    if number == 1 { format!("1 {unit}") } else { format!("{number} {unit}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_tenth_and_at_most_five_minutes() {
        assert_eq!(margin(Duration::from_secs(600)), Duration::from_secs(60));
        assert_eq!(margin(Duration::from_secs(7 * 86_400)), Duration::from_secs(300));
    }

    #[test]
    fn a_duration_is_said_in_whole_units() {
        let said = |seconds| text(Duration::from_secs(seconds));
        assert_eq!([said(7 * 86_400), said(86_400)], ["7 days", "1 day"]);
        assert_eq!([said(90_000), said(90), said(5_400)], ["25 hours", "90 seconds", "90 minutes"]);
        assert_eq!(text(Duration::from_millis(50)), "50ms");
    }
}
