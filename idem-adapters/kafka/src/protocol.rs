//! The protocols by which a group assigns its partitions.

use idem_core::Error;
use rdkafka::ClientConfig;
use rdkafka::error::RDKafkaErrorCode as Code;

/// The protocol by which a group assigns its partitions to members. All workers of a group should use the same one.
///
/// ```no_run
/// # use idem_kafka::{GroupProtocol, Kafka};
/// # async fn example(kafka: Kafka) -> Result<(), idem_core::Error> {
/// // Brokers of Kafka 4: a rolling restart does not stop the other members.
/// let orders = kafka.topic("orders").await?.group_protocol(GroupProtocol::Consumer);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupProtocol {
    /// One member assigns the partitions, and they move one by one (`cooperative-sticky`). All brokers support this
    /// protocol.
    #[default]
    Classic,
    /// The brokers assign the partitions ([KIP-848](https://cwiki.apache.org/confluence/x/HhD1D)). A member that joins
    /// or leaves does not stop the others. Needs Kafka 4.0 or later. How long the group waits for a member that is gone
    /// is a broker setting (`group.consumer.session.timeout.ms`, 45 seconds), so `session.timeout.ms` and
    /// `heartbeat.interval.ms` are refused. The broker also chooses the assignor, unless the property
    /// `group.remote.assignor` is set.
    ///
    /// A running group can change to this protocol worker by worker, if the brokers allow it
    /// (`group.consumer.migration.policy`; allowed by default).
    Consumer,
}

/// Settings that exist only in the classic protocol, and one that exists only in the consumer protocol.
const CLASSIC: [&str; 2] = ["session.timeout.ms", "heartbeat.interval.ms"];
const CONSUMER: &str = "group.remote.assignor";

impl GroupProtocol {
    /// Refuses settings of the other protocol.
    pub(crate) fn check(self, client: &ClientConfig) -> Result<(), Error> {
        let set = |name: &str| client.get(name).is_some();
        match self {
            Self::Classic if set(CONSUMER) => Err(Error::Config(format!(
                "the setting `{CONSUMER}` belongs to GroupProtocol::Consumer: use .group_protocol(GroupProtocol::Consumer) of \
                 the topic, or leave it out"
            ))),
            Self::Consumer => match CLASSIC.iter().find(|name| set(name)) {
                Some(name) => Err(Error::Config(format!(
                    "the setting `{name}` is one of the brokers with GroupProtocol::Consumer: leave it out, and set \
                     `group.consumer.{name}` of the brokers, or `consumer.{name}` of the group (kafka-configs.sh \
                     --entity-type groups)"
                ))),
                None => Ok(()),
            },
            Self::Classic => Ok(()),
        }
    }

    /// The remedy for an error that ends the client, as the continuation of "the subscription has ended".
    pub(crate) fn remedy(self, code: Code) -> &'static str {
        match code {
            Code::UnsupportedFeature | Code::UnsupportedVersion if self == Self::Consumer => {
                ": GroupProtocol::Consumer needs brokers of Kafka 4.0 or later, with the feature group.version=1. Use \
                 GroupProtocol::Classic with these"
            }
            Code::UnsupportedAssignor => ": the brokers do not know what `group.remote.assignor` says: leave it out",
            Code::UnreleasedInstanceId => {
                ": another member has the name given to .static_member(..): give each its own. One that was killed keeps its \
                 name until its session is over"
            }
            _ => "",
        }
    }

    pub(crate) fn set(self, client: &mut ClientConfig, is_static: bool) {
        match self {
            Self::Classic => {
                client.set("partition.assignment.strategy", "cooperative-sticky");
                // How long the group waits for a member that is gone, unless the user has set it: after a crash, before
                // other members get the partitions, and after a longer outage of the brokers, since the client returns
                // as another member (librdkafka 2.12, rd_kafka_cgrp_session_timeout_check). With librdkafka's default
                // of 45 seconds, groups stopped for that long after the brokers were back. A thread of librdkafka sends
                // the heartbeats, so a slow handler does not miss any.
                if !is_static && client.get("session.timeout.ms").is_none() {
                    client.set("session.timeout.ms", "8000");
                    if client.get("heartbeat.interval.ms").is_none() {
                        client.set("heartbeat.interval.ms", "2000");
                    }
                }
            }
            Self::Consumer => drop(client.set("group.protocol", "consumer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_the_other_protocol_is_refused_by_its_name() {
        for (protocol, name) in [
            (GroupProtocol::Consumer, "session.timeout.ms"),
            (GroupProtocol::Consumer, "heartbeat.interval.ms"),
            (GroupProtocol::Classic, "group.remote.assignor"),
        ] {
            let mut client = ClientConfig::new();
            assert!(protocol.check(&client).is_ok());
            client.set(name, "1000");
            let error = protocol.check(&client).unwrap_err();
            assert!(matches!(&error, Error::Config(text) if text.contains(name)), "{error:?}");
        }
    }

    #[test]
    fn brokers_that_are_too_old_are_told_from_other_ends() {
        let remedy = |protocol: GroupProtocol| protocol.remedy(Code::UnsupportedFeature);
        assert!(remedy(GroupProtocol::Consumer).contains("Kafka 4.0") && remedy(GroupProtocol::Classic).is_empty());
    }

    #[test]
    fn librdkafka_takes_what_is_set_for_each() {
        for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
            for is_static in [false, true] {
                let mut client = ClientConfig::new();
                client.set("group.id", "billing");
                protocol.set(&mut client, is_static);
                client.create::<rdkafka::consumer::BaseConsumer>().unwrap();
            }
        }
    }
}
