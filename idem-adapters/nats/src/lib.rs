//! NATS JetStream as a source of idem.
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
//! [`Nats::connect`] checks that the server answers and that the login works; [`Nats::stream`] checks that the stream is
//! there. The worker does the rest: it opens a durable pull consumer of its own name, or of that given to
//! [`Stream::durable`], makes it where it does not exist, and opens it again whenever the connection, the consumer or
//! the stream was lost.
//!
//! # What a delivery becomes
//!
//! | JetStream | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | body | payload, byte for byte |
//! | subject | subject |
//! | header `Nats-Msg-Id` | message id |
//! | header `Content-Type`, in any case | content type |
//! | headers | headers, sorted by name; the values of one name in their order |
//! | number in the stream, time of the server | position: `ORDERS/7@1700000000000000000`, published at |
//! | count of deliveries above 1 | redelivered |
//! | | no event type: send it in a header, and name that to the worker; or let the subject choose the handler |
//!
//! The time is part of the position because a recreated stream counts from 1 again. The count of deliveries is
//! never counted with: it also rises for messages that were only prefetched.
//!
//! # What the server has to promise
//!
//! Any server from 2.9 on. A consumer that exists must have these settings, and is refused with the difference where it
//! has not, or with [`Stream::reconcile`] updated; one that is made has them.
//!
//! | setting | must be | because |
//! |---|---|---|
//! | type | pull | a push consumer knows no room |
//! | `ack_policy` | explicit | others settle what was not handled |
//! | `max_deliver` | -1 | after so many the message is passed over in silence; idem keeps dead letters |
//! | `backoff` | none | it overrides `ack_wait` |
//! | `ack_wait` | a second or more, or what [`Stream::ack_wait`] says | it is extended at a third |
//! | `max_ack_pending` | -1, as one is made, or at least what is in flight; 1 in the order of a queue | it is the bound of all workers together: one that is smaller than what all of them have in flight leaves some idle |
//! | `headers_only` | false | the body is what is handled |
//! | `inactive_threshold` | none | the consumer would be deleted, and start again |
//! | filter | that of [`Stream::filter_subject`] | others are left out in silence |
//!
//! A consumer that is made begins where [`Stream::start`] says, by default with the oldest message.
//!
//! A login needs to publish to `$JS.API.STREAM.INFO.ORDERS`, `$JS.API.CONSUMER.INFO.ORDERS.billing`,
//! `$JS.API.CONSUMER.CREATE.ORDERS.billing` (with a filter: and below it), `$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing`
//! and `$JS.ACK.ORDERS.billing.>`, should be able to publish to `$JS.API.STREAM.MSG.GET.ORDERS`, and to subscribe to `_INBOX.>` or below [`Options::inbox_prefix`]. With
//! [`Options::domain`] the first four begin with `$JS.<domain>.API.`, and acks with `$JS.ACK.<domain>.`.
//!
//! # Settling
//!
//! | | |
//! |---|---|
//! | ack | sent after the commit, and confirmed by the answer of the consumer; with [`Stream::unconfirmed_acks`] only sent |
//! | lease | the ack wait, by default 30 seconds, counted as a tenth shorter; extended at a third for as long as the worker holds the delivery, also while it waits for a worker task; only by an answer |
//! | release | sent only while the lease lasts: the server would take the message from whoever has it by then |
//! | after a lost connection | deliveries are still ours, and are settled by the next connection |
//! | after a process that died | the message comes again when its lease has run out |
//! | after a clean end | what was unsettled is released, and comes again at once |
//!
//! The server does not tell the attempts of a message apart, and mostly answers acks that it ignores like others. So a confirmed
//! ack says that the consumer has seen it; a server that is killed right after may forget it. Then the message comes
//! again, and the claim answers.
//!
//! # Order
//!
//! | [`DeliveryOrder`](idem_core::DeliveryOrder) | |
//! |---|---|
//! | `None` | as many at a time as are in flight |
//! | `Queue` | one at a time for all workers of the consumer: `max_ack_pending` of 1, refused otherwise |
//! | `Partition`, `Key` | refused: there are neither. Map subjects to partitions on the server, and have one consumer with a filter and `Queue` for each |
//!
//! # How long claims have to be kept
//!
//! For longer than the stream's `max_age`, which is what the worker checks: after a power failure, or where a consumer was
//! deleted or recreated, the stream delivers again whatever it still has. A stream without `max_age` can do so without
//! limit. With the retentions interest and work queue an acked message is gone from the stream, but the ack can be lost
//! with the server's power, so that `max_age` counts there, too. The clock is the server's, so that what is older than
//! the claims is known as such.
//!
//! # Limits
//!
//! * NATS passes on headers and subjects that are not UTF-8, and async-nats ends the connection at such a message. After the
//!   second loss within a minute, or within two ack waits, such messages are sought among the unsettled ones and become dead
//!   letters (`unrepresentable`, with the raw headers in `idem-nats-headers`). That needs `$JS.API.STREAM.MSG.GET.ORDERS`, and
//!   is not done in another domain; then the message has to be taken out of the stream by hand, and the error says so.
//! * A server of 2.9 may deliver a message again without counting it, when the process that had it was killed: it is then
//!   not marked as redelivered.
//! * A payload is as large as the server's `max_payload` allows, 1 MiB by default.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acker;
mod address;
mod config;
mod connection;
mod consumer;
mod credentials;
mod delivery;
mod difference;
mod error;
mod keeper;
mod lag;
mod lease;
mod name;
mod options;
mod pull;
mod server;
mod settings;
mod source;
mod stream;
mod subscription;
mod tls;
mod unreadable;

pub use acker::NatsAcker;
pub use credentials::Credentials;
pub use options::Options;
pub use server::Nats;
pub use settings::Start;
pub use stream::Stream;
