//! Limits of a stream that delete messages which no worker has handled.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy};

/// A shorter `max_age` does not last for an outage over a night.
const SHORT: Duration = Duration::from_secs(24 * 3600);

/// Warns of them, and returns whether there are any. None is refused: a stream of states needs only the last message of a
/// subject, and only its owner knows how far away the other limits are.
pub(crate) fn warn(config: &Config) -> bool {
    let limits = limits(config);
    for (limit, remedy) in &limits {
        tracing::warn!(
            stream = config.name,
            "{limit} deletes messages of the stream, handled or not, so an outage that lasts longer loses them: {remedy} (nats \
             stream edit)"
        );
    }
    !limits.is_empty()
}

/// The limits, each with its remedy.
fn limits(config: &Config) -> Vec<(String, &'static str)> {
    let mut limits = Vec::new();
    let Config { max_age, max_messages, max_bytes, max_messages_per_subject, .. } = *config;
    if !max_age.is_zero() && max_age < SHORT {
        limits.push((format!("max_age of {max_age:?}"), "raise it to a day or more"));
    }
    let refuses = config.discard == DiscardPolicy::New;
    for (name, limit) in [("max_msgs", max_messages), ("max_bytes", max_bytes)] {
        if limit > 0 && !refuses {
            limits.push((
                format!("{name} of {limit} with `discard: old`"),
                "set `discard: new`, which refuses new messages instead, with the retention `workqueue` or `interest` so that \
                 handled ones make room; or raise the limit",
            ));
        }
    }
    if max_messages_per_subject > 0 && !(refuses && config.discard_new_per_subject) {
        limits.push((
            format!("max_msgs_per_subject of {max_messages_per_subject}"),
            "keep it only if the last messages of a subject replace those before them, as in a bucket",
        ));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_that_deletes_unhandled_messages_is_named() {
        let named = |config| limits(&config).into_iter().map(|(limit, _)| limit).collect::<Vec<_>>();
        let fits = Config { max_age: SHORT, max_messages: -1, max_bytes: -1, ..Config::default() };
        let refuses = || Config { discard: DiscardPolicy::New, ..fits.clone() };
        assert_eq!(named(fits.clone()), [""; 0]);
        assert_eq!(named(Config { max_messages: 9, max_bytes: 9, ..refuses() }), [""; 0]);
        let per_subject = Config { max_messages_per_subject: 9, ..refuses() };
        assert_eq!(named(Config { discard_new_per_subject: true, ..per_subject.clone() }), [""; 0]);
        assert_eq!(named(per_subject), ["max_msgs_per_subject of 9"], "new messages replace old ones");
        let odd = Config { max_age: SHORT / 24, max_messages: 9, max_bytes: 7, max_messages_per_subject: 1, ..fits };
        let expected = ["max_age of 3600s", "max_msgs of 9 with", "max_bytes of 7 with", "max_msgs_per_subject of 1"];
        assert!(named(odd).iter().zip(expected).all(|(limit, begin)| limit.starts_with(begin)));
    }
}
