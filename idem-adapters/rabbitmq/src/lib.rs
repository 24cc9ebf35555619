//! RabbitMQ as a source and a sink for idem.
//!
//! ```no_run
//! # use idem_rabbitmq::RabbitMq;
//! # async fn example() -> Result<(), idem_core::Error> {
//! let orders = RabbitMq::connect("amqp://user:password@localhost/%2f").await?.queue("orders").await?;
//! # let _ = orders;
//! # Ok(())
//! # }
//! ```
//!
//! [`RabbitMq::connect`] checks that the server answers and accepts the login. [`RabbitMq::queue`] checks that the
//! queue exists and is a quorum queue. The worker then subscribes, and resubscribes whenever the connection, the
//! channel or the consumer ends.
//!
//! # Mapping of deliveries
//!
//! | AMQP | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | body | payload, byte for byte |
//! | property `message-id` | message id |
//! | property `type` | event type |
//! | routing key | subject; for a message published to the default exchange, this is the queue's name |
//! | properties `content-type`, `correlation-id`, `reply-to` | the same |
//! | property `timestamp` | time of production, by the producer's clock |
//! | exchange; properties `app-id`, `cluster-id`, `content-encoding`, `delivery-mode`, `expiration`, `priority`, `user-id` | [`properties`](idem_core::Delivery::properties), with `_` for `-` |
//! | property `headers` | headers, sorted by name: see below |
//! | flag `redelivered` | redelivered |
//!
//! A string or byte array header keeps its bytes. A number, a boolean and a timestamp (in seconds) become their text, a
//! decimal becomes its digits, a void becomes `null`, and an array or a table becomes JSON. A void, a boolean, an array or
//! a table is no key. The header
//! `x-delivery-count`, which a quorum queue sets, is also the delivery count. It does not count attempts: it also rises
//! for messages that were only prefetched. With a count of 10 or more, the log warns of it, once a
//! minute.
//!
//! # Server requirements
//!
//! * A quorum queue. Streams are refused. Classic queues are refused unless opened with [`RabbitMq::classic_queue`].
//! * No delivery limit. Since RabbitMQ 4.0, a quorum queue drops a message at its 21st return, or dead-letters it if
//!   the queue has a dead-letter exchange, unless the limit is set to -1. idem never returns a message because of a
//!   failure, but a lost connection, a restart and a consumer timeout each return everything that was prefetched. So
//!   [`RabbitMq::declare`] sets `x-delivery-limit` to -1 on 4.0 and later. An existing queue with a limit of 0 or more
//!   is refused on every version. A queue without a limit is refused on 4.0 and later, unless
//!   [`Options::delivery_limit_by_policy`] states that a policy lifts the default:
//!   `rabbitmqctl set_policy no-limit '^orders$' '{"delivery-limit": 1000000000}' --apply-to quorum_queues`.
//!   A large number, because -1 in a policy has no effect on some versions (rabbitmq-server pull request 14458). No
//!   policy lifts the limit of an argument, but one of 0 or more ends that of -1: idem cannot see policies. A server older than 4.0 has no limit unless one is set; there, -1 drops a
//!   message at its first return, so it is refused too.
//! * No `x-expires`, no `x-message-ttl`, and no `x-max-length` (or `x-max-length-bytes`) without
//!   `x-overflow=reject-publish`: the queue would delete messages that were never processed. It is refused, unless
//!   [`Existing::may_delete_unprocessed`] accepts that. idem cannot see the same limits of a policy (`expires`, `message-ttl`,
//!   `max-length`), nor a message's own `expiration` before it is delivered: use none of them.
//! * A consumer timeout well above the handler timeout: see [`Options::consumer_timeout`].
//! * The permission `read` on the queue, and `configure` to check the queue's type. Without `configure`, see
//!   [`RabbitMq::queue_unverified`].
//!
//! # Several queues, several hosts
//!
//! [`Queue::and`] joins queues for one worker on one connection. Each queue has its own prefetch, and the queues take
//! turns. [`RabbitMq::declare`] takes arguments and bindings; the bindings are made again at each subscribe.
//! [`Options::hosts`] adds nodes of the cluster; each connection attempt tries every node.
//!
//! # Logins
//!
//! A connection logs in with the user and password of the URL; with [`Options::credentials`], a callback that is called
//! for each connection, for tokens that expire; or with [`Options::tls_identity`] (SASL EXTERNAL). All connections log
//! in the same way: the subscription's, the short one that reads the server's version, and the one that removes a
//! message that lapin cannot parse.
//!
//! # Order
//!
//! [`DeliveryOrder::Queue`](idem_core::DeliveryOrder::Queue) requires a queue with a single active consumer, declared
//! with `x-single-active-consumer=true`. A worker refuses to start with any other queue. While a failed message waits
//! for its next attempt, no later message is handled, and everything prefetched stays unsettled. If that exceeds the
//! server's consumer timeout, the server takes the messages back and redelivers them. The order and the attempts are
//! kept anyway, because they are stored in the database.
//!
//! # Replay window
//!
//! RabbitMQ messages carry no broker timestamp (`timestamp` is the producer's), and RabbitMQ cannot report how long a
//! message may wait. So idem never refuses a message as too old, and claims must be kept for longer than messages can
//! wait. Set that time with [`Options::replay_window`]; a worker whose store keeps claims for less does not start.
//!
//! # Limits
//!
//! AMQP short strings (most properties, and the names of headers, exchanges and routing keys) should be UTF-8. RabbitMQ
//! forwards other bytes, but lapin closes the connection at such a message and returns everything that was prefetched.
//! Before lapin consumes again, a connection without it reads as many messages, keeps such ones, and returns the others
//! once more; with an order, it returns them to their places, after the dead letters. The message becomes a dead letter with the reason
//! [`Unrepresentable`](idem_core::Reason::Unrepresentable). It keeps its payload, its exchange and routing key as text, and
//! the whole property list as bytes in the header `idem-amqp-properties`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acker;
mod acks;
mod address;
mod config;
mod connection;
mod credentials;
mod declare;
mod delivery;
mod error;
mod lag;
mod limits;
mod member;
mod message;
mod options;
mod queue_type;
mod raw;
mod refusal;
mod request;
mod server;
mod sink;
mod source;
mod tls;
mod unreadable;

pub use acker::RabbitMqAcker;
pub use credentials::Credentials;
pub use declare::{Declare, Existing};
pub use options::Options;
pub use request::Argument;
pub use server::RabbitMq;
pub use sink::Exchange;
pub use source::Queue;
