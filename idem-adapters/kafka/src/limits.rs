//! Settings of a topic by which the brokers delete records that no worker has handled.

/// A day, in milliseconds. A shorter time does not last for an outage over a night.
const SHORT: i64 = 24 * 3_600_000;

/// Warns of them. None is refused: a topic of states needs only the last record of a key, and a partition whose offset has
/// expired stops with an error, so that nothing is skipped silently.
pub(crate) fn warn<'a>(topic: &str, value: impl Fn(&str) -> Option<&'a str>) {
    for (setting, remedy) in limits(value) {
        tracing::warn!(
            topic,
            "{setting} deletes records of the topic, handled or not, so an outage that lasts longer loses them: {remedy}"
        );
    }
}

/// The settings, each with its remedy.
fn limits<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Vec<(String, &'static str)> {
    let mut limits = Vec::new();
    let number = |name| value(name)?.parse::<i64>().ok();
    let has = |policy| value("cleanup.policy").unwrap_or("delete").split(',').any(|part| part.trim() == policy);
    if has("delete") {
        if let Some(millis) = number("retention.ms").filter(|millis| (0..SHORT).contains(millis)) {
            limits.push((format!("retention.ms={millis}"), "raise it to a day or more"));
        }
        if let Some(bytes) = number("retention.bytes").filter(|bytes| *bytes >= 0) {
            limits.push((
                format!("retention.bytes={bytes}"),
                "set it to -1, or to what the producers write in the longest outage",
            ));
        }
    }
    if has("compact") && number("min.compaction.lag.ms").is_none_or(|millis| millis < SHORT) {
        limits.push((
            "cleanup.policy=compact".to_owned(),
            "set min.compaction.lag.ms to more than the longest outage, unless the last record of a key replaces those before it",
        ));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(settings: &[(&str, &str)]) -> Vec<String> {
        let value = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        limits(value).into_iter().map(|(setting, _)| setting).collect()
    }

    #[test]
    fn each_setting_that_deletes_unhandled_records_is_named() {
        let week = ("retention.ms", "604800000");
        assert_eq!(named(&[week, ("retention.bytes", "-1"), ("cleanup.policy", "delete")]), [""; 0]);
        assert_eq!(named(&[("retention.ms", "-1")]), [""; 0], "forever");
        assert_eq!(named(&[("retention.ms", "60000")]), ["retention.ms=60000"]);
        assert_eq!(named(&[week, ("retention.bytes", "9")]), ["retention.bytes=9"]);
        let compact = |policy| [("cleanup.policy", policy), ("min.compaction.lag.ms", "0"), ("retention.ms", "1")];
        assert_eq!(named(&compact("compact")), ["cleanup.policy=compact"]);
        assert_eq!(named(&compact("delete, compact")), ["retention.ms=1", "cleanup.policy=compact"]);
        assert_eq!(named(&[("cleanup.policy", "compact"), ("min.compaction.lag.ms", "86400000")]), [""; 0]);
    }
}
