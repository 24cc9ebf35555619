//! RabbitMQ as a source of idem.
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
//! [`RabbitMq::connect`] checks that the server answers and that the login works; [`RabbitMq::queue`] checks that the
//! queue is there and is a quorum queue. The worker does the rest: it subscribes, and subscribes again whenever the
//! connection, the channel or the consumer has ended.
//!
//! # What a delivery becomes
//!
//! | AMQP | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | body | payload, byte for byte |
//! | property `message-id` | message id |
//! | property `type` | event type |
//! | routing key | subject; of a message that was published to the default exchange, the queue's name |
//! | properties `content-type`, `correlation-id`, `reply-to` | the same |
//! | property `timestamp` | when it was produced: it is the producer's clock |
//! | exchange; properties `app-id`, `cluster-id`, `content-encoding`, `delivery-mode`, `expiration`, `priority`, `user-id` | [`properties`](idem_core::Delivery::properties), with `_` for `-` |
//! | property `headers` | headers, sorted by name: see below |
//! | flag `redelivered` | redelivered |
//!
//! A header of type string or bytes keeps its bytes. A number, a boolean and a timestamp (in seconds) become their
//! text, a decimal its digits, a void `null`, an array and a table their JSON. The header `x-delivery-count`, which a
//! quorum queue sets, is the delivery count as well. It is no attempt: it also rises for messages that were only prefetched.
//! From 5 on a message is stored before all else, and from 10 on an error in the log names it.
//!
//! # What the server has to promise
//!
//! * A quorum queue. Streams are refused, and so are classic queues, but for those that [`RabbitMq::classic_queue`] names.
//! * No delivery limit. From RabbitMQ 4.0 on, a quorum queue drops a message at its 21st return, or dead-letters it where
//!   it has a dead-letter exchange, unless a limit of -1 is set. idem never returns a message because of a failure, but lost
//!   connections, restarts and consumer timeouts are returns too, of all that was prefetched. So [`RabbitMq::declare`] sets
//!   `x-delivery-limit` to -1 there; an existing queue with a limit of 0 or more is refused on every version, and one without
//!   any from 4.0 on, unless [`Options::delivery_limit_by_policy`] says that a policy lifts it:
//!   `rabbitmqctl set_policy no-limit '^orders$' '{"delivery-limit": -1}' --apply-to quorum_queues`
//!   The argument of a queue goes before a policy. On a server older than 4.0 there is no limit unless one was set, and -1
//!   there drops a message at its first return, so it is refused as well.
//! * A consumer timeout well above the handler timeout: see [`Options::consumer_timeout`].
//! * The user needs `read` on the queue, and `configure` for the check of the queue's type; without it see
//!   [`RabbitMq::queue_unverified`].
//!
//! # Several queues, several hosts
//!
//! [`Queue::and`] joins queues for one worker, by one connection: each with a prefetch of its own, and in turns. [`RabbitMq::declare`]
//! takes arguments and bindings, which are declared again whenever the worker subscribes. [`Options::hosts`] names further
//! nodes of the cluster, of which each connection tries each.
//!
//! # Logins
//!
//! By user and password in the URL; by [`Options::credentials`], which are asked for at each connection, for tokens that
//! expire; or by [`Options::tls_identity`] (SASL EXTERNAL). Every connection logs in the same way: that of the
//! subscription, the short one that asks for the server's version, and the one that takes out a message that lapin cannot read.
//!
//! # Order
//!
//! [`DeliveryOrder::Queue`](idem_core::DeliveryOrder::Queue) needs a queue with one consumer at a time, declared with
//! `x-single-active-consumer=true`; any other is refused when the worker starts. While a failing message waits for its next
//! attempt, nothing behind it is handled, and all that was prefetched stays unsettled. Where that takes longer than the
//! server's consumer timeout, the server takes it back and delivers it again; the order and the attempts are kept all the
//! same, since they are in the database.
//!
//! # How far back a message can come again
//!
//! RabbitMQ has no clock of its own in its messages (`timestamp` is the producer's), and cannot tell for how long a message
//! may wait. So no message is ever refused as too old, and claims have to be kept for longer than messages wait: say how
//! long that is by [`Options::replay_window`], and a worker whose store keeps claims for less does not start.
//!
//! # Limits
//!
//! AMQP's short strings (most properties, the names of headers, exchanges, routing keys) are to be UTF-8. RabbitMQ
//! passes others on, but lapin ends the connection at such a message, with all that was prefetched. The source then
//! subscribes by a connection that reads bytes, and takes one message at a time, so that no other message is returned again.
//! The message becomes a dead letter with the reason [`Unrepresentable`](idem_core::Reason::Unrepresentable): with its payload,
//! with what of it is text, and with the whole property list, as bytes, in the header `idem-amqp-properties`. When as many
//! messages have passed as may be unsettled, all is taken by lapin again.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acker;
mod address;
mod argument;
mod attempts;
mod bare;
mod bindings;
mod checks;
mod classic;
mod config;
mod connection;
mod credentials;
mod declare;
mod delivery;
mod error;
mod lag;
mod limit;
mod member;
mod options;
mod properties;
mod queue_type;
mod renewal;
mod request;
mod server;
mod several;
mod single;
mod source;
mod subscription;
mod tls;
mod unreadable;
mod url;
mod wide;

pub use acker::RabbitMqAcker;
pub use argument::Argument;
pub use credentials::Credentials;
pub use declare::{Declare, Existing};
pub use options::Options;
pub use server::RabbitMq;
pub use source::Queue;
