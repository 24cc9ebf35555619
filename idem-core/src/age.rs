//! Messages published before the pruning cutoff: too old to tell whether they were processed.

use std::time::{Duration, SystemTime};

use humantime::format_duration;

use crate::routes::Routes;
use crate::store::HandlerId;
use crate::{Delivery, Engine, Error, ReplayWindow, Source};

impl<S: Engine> Routes<S> {
    /// Returns why a delivery is [too old](too_old) although its claim is new. The check is never skipped for a delivery that
    /// looks young: another worker or an operator may have changed the retention since this worker started.
    pub(crate) fn too_old(
        &self,
        handler: HandlerId,
        delivery: &Delivery,
        pruned_through: Option<SystemTime>,
    ) -> Option<String> {
        let through = pruned_through?;
        let route = self.get(handler);
        let is_natural = route.is_some_and(|route| route.handler.facts().is_natural);
        too_old(through, delivery.published_at(), route.and_then(|route| route.retention), is_natural)
    }
}

/// Returns why a message is too old although its claim is new: it was published before the newest pruned claim of its handler,
/// so its own claim may be among the pruned ones. `retention`: how long the handler's claims are kept.
///
/// A new consumer has no pruned claims, so it can read a history of any length. A natural handler may run a message
/// again, however old it is.
pub(crate) fn too_old(
    through: SystemTime,
    published: Option<SystemTime>,
    retention: Option<Duration>,
    is_natural: bool,
) -> Option<String> {
    // 1970 records a history, and no claim was pruned: see `HandlerMark::Processes`.
    if is_natural || through <= SystemTime::UNIX_EPOCH {
        return None;
    }
    let published = published?;
    // Because of clock skew, a message can look as if it was processed before it was published, by at most the margin.
    if published.duration_since(through).is_ok_and(|later| later > margin(retention)) {
        return None;
    }
    let ago = |time| {
        let seconds = SystemTime::now().duration_since(time).unwrap_or_default().as_secs();
        shown(Duration::from_secs(if seconds < 600 { seconds } else { seconds / 60 * 60 }))
    };
    Some(format!(
        "it was published {} ago, and this handler's claims are pruned up to {} ago, so it is unknown whether \
         the message was processed. If it was not, replay it by force. If this recurs, raise `.retention(..)` of \
         the store and check the column `retention` of the table `handlers`",
        ago(published),
        ago(through)
    ))
}

/// Formats a duration: `3 days 2h`.
pub(crate) fn shown(time: Duration) -> String {
    let text = format_duration(time).to_string();
    ["year", "month", "day"].iter().fold(text, |text, unit| text.replace(unit, &format!(" {unit}")))
}

/// The maximum difference between the clocks of broker, database and worker.
fn margin(retention: Option<Duration>) -> Duration {
    let longest = Duration::from_secs(300);
    retention.map_or(longest, |retention| (retention / 10).min(longest))
}

/// Returns an error if the broker can redeliver messages that are older than the claims that are kept.
pub(crate) fn check<S: Engine>(source: &impl Source, routes: &Routes<S>) -> Result<(), Error> {
    let Some(retention) = routes.retention() else { return Ok(()) };
    match source.replay_window() {
        ReplayWindow::Within(window) if window > retention => Err(Error::Config(format!(
            "{} keeps messages for {}, and can redeliver them for that long, but claims are kept for only {}: a \
             later redelivery would count as a new message, and so would what a `natural` handler stages for it. Raise `.retention(..)` of the store, or lower the \
             broker's retention",
            source.name(),
            shown(window),
            shown(retention)
        ))),
        ReplayWindow::Unlimited => {
            // A key-value store knows of no history, so a new consumer may read none that is older.
            let delivered = if S::STORES { "again after that" } else { "after that, again or for the first time," };
            tracing::warn!(
                source = source.name(),
                retention = %shown(retention),
                "the broker keeps messages without a limit of time, and claims are kept for less: a message that is delivered \
                 {delivered} becomes a dead letter, too old, or where the broker has no clock of its own, counts as new. A \
                 natural handler stages its messages again; consumers and local handlers that have pruned their ids process \
                 them again, and make their external calls again. Set a limit at the broker, by the setting that its adapter's \
                 documentation names, or raise `.retention(..)` of the store"
            );
            Ok(())
        }
        ReplayWindow::Within(_) | ReplayWindow::Unknown => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_with_its_days() {
        let hour = Duration::from_secs(3600);
        assert_eq!(
            (shown(72 * hour), shown(26 * hour), shown(hour)),
            ("3 days".into(), "1 day 2h".into(), "1h".into())
        );
    }

    #[test]
    fn the_margin_is_a_tenth_and_at_most_five_minutes() {
        assert_eq!(margin(Some(Duration::from_secs(600))), Duration::from_secs(60));
        assert_eq!(margin(Some(Duration::from_secs(7 * 86_400))), Duration::from_secs(300));
        assert_eq!(margin(None), Duration::from_secs(300));
    }
}
