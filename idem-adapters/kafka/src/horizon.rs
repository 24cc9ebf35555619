//! How far back a topic reaches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{Error, Horizon};
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

use crate::config::Config;

const ANSWER: Duration = Duration::from_secs(10);

/// The replay horizon of these topics: the longest retention among them. Logs a warning where the user may not read it.
pub(crate) async fn of(config: &Config, topics: &[Arc<str>]) -> Horizon {
    let horizons = match ask(config, topics).await {
        Ok(horizons) => horizons,
        Err(why) => topics.iter().map(|topic| (Arc::clone(topic), Err(why.clone()))).collect(),
    };
    let stated = |(topic, horizon): (Arc<str>, Result<Horizon, String>)| {
        horizon.unwrap_or_else(|why| {
            tracing::warn!(
                %topic,
                why,
                "the topic's retention cannot be looked at (allow the user to describe its configs): claims must be kept \
                 for longer than it, and nobody checks that"
            );
            Horizon::Unstated
        })
    };
    horizons.into_iter().map(stated).fold(Horizon::Unstated, longest)
}

/// The longer of two. An unstated horizon never hides a stated one.
pub(crate) fn longest(one: Horizon, other: Horizon) -> Horizon {
    match (one, other) {
        (Horizon::Unlimited, _) | (_, Horizon::Unlimited) => Horizon::Unlimited,
        (Horizon::Within(one), Horizon::Within(other)) => Horizon::Within(one.max(other)),
        (Horizon::Unstated, stated) | (stated, Horizon::Unstated) => stated,
    }
}

type Stated = (Arc<str>, Result<Horizon, String>);

/// Of all topics by one request.
async fn ask(config: &Config, topics: &[Arc<str>]) -> Result<Vec<Stated>, String> {
    let config = config.clone();
    let admin = tokio::task::spawn_blocking(move || {
        let admin: AdminClient<DefaultClientContext> = config.client.create().map_err(|error| error.to_string())?;
        config.tokens.begin(admin.inner(), &config.place).map_err(|loss| Error::from(loss).to_string())?;
        Ok::<_, String>(admin)
    });
    let admin = admin.await.map_err(|error| error.to_string())??;
    let options = AdminOptions::new().request_timeout(Some(ANSWER));
    let asked: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let answer = admin.describe_configs(&asked, &options).await;
    // Its end waits for its thread.
    drop(tokio::task::spawn_blocking(move || drop(admin)));
    let answer = answer.map_err(|error| error.to_string())?;
    // They may come in another order, and what is refused does not say of which topic it is.
    let mut refused = "no answer".to_owned();
    let mut found = BTreeMap::new();
    for resource in answer {
        match resource {
            Ok(resource) => {
                if let OwnedResourceSpecifier::Topic(topic) = &resource.specifier {
                    let stated = horizon(&resource).ok_or_else(|| "the answer has no retention.ms".to_owned());
                    found.insert(topic.clone(), stated);
                }
            }
            Err(code) => refused = code.to_string(),
        }
    }
    let of = |topic: &Arc<str>| found.remove(&**topic).unwrap_or_else(|| Err(refused.clone()));
    Ok(topics.iter().map(Arc::clone).zip(topics.iter().map(of)).collect())
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

    #[test]
    fn of_several_topics_the_longest_counts() {
        let (day, week) = (Duration::from_secs(86_400), Duration::from_secs(7 * 86_400));
        assert_eq!(longest(Horizon::Within(week), Horizon::Within(day)), Horizon::Within(week));
        assert_eq!(longest(Horizon::Within(week), Horizon::Unlimited), Horizon::Unlimited);
        assert_eq!(longest(Horizon::Unstated, Horizon::Within(day)), Horizon::Within(day));
    }
}
