//! Apache Kafka as a source of idem.
//!
//! ```no_run
//! # use idem_kafka::Kafka;
//! # async fn example() -> Result<(), idem_core::Error> {
//! let orders = Kafka::connect("localhost:9092").await?.topic("orders").await?;
//! # let _ = orders;
//! # Ok(())
//! # }
//! ```
//!
//! [`Kafka::connect`] checks that a broker answers and that the login works; [`Kafka::topic`] checks that the topic is
//! there, and [`Kafka::topics`] takes several into one worker. The worker does the rest: it joins the consumer group of its own name (or of [`Topic::group`]), and goes on by
//! itself when brokers were away.
//!
//! # What a delivery becomes
//!
//! | Kafka | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | value | payload, byte for byte |
//! | no value (a tombstone) | an empty payload, with [`is_tombstone`](idem_core::Delivery::is_tombstone) |
//! | key | partition key; of a tombstone it is what was deleted |
//! | header `content-type`, in any case | content type |
//! | headers | headers in their order, repeated ones too; one without a value is empty |
//! | topic, partition, offset, timestamp | position, as `orders/0/42@1700000000000`; none where the record has no timestamp |
//! | timestamp of type `LogAppendTime` | when it was published |
//! | timestamp of type `CreateTime` | when it was produced: it is the producer's clock, and nothing is decided by it |
//! | nothing | subject, message id and type of event: use a header, `key = header("id")` and `.event_type(..)` of the worker, or CloudEvents, `key = cloud_event_id` and `.cloud_events()` |
//!
//! `key = position` tells the redeliveries of one record from other records, also from those of a topic that was deleted
//! and recreated, whose offsets start at 0 again: the timestamp differs. It does not see a message that its producer
//! publishes twice; for that the message needs an id of its own. A record without a timestamp (they are older than Kafka
//! 0.10) has no such key and becomes a dead letter.
//!
//! # What is committed, and when
//!
//! Kafka knows no ack of a single message: an offset that is committed acks all below it. So what is committed is the
//! end of the *finished prefix* of each partition, and one message that is held keeps the offset where it is, however
//! many behind it are finished. They may be as many as [`Topic::window`] says, then the partition waits. Offsets are
//! committed five times a second, when a partition is taken away, and at the end. A crash repeats what was finished since:
//! those messages find their claims.
//!
//! | | |
//! |---|---|
//! | Which is it after a crash? | Kafka marks no redeliveries. So after each assignment the first deliveries count as redelivered, and are stored in the inbox before they run, until a window of them was stored that had no claim. |
//! | A partition is taken away | what is buffered is dropped; what runs has two seconds to end; what is finished is committed; later acks are stale and do nothing. |
//! | A partition was lost | nothing is committed. |
//! | A handler is slow, the database is away | the client is polled all the time, on a separate thread, so that the group waits. `max.poll.interval.ms` is no limit to a handler. |
//! | The brokers are away | the worker says so and waits; deliveries stay ours, and acks count, as long as the group has not given the partition to another member. |
//! | They are away for longer than `session.timeout.ms` (8 seconds) | the membership is over. When they are back the group waits for the old one until its session is over, once more as long, unless it is a [`Topic::static_member`]. |
//! | A message is released | only when the worker drains: it comes again to the partition's next owner. |
//!
//! Offsets are told to the client's store, which refuses a partition that is not ours, and committed from there. They
//! carry the id of the topic as their metadata.
//!
//! # Where a group begins
//!
//! | | |
//! |---|---|
//! | the group has committed an offset there | at that offset, whatever is said below |
//! | it has not | at the oldest message, or as [`Topic::start`] (the latest, a time) and [`Topic::start_at`] (an offset of one partition) say |
//! | a partition that is added later | at its first message. It is noticed within `topic.metadata.refresh.interval.ms` (5 minutes) |
//! | the offset is out of range, because retention has removed what is there | an error with the cure, at the start or of a running worker. Nothing is ever skipped by itself |
//! | the topic was deleted | an error, until it is recreated |
//! | the topic was deleted and recreated | at its first message, be it between two runs or while a worker runs: an offset that was committed for the topic before counts for nothing |
//!
//! # Several topics, and patterns
//!
//! [`Kafka::topics`] takes names and patterns (`^orders\.`) into one worker, one connection and one group. All that is said
//! here of a topic holds for each of them: an inbox row and a span say which one a delivery came from, offsets are
//! committed for each with its id, a partition that stands still stops no other, and the longest retention of them is
//! what claims have to be kept for.
//!
//! | | |
//! |---|---|
//! | a topic that is made later, and matches | is consumed from its first message, whatever the start: noticed within `topic.metadata.refresh.interval.ms` (5 minutes) |
//! | a topic that is added to the names of a group that has committed | begins at its first message, too; to skip those, reset its offsets to the latest first |
//! | a topic of a pattern that is deleted | is left out, with a warning; the others go on |
//! | a topic that was named is deleted | an error, until it is recreated |
//! | nothing that is there matches | refused |
//!
//! # Order
//!
//! | `DeliveryOrder` | |
//! |---|---|
//! | `None` | whatever is there is handled at once |
//! | `Partition` | the records of a partition one after another |
//! | `Key` | the records of one key in one partition one after another. Those without a key share one ordering key in each partition; the first one is warned about |
//! | `Queue` | refused: Kafka keeps no order between partitions. A topic of one partition with `Partition` is the same |
//!
//! A producer that adds partitions, or sends one key to several, has given up the order of that key.
//!
//! # How far back Kafka can deliver again
//!
//! As far as the topic's `retention.ms`; what is only compacted, or kept for ever, has no limit. A worker compares it with
//! the retention of its claims. Kafka removes whole segments, by the time of their last record: a topic with few messages
//! can keep one for up to `segment.ms` (7 days) longer, so keep claims for longer than both together, or lower
//! `segment.ms`.
//!
//! # What the brokers have to promise
//!
//! * `acks=all` at the producers and `min.insync.replicas` of 2 or more: otherwise a message can be lost before anybody has
//!   seen it. idem cannot look at that.
//! * `offsets.retention.minutes` (7 days) longer than the longest time for which no member of the group runs. The group
//!   loses its offsets then, and starts as a new group does: claims answer for messages that were processed within their
//!   retention.
//! * The user may `Read` and `Describe` the topic and the group, and should be allowed `DescribeConfigs` of the topic.
//! * One group is used by workers of idem only, and all with the same window: a member that commits what it has not
//!   finished loses messages for all.
//!
//! # What is linked
//!
//! librdkafka 2.12, built from the source that comes with rdkafka: a C compiler, make and zlib are needed. Nothing of
//! OpenSSL is linked unless it is asked for.
//!
//! | | needs |
//! |---|---|
//! | plain connections, SASL with PLAIN ([`Options::sasl_plain`], [`Options::sasl_credentials`]) | nothing more |
//! | TLS ([`Options::tls`], [`Options::tls_ca`], [`Options::tls_identity`]), SCRAM (by [`Options::property`]), tokens of OAuth ([`Options::sasl_oauthbearer`]) | feature `ssl` (`kafka-ssl` of idem-rs): the system's OpenSSL, with its headers |
//! | topics compressed by gzip, snappy, lz4 | nothing more |
//! | topics compressed by zstd | feature `zstd` (`kafka-zstd`): builds libzstd. Without it such a batch is an error in its place |
//!
//! # Limits
//!
//! * A record with a header whose name is not UTF-8 is a dead letter (`unrepresentable`).
//! * librdkafka compares a broker's address with the names in its certificate only, so that brokers with TLS have to be
//!   advertised by name, not by IP address.
//! * A pattern never takes a topic whose name begins with `__`. The user needs to be allowed to describe all that it is to
//!   take: what it may not see does not exist.
//! * With [`GroupProtocol::Classic`], the default, partitions move by `cooperative-sticky`. A group whose members use another
//!   assignor has to be stopped as a whole before idem joins it.
//! * With [`GroupProtocol::Consumer`] (KIP-848, Kafka 4.0) the session's timeout is a setting of the brokers, 45 seconds by
//!   default: for so long nobody has the partitions of a worker that was killed.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acker;
mod address;
mod assigned;
mod buffer;
mod config;
mod connection;
mod consumer;
mod credentials;
mod delivery;
mod error;
mod group;
mod headers;
mod identity;
mod judge;
mod lag;
mod member;
mod offsets;
mod options;
mod partition;
mod plan;
mod property;
mod protocol;
mod quarantine;
mod replay_window;
mod server;
mod shared;
mod source;
mod start;
mod subscribed;
mod ticket;
mod tracker;
mod wanted;

pub use acker::KafkaAcker;
pub use credentials::{Credentials, Token};
pub use options::Options;
pub use plan::Start;
pub use protocol::GroupProtocol;
pub use server::Kafka;
pub use source::Topic;
