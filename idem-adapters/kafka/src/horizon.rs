//! How far back a topic reaches.

use std::time::Duration;

use idem_core::Horizon;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

use crate::config::Config;

const ANSWER: Duration = Duration::from_secs(10);

/// What the topic's retention comes to. A user who may not see it is warned, and not stopped.
pub(crate) async fn of(config: &Config, topic: &str) -> Horizon {
    match ask(config, topic).await {
        Ok(horizon) => horizon,
        Err(why) => {
            tracing::warn!(
                topic,
                why,
                "the topic's retention cannot be looked at (allow the user to describe its configs): claims must be kept \
                 for longer than it, and nobody checks that"
            );
            Horizon::Unstated
        }
    }
}

async fn ask(config: &Config, topic: &str) -> Result<Horizon, String> {
    let client = config.client.clone();
    let admin = tokio::task::spawn_blocking(move || client.create::<AdminClient<DefaultClientContext>>());
    let admin = admin.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let options = AdminOptions::new().request_timeout(Some(ANSWER));
    let answer = admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options).await;
    // Its end waits for its thread.
    drop(tokio::task::spawn_blocking(move || drop(admin)));
    let answer = answer.map_err(|error| error.to_string())?;
    let resource = answer.into_iter().next().ok_or("no answer")?.map_err(|code| code.to_string())?;
    horizon(&resource).ok_or_else(|| "the answer has no retention.ms".to_owned())
}

fn horizon(topic: &ConfigResource) -> Option<Horizon> {
    let value = |name| topic.get(name).and_then(|entry| entry.value.as_deref());
    stated(value("cleanup.policy").unwrap_or("delete"), value("retention.ms")?)
}

fn stated(policy: &str, retention: &str) -> Option<Horizon> {
    if !policy.split(',').any(|part| part.trim() == "delete") {
        return Some(Horizon::Unlimited);
    }
    let millis: i64 = retention.parse().ok()?;
    Some(u64::try_from(millis).map_or(Horizon::Unlimited, |millis| Horizon::Within(Duration::from_millis(millis))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_compacted_or_kept_for_ever_has_no_limit() {
        let week = Some(Horizon::Within(Duration::from_secs(7 * 86_400)));
        assert_eq!(stated("delete", "604800000"), week);
        assert_eq!(stated("compact,delete", "604800000"), week);
        assert_eq!(stated("compact, delete", "604800000"), week);
        assert_eq!(stated("compact", "604800000"), Some(Horizon::Unlimited));
        assert_eq!(stated("delete", "-1"), Some(Horizon::Unlimited));
        assert_eq!(stated("delete", "soon"), None);
    }
}
