//! Finds consumer settings that differ from those that idem needs.

use std::fmt;

use async_nats::jetstream::consumer::AckPolicy;
use idem_core::{DeliveryOrder, SubscribeOptions};
use serde_json::{Value, json};

use crate::settings::{ACK_WAIT, Found, MAX_ACK_PENDING, SHORTEST, Wishes, filters, max_unsettled, nanos};

/// A setting with the wrong value.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) setting: &'static str,
    pub(crate) is: String,
    pub(crate) must: String,
    /// The settings that correct it. Empty if the server can no longer change it.
    pub(crate) set: Vec<(&'static str, Value)>,
}

impl Difference {
    pub(crate) fn can_be_set(&self) -> bool {
        !self.set.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, is, must, .. } = self;
        let cannot = if self.can_be_set() { "" } else { " (cannot be changed)" };
        write!(f, "{setting}: is {is}, must be {must}{cannot}")
    }
}

/// Returns all settings with which messages would be lost, held back, or delivered while they are being handled.
pub(crate) fn differences(found: &Found, wishes: &Wishes, options: &SubscribeOptions) -> Vec<Difference> {
    let config = &found.info.config;
    let mut different = Vec::new();
    let mut check = |fine: bool, setting, is: String, must: &str, set: &[(&'static str, Value)]| {
        if !fine {
            different.push(Difference { setting, is, must: must.to_owned(), set: set.to_vec() });
        }
    };
    let subject = config.deliver_subject.as_deref();
    check(subject.is_none(), "deliver_subject", quoted(subject), "none (a pull consumer)", &[]);
    let explicit = config.ack_policy == AckPolicy::Explicit;
    check(explicit, "ack_policy", format!("{:?}", config.ack_policy).to_lowercase(), "explicit", &[]);
    let groups = found.raw["config"]["priority_groups"].as_array().filter(|groups| !groups.is_empty());
    check(groups.is_none(), "priority_groups", format!("{}", json!(groups)), "none", &[]);

    let unlimited = config.max_deliver <= 0;
    check(unlimited, "max_deliver", config.max_deliver.to_string(), "-1 (unlimited)", &[("max_deliver", json!(-1))]);
    let backoff = format!("{:?}", config.backoff);
    check(config.backoff.is_empty(), "backoff", backoff, "none (it overrides ack_wait)", &[("backoff", json!([]))]);
    let (fine, wait, must) = match wishes.ack_wait {
        Some(wait) => (config.ack_wait == wait, wait, format!("{wait:?}")),
        None => (config.ack_wait >= SHORTEST, ACK_WAIT, format!("{SHORTEST:?} or more, best {ACK_WAIT:?}")),
    };
    check(fine, "ack_wait", format!("{:?}", config.ack_wait), &must, &[("ack_wait", json!(nanos(wait)))]);
    let (pending, needed) = (config.max_ack_pending, i64::from(max_unsettled(config, options)));
    let room = format!("{needed} or more (what .prefetch(..), .concurrency(..) and .batch(..) let be in flight)");
    let (fine, must, set) = match options.order {
        DeliveryOrder::Queue => (pending == 1, "1 (for DeliveryOrder::Queue)".to_owned(), 1),
        _ => (pending < 0 || pending >= needed, room, MAX_ACK_PENDING),
    };
    check(fine, "max_ack_pending", pending.to_string(), &must, &[("max_ack_pending", json!(set))]);
    let bodies = !config.headers_only;
    check(bodies, "headers_only", "true".to_owned(), "false", &[("headers_only", json!(false))]);
    let lasting = config.inactive_threshold.is_zero();
    let threshold = format!("{:?}", config.inactive_threshold);
    let must = "none (its place in the stream would be lost)";
    check(lasting, "inactive_threshold", threshold, must, &[("inactive_threshold", json!(0))]);
    let (is, must) = (sorted(config.filter_subject.as_str(), &config.filter_subjects), sorted("", &wishes.filters));
    check(is == must, "filter", listed(&is), &listed(&must), &filters(&wishes.filters));
    different
}

fn sorted<'a>(one: &'a str, many: &'a [String]) -> Vec<&'a str> {
    let mut all: Vec<_> = many.iter().map(String::as_str).chain((!one.is_empty()).then_some(one)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn listed(filters: &[&str]) -> String {
    if filters.is_empty() { "none".to_owned() } else { format!("`{}`", filters.join("`, `")) }
}

fn quoted(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), |text| format!("`{text}`"))
}
