//! NATS JetStream as a source and a sink of idem.
//!
//! ```no_run
//! # use idem_nats::Nats;
//! # async fn example() -> Result<(), idem_core::Error> {
//! let orders = Nats::connect("nats://localhost:4222").await?.stream("ORDERS").await?;
//! # let _ = orders;
//! # Ok(())
//! # }
//! ```
//!
//! [`Nats::connect`] checks that the server responds and that the login works; [`Nats::stream`] checks that the stream
//! exists. The worker does the rest: it opens a durable pull consumer with the worker's name or the one given to
//! [`Stream::durable`], creates it if it does not exist, and opens it again whenever the connection, the consumer or
//! the stream is lost.
//!
//! # Mapping of deliveries
//!
//! | JetStream | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | body | payload, byte for byte |
//! | subject | subject |
//! | header `Nats-Msg-Id` | message id; that of a message from an outbox without its subject |
//! | header `Content-Type`, in any case | content type |
//! | no body, and the header `KV-Operation: DEL` or `PURGE`, or `Nats-Marker-Reason` | empty payload, with [`is_tombstone`](idem_core::Delivery::is_tombstone); the key is the subject |
//! | headers | headers, sorted by name; the values of one name keep their order |
//! | sequence number in the stream, time of the server | position: `ORDERS/7@1700000000000000000`, published at |
//! | delivery count above 1 | redelivered |
//! | | no event type: send it in a header and give the header's name to the worker, or select the handler by subject |
//!
//! The time is part of the position because a recreated stream numbers its messages from 1 again. The delivery count is
//! not used to count attempts: it also rises for messages that were only prefetched.
//!
//! # Server requirements
//!
//! The server must be version 2.9 or newer. An existing consumer must have the settings below; otherwise it is rejected
//! with a list of the differences, or updated if [`Stream::reconcile`] is set. A consumer that idem creates has them.
//!
//! | setting | required value | reason |
//! |---|---|---|
//! | type | pull | a push consumer ignores how many messages the worker can take |
//! | `ack_policy` | explicit | other policies settle messages that were not handled |
//! | `max_deliver` | -1 | after that many deliveries the server silently skips the message; idem keeps dead letters |
//! | `backoff` | none | it overrides `ack_wait` |
//! | `ack_wait` | one second or more, or the value of [`Stream::ack_wait`] | leases are extended after a third of it |
//! | `max_ack_pending` | -1 (the default of idem), or at least as many as the worker processes at once (its `.prefetch(..)`, if that is set, and twice as many with `.batch(..)`); 1 with `DeliveryOrder::Queue` | it limits all workers together: if it is smaller than the sum of their unsettled deliveries, some are idle. With a limit, a worker takes no single message ahead of those that it processes, unless `.prefetch(..)` is set |
//! | `headers_only` | false | handlers need the body |
//! | `inactive_threshold` | none | the server would delete the consumer, and a new one would start over |
//! | filter | that of [`Stream::filter_subject`] | another filter silently leaves out messages |
//!
//! A consumer that idem creates begins at [`Stream::start`], by default with the oldest message.
//!
//! The login must be allowed to publish to `$JS.API.STREAM.INFO.ORDERS`, `$JS.API.CONSUMER.INFO.ORDERS.billing`,
//! `$JS.API.CONSUMER.CREATE.ORDERS.billing` (with a filter, also below it), `$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing`
//! and `$JS.ACK.ORDERS.billing.>`, and to subscribe to `_INBOX.>` or below [`Options::inbox_prefix`]. It should also be
//! allowed to publish to `$JS.API.STREAM.MSG.GET.ORDERS`. With [`Options::domain`], the first four subjects begin with
//! `$JS.<domain>.API.`, and acks with `$JS.ACK.<domain>.`.
//!
//! # Settling
//!
//! | | |
//! |---|---|
//! | ack | sent after the commit, and confirmed by the consumer's response; with [`Stream::unconfirmed_acks`] only sent |
//! | lease | the ack wait (30 seconds by default) less a tenth; extended after a third for as long as the worker holds the delivery, even while it waits for a worker task; only a response extends it |
//! | release | sent only while the lease lasts: the server would take the message from the worker that has it by then |
//! | after a lost connection | deliveries stay valid, and are settled over the next connection |
//! | after a crash | the message is redelivered when its lease expires |
//! | after a clean shutdown | unsettled deliveries are released, and redelivered at once |
//!
//! The server does not distinguish the attempts of a message, and usually responds to acks that it ignores as to any
//! others. A confirmed ack therefore means only that the consumer has received it; a server that is killed right
//! afterwards may forget it. The message is then redelivered, and the claim detects the duplicate.
//!
//! Nor does the server distinguish a recreated stream, whose messages are numbered from 1 again. A worker compares its
//! consumer every five seconds, and then sends no ack of a delivery from before. A worker that has run before reads a new
//! stream only from its twelfth second on, so that an ack that is sent until then settles nothing that was delivered.
//! Nevertheless, delete and recreate a stream only while no worker runs.
//!
//! # Ordering
//!
//! | [`DeliveryOrder`](idem_core::DeliveryOrder) | |
//! |---|---|
//! | `None` | as many at a time as the worker's prefetch allows |
//! | `Queue` | one at a time for all workers of the consumer: `max_ack_pending` must be 1 |
//! | `Partition`, `Key` | rejected: JetStream has neither. Map subjects to partitions on the server, and use one consumer with a filter and `Queue` for each |
//!
//! # Replay window
//!
//! Claims must be kept longer than the stream's `max_age`, which the worker checks: after a power failure, or if a
//! consumer was deleted or recreated, the stream redelivers everything that it still has. Without `max_age` there is no
//! limit. With interest and work-queue retention, an acked message is removed from the stream, but a power failure of
//! the server can lose the ack, so `max_age` applies there too. Times come from the server's clock, so messages older
//! than the claims are recognized as such.
//!
//! # Limitations
//!
//! * NATS passes on headers and subjects that are not UTF-8, and async-nats closes the connection at such a message.
//!   After a worker's second loss within ten minutes, or within 20 ack waits if that is longer, idem searches the
//!   unsettled messages for them and makes them dead letters (`unrepresentable`, with the raw headers in
//!   `idem-nats-headers`). This requires `$JS.API.STREAM.MSG.GET.ORDERS` and, in another domain, an earlier message that could be read;
//!   otherwise somebody must delete the message from the stream, and the error says so.
//! * A server of version 2.9 may redeliver a message without counting it if the process that had it was killed: it is
//!   then not marked as redelivered.
//! * The server's `max_payload` limits the payload, to 1 MiB by default.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acker;
mod address;
mod config;
mod connection;
mod consumer;
mod credentials;
mod delivery;
mod denied;
mod error;
mod gather;
mod lag;
mod lease;
mod leases;
mod limits;
mod link;
mod message;
mod name;
mod options;
mod pull;
mod server;
mod settings;
mod sink;
mod source;
mod stream;
mod streams;
mod tls;
mod unreadable;

pub use acker::NatsAcker;
pub use credentials::Credentials;
pub use options::Options;
pub use server::Nats;
pub use settings::Start;
pub use sink::JetStream;
pub use stream::Stream;
