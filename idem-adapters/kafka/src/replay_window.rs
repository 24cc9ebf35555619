//! The replay window of topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{Error, ReplayWindow};
use rdkafka::admin::{AdminClient, AdminOptions, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

use crate::config::Config;
use crate::limits;

const ANSWER: Duration = Duration::from_secs(10);

/// Returns the replay window of these topics: the longest retention among them. Logs a warning if the user may not read
/// it, and of settings that delete records which were not handled.
pub(crate) async fn of(config: &Config, topics: &[Arc<str>]) -> ReplayWindow {
    let (mut found, why) = ask(config, topics).await.unwrap_or_else(|why| (BTreeMap::new(), why));
    let stated = |topic: &Arc<str>| {
        found.remove(&**topic).unwrap_or_else(|| {
            tracing::warn!(
                %topic,
                why,
                "the topic's retention cannot be read (allow the user to describe its configs): claims must be kept \
                 for longer than it, and nobody checks that"
            );
            ReplayWindow::Unknown
        })
    };
    topics.iter().map(stated).fold(ReplayWindow::Unknown, ReplayWindow::longest)
}

/// Queries all topics with one request. Returns their windows, and why any is missing.
async fn ask(config: &Config, topics: &[Arc<str>]) -> Result<(BTreeMap<String, ReplayWindow>, String), String> {
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
    // Dropping the client waits for its thread.
    drop(tokio::task::spawn_blocking(move || drop(admin)));
    let (mut found, mut why) = (BTreeMap::new(), "the answer has no retention.ms".to_owned());
    for resource in answer.map_err(|error| error.to_string())? {
        match resource {
            Ok(resource) => {
                if let OwnedResourceSpecifier::Topic(topic) = &resource.specifier {
                    let value = |name: &str| resource.get(name).and_then(|entry| entry.value.as_deref());
                    limits::warn(topic, value);
                    let window = value("retention.ms")
                        .and_then(|retention| stated(value("cleanup.policy").unwrap_or("delete"), retention));
                    found.extend(window.map(|window| (topic.clone(), window)));
                }
            }
            // It does not name its topic.
            Err(code) => why = code.to_string(),
        }
    }
    Ok((found, why))
}

fn stated(policy: &str, retention: &str) -> Option<ReplayWindow> {
    if !policy.split(',').any(|part| part.trim() == "delete") {
        return Some(ReplayWindow::Unlimited);
    }
    let within = |millis| ReplayWindow::Within(Duration::from_millis(millis));
    Some(u64::try_from(retention.parse::<i64>().ok()?).map_or(ReplayWindow::Unlimited, within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_compacted_or_kept_forever_has_no_limit() {
        let week = Some(ReplayWindow::Within(Duration::from_secs(7 * 86_400)));
        assert_eq!(stated("delete", "604800000"), week);
        assert_eq!(stated("compact,delete", "604800000"), week);
        assert_eq!(stated("compact, delete", "604800000"), week);
        assert_eq!(stated("compact", "604800000"), Some(ReplayWindow::Unlimited));
        assert_eq!(stated("delete", "-1"), Some(ReplayWindow::Unlimited));
        assert_eq!(stated("delete", "soon"), None);
    }
}
