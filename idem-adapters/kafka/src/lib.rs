//! Apache Kafka as a source and a sink of idem.
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
//! [`Kafka::connect`] checks that a broker answers and that the login works. [`Kafka::topic`] checks that the topic
//! exists, and [`Kafka::topics`] consumes several topics in one worker. The worker joins the consumer group that has
//! the worker's name (or the name given to [`Topic::group`]), and recovers by itself after an outage of the brokers.
//! [`Kafka::producer`] is the sink, to which a relay publishes.
//!
//! # Mapping of records to deliveries
//!
//! | Kafka | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | value | payload, byte for byte |
//! | no value (a tombstone) | empty payload, with [`is_tombstone`](idem_core::Delivery::is_tombstone) |
//! | key | partition key; the key of a tombstone names the deleted entry |
//! | header `message-id`, in any case | message id; [`Kafka::producer`] writes it |
//! | header `content-type`, in any case | content type |
//! | headers | headers in the same order, including repeated ones; a header without a value has an empty value |
//! | topic, partition, offset, timestamp | position, such as `orders/0/42@1700000000000`; none if the record has no timestamp |
//! | timestamp of type `LogAppendTime` | publication time |
//! | timestamp of type `CreateTime` | production time; it is the producer's clock, and no decision depends on it |
//! | nothing | subject and event type: use a header (`.event_type("event-type")` of the worker) or CloudEvents (`.cloud_events()`) |
//!
//! Kafka has no field for a message id. `message-id` is AMQP's name for it, next to `content-type`. For producers with
//! another name there are `key = header("id")` and `key = cloud_event_id`.
//!
//! `key = position` distinguishes the redeliveries of one record from other records. This includes the records of a
//! topic that was deleted and recreated: its offsets start at 0 again, but the timestamps differ. It does not detect a
//! message that its producer publishes twice; such a message needs its own id. A record without a timestamp (from
//! before Kafka 0.10) has no such key and becomes a dead letter.
//!
//! # Offset commits
//!
//! Kafka cannot ack a single message: a committed offset acks all messages below it. Therefore only the end of the
//! *finished prefix* of each partition is committed. One unfinished message keeps the offset where it is, however many
//! messages behind it are finished. [`Topic::window`] limits their number; then the partition waits. Offsets are
//! committed five times a second, when a partition is revoked, and at shutdown. After a crash, the messages finished
//! since the last commit are delivered again and find their claims. Those of natural handlers have no claims, and run again.
//!
//! | | |
//! |---|---|
//! | After a crash | Kafka does not mark redeliveries. After each assignment, a window of deliveries of each partition counts as redelivered, and one more for each of them that has a claim. They are stored in the inbox before they run, at most one window of each partition. |
//! | A partition is revoked | Buffered records are dropped; running handlers have two seconds to finish; finished offsets are committed; later acks are stale and have no effect. A delivery that waits for a worker task counts as running until a task takes it, and gives it up: if all tasks are busy with other partitions, the revocation takes the two seconds. |
//! | A partition was lost | Nothing is committed. |
//! | A handler is slow, or the database is unavailable | A separate thread polls the client all the time, so that the member stays in the group. `max.poll.interval.ms` does not limit a handler. |
//! | The brokers are unavailable | The worker reports this and waits. Deliveries stay valid, and acks count, until the group assigns the partition to another member. |
//! | A connection breaks while a commit is under way | The client sends the commit again, possibly behind later ones, which puts the group's position back until the next commit. If the worker ends before that, finished messages are delivered again, as after a crash. |
//! | They are unavailable for longer than `session.timeout.ms` (8 seconds) | The membership ends. When the brokers are back, the group waits for the old member for another session timeout, unless it is a [`Topic::static_member`]. |
//! | A message is released | This happens only when the worker drains. The next owner of the partition receives the message again. |
//!
//! Offsets are committed through the client's offset store, which refuses a partition that is not assigned to this
//! member. The metadata of each offset contains the id of the topic.
//!
//! # Start position of a group
//!
//! | | |
//! |---|---|
//! | The group has committed an offset in the partition | At that offset, regardless of the settings below |
//! | It has not | At the oldest message, or as set with [`Topic::start`] (only new messages, or from a time) or [`Topic::start_at`] (an offset in one partition) |
//! | A partition is added later | At its first message. It is noticed within `topic.metadata.refresh.interval.ms` (5 minutes) |
//! | The offset is out of range because retention has removed the messages | An error that names the remedy, at startup or of a running worker. idem never skips messages by itself |
//! | The topic was deleted | An error until it is recreated |
//! | The topic was deleted and recreated, between two runs or while a worker runs | At its first message: an offset committed for the old topic is ignored |
//!
//! # Several topics, and patterns
//!
//! [`Kafka::topics`] consumes names and patterns (`^orders\.`) in one worker, with one connection and one group. This
//! documentation applies to each of the topics. Inbox rows and spans name the topic of a delivery, offsets are
//! committed per topic with its id, and a stalled partition does not stop the others. Claims must be kept for the
//! longest retention among the topics.
//!
//! | | |
//! |---|---|
//! | A matching topic is created later | It is consumed from its first message, regardless of the start setting, and noticed within `topic.metadata.refresh.interval.ms` (5 minutes) |
//! | A topic is added to the names of a group that has committed | It is consumed from its first message as well. To skip its messages, first reset its offsets to the latest |
//! | A topic that matches a pattern is deleted | It is dropped with an error in the log; the others continue |
//! | A named topic is deleted | An error until it is recreated |
//! | The user may no longer read a named topic | Its partitions stall, with an error in the log; the others continue. It continues where it was when it is allowed again. At the start, it is refused |
//! | The user may no longer see a topic that matches a pattern | As if it was deleted. It continues where it was when it may be seen again |
//! | No existing topic matches | Refused |
//!
//! # Ordering
//!
//! | `DeliveryOrder` | |
//! |---|---|
//! | `None` | All available records are handled concurrently |
//! | `Partition` | The records of a partition are handled one after another |
//! | `Key` | The records of one key in one partition are handled one after another. Records without a key share one ordering key in each partition; the first one is logged as a warning |
//! | `Queue` | Refused: Kafka keeps no order between partitions. A topic with one partition and `Partition` has the same effect |
//!
//! A producer that adds partitions, or sends one key to several partitions, gives up the order of that key.
//!
//! # Replay window
//!
//! Kafka can deliver messages again for the topic's `retention.ms`. A topic that is only compacted, or keeps messages
//! forever, has no limit. A worker compares this window with the retention of its claims. Kafka removes whole segments,
//! by the time of their last record: a topic with few messages can keep a segment for up to `segment.ms` (7 days)
//! longer. Keep claims for longer than both together, or lower `segment.ms`.
//!
//! # Broker requirements
//!
//! * Set `acks=all` at the producers and `min.insync.replicas` to 2 or more. Otherwise a message can be lost before any
//!   consumer has seen it. idem cannot check this.
//! * Set `offsets.retention.minutes` (default: 7 days) to more than the longest time for which no member of the group
//!   runs. After that time the group loses its offsets and starts like a new group; claims detect messages that were
//!   processed within their retention.
//! * Allow the user to `Read` and `Describe` the topic and the group, and preferably to `DescribeConfigs` of the topic.
//! * Use a group only for idem workers, all with the same window: a member that commits unfinished messages loses them
//!   for the whole group.
//!
//! # Build requirements
//!
//! This crate builds librdkafka 2.12 from the source bundled with rdkafka, which needs a C compiler, make and zlib.
//! OpenSSL is linked only on request.
//!
//! | | needs |
//! |---|---|
//! | plain connections, SASL PLAIN ([`Options::sasl_plain`], [`Options::sasl_credentials`]) | nothing else |
//! | TLS ([`Options::tls`], [`Options::tls_ca`], [`Options::tls_identity`]), SCRAM (with [`Options::property`]), OAuth tokens ([`Options::sasl_oauthbearer`]) | feature `ssl` (`kafka-ssl` of idem-rs): the system's OpenSSL, with its headers |
//! | topics compressed with gzip, snappy or lz4 | nothing else |
//! | topics compressed with zstd | feature `zstd` (`kafka-zstd`), which builds libzstd. Without it, such a batch is an error that stops its partition |
//!
//! # Limitations
//!
//! * A record with a header name that is not UTF-8 becomes a dead letter (`unrepresentable`).
//! * librdkafka compares a broker's address only with the names in its certificate. Brokers with TLS must therefore be
//!   advertised by name, not by IP address.
//! * A pattern never matches a topic whose name begins with `__`. The user must be allowed to describe every topic that
//!   a pattern is to match; other topics are invisible.
//! * With [`GroupProtocol::Classic`], the default, the assignor is `cooperative-sticky`. A group whose members use
//!   another assignor must be stopped completely before idem joins it.
//! * With [`GroupProtocol::Consumer`] (KIP-848, Kafka 4.0) the session timeout is a broker setting, 45 seconds by
//!   default. The partitions of a killed worker stay unassigned for that long.

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
mod lag;
mod limits;
mod member;
mod message;
mod options;
mod partition;
mod plan;
mod property;
mod protocol;
mod quarantine;
mod refusal;
mod replay_window;
mod sender;
mod server;
mod shared;
mod sink;
mod source;
mod stall;
mod start;
mod subscribed;
mod tracker;
mod wanted;

pub use acker::KafkaAcker;
pub use credentials::{Credentials, Token};
pub use options::Options;
pub use plan::Start;
pub use protocol::GroupProtocol;
pub use server::Kafka;
pub use sink::Producer;
pub use source::Topic;
