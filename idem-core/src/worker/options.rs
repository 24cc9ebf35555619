//! Options of a worker: which messages it takes, in which order, how much it does at once, and how long it waits.

use std::sync::Arc;
use std::time::Duration;

use crate::routes::RouteBy;
use crate::runtime::{IsolationLock, Settings};
use crate::{DeliveryOrder, Engine, Observed, RetryPolicy, Source, Worker};

impl<S: Engine, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    fn set(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.parts.settings);
        self
    }

    /// Sets the order in which deliveries are handled. The default is [`DeliveryOrder::None`]: each delivery is handled
    /// as soon as there is capacity.
    ///
    /// Among deliveries with the same ordering key, each one starts when the previous one is processed or dead. A
    /// failing message is retried by the [`retry`](Self::retry) policy like any other. Meanwhile the later deliveries
    /// of its ordering key wait, unacked, and count towards the [`prefetch`](Self::prefetch). A
    /// conflict or an undecodable message is dead at once. A replayed message runs out of order.
    ///
    /// An order that the broker cannot keep is an error when the worker starts.
    ///
    /// ```
    /// # use idem_core::{DeliveryOrder, Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// // All messages of the queue, one after another.
    /// let worker = Worker::new("billing", store, orders).order(DeliveryOrder::Queue);
    /// # }
    /// ```
    pub fn order(self, order: DeliveryOrder) -> Self {
        self.set(|settings| settings.order = order)
    }

    /// Sets the version of your program, by which `idem status` and `idem doctor` tell its instances apart, during a deployment for
    /// example. The default is the version of idem. Control characters are escaped, and no message depends on it.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// let worker = Worker::new("billing", store, orders).version(env!("CARGO_PKG_VERSION"));
    /// # }
    /// ```
    pub fn version(self, version: impl Into<String>) -> Self {
        self.set(|settings| settings.version = version.into())
    }

    /// Limits how many messages may wait in the outbox to be published. While there are more, a worker whose handlers
    /// stage takes nothing from its source and no ordinary row from its inbox, and is not ready, instead of filling the
    /// disk while no relay or no broker works. Nothing fails because of it. They are counted every five seconds, or less
    /// often if counting takes long, so the limit can be exceeded by what is staged meanwhile. If they cannot be counted
    /// within 30 seconds three times in a row, the worker goes on, and the log says so. What an application stages in its
    /// own transactions counts, and is not limited. By default there is no limit.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// let worker = Worker::new("billing", store, orders).backlog(1_000_000);
    /// # }
    /// ```
    pub fn backlog(self, messages: u64) -> Self {
        self.set(|settings| settings.backlog = Some(messages))
    }

    /// Sets how long no relay may be alive until the worker is unready; a minute by default. For tests.
    #[doc(hidden)]
    pub fn relay_patience(self, patience: Duration) -> Self {
        self.set(|settings| settings.relay_patience = patience)
    }

    /// Sets the header that contains the event type, if it is not the broker's own property (AMQP `type`). A delivery
    /// without the header goes to the handler that names no event; without such a handler, it becomes a dead letter
    /// (`unknown type`).
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// // Kafka has no property for it; the producers write `event-type: order.paid`.
    /// let worker = Worker::new("billing", store, orders).event_type("event-type");
    /// # }
    /// ```
    pub fn event_type(self, header: impl Into<String>) -> Self {
        self.set(|settings| settings.route_by = RouteBy::Header(header.into()))
    }

    /// Routes by subject instead of by event type: the NATS subject or the AMQP routing key. The `event` of a handler
    /// is then a NATS-style pattern: `*` stands for one token between dots, and `>` at the end for one or more, so that
    /// `event = "orders.*.paid"` matches `orders.42.paid`.
    ///
    /// Two patterns that can match the same subject are an error when the worker starts, and so is a source without
    /// subjects. A handler without an `event` takes the subjects that no pattern matches; without such a handler, those
    /// messages become dead letters (`unknown type`). If this and [`event_type`](Self::event_type) are both called, the
    /// last call applies.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker, HasConnection, Handler};
    /// # fn add<S: Store + HasConnection<Paid::Connection> + HasConnection<Shipped::Connection>,
    /// #     Paid: Handler<Params = (), Message: serde::de::DeserializeOwned>,
    /// #     Shipped: Handler<Params = (), Message: serde::de::DeserializeOwned>>(store: S, orders: impl Source) {
    /// // With `event = "orders.*.paid"` and `event = "orders.*.shipped"`.
    /// Worker::new("billing", store, orders).route_by_subject().handler::<Paid>().handler::<Shipped>();
    /// # }
    /// ```
    pub fn route_by_subject(self) -> Self {
        self.set(|settings| settings.route_by = RouteBy::Subject)
    }

    /// Parses deliveries that are marked as CloudEvents (version 1.0). The event type is that of the event, the decoded
    /// payload is its data, a handler can have `key = cloud_event_id`, and [`CloudEvent`](crate::CloudEvent) is an
    /// extractor. Off by default.
    ///
    /// The attributes are either headers (`ce-`, `ce_`, `cloudEvents:` or `cloudEvents_` followed by the name, on every
    /// broker), or members of one JSON object with the data, if the content type is `application/cloudevents+json`. A
    /// delivery is marked as an event by that content type or by one of the headers `specversion`, `id`, `source` and
    /// `type`. A marked delivery that is not a valid event becomes a dead letter (`undecodable`) with the reason; so
    /// does a batch of events. Unmarked deliveries are handled as usual.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker, HasConnection, Handler};
    /// # fn add<S: Store + HasConnection<Paid::Connection>,
    /// #     Paid: Handler<Params = (), Message: serde::de::DeserializeOwned>>(store: S, orders: impl Source) {
    /// // With `key = cloud_event_id, event = "com.example.order.paid"`.
    /// Worker::new("billing", store, orders).cloud_events().handler::<Paid>();
    /// # }
    /// ```
    pub fn cloud_events(self) -> Self {
        self.set(|settings| settings.cloud_events = true)
    }

    /// Lets several handlers take one message: all that name its event type or subject pattern, or else all that name
    /// none. Each of them has its own claim, attempts and dead letter. Without this option, two handlers for one event
    /// are an error when the worker starts.
    ///
    /// A message that several handlers take is stored in the inbox for all of them, in one transaction, and then acked.
    /// From there each handler runs, is retried and becomes a dead letter independently. (With [`batch`](Self::batch),
    /// those of one message may share a transaction, so that one that fails makes the others run once more.) If the
    /// message cannot be decoded for one of them, or has no key for it, that is a dead letter of this handler, and the
    /// others run. The cost for such a message is that of [`inbox`](Self::inbox): one more transaction for the
    /// delivery, and a row written and deleted for each handler. A message that one handler takes runs as without this
    /// option.
    ///
    /// A handler that is added later gets the messages that are delivered from then on. Those that were acked before
    /// are not run for it, nor those that an older version of the service takes during a deployment.
    ///
    /// The observer and the metrics have one outcome for each handler. Combining it with an order is an error when the
    /// worker starts.
    ///
    /// ```no_run
    /// # use idem_core::{Worker, Store, Source, Handler, HasConnection};
    /// # fn add<S: Store + HasConnection<Bill::Connection> + HasConnection<Mail::Connection>, Bill: Handler<Params = (), Message: serde::de::DeserializeOwned>, Mail: Handler<Params = (), Message: serde::de::DeserializeOwned>>(store: S, orders: impl Source) {
    /// // Both have `event = "order.paid"`.
    /// Worker::new("billing", store, orders).handler::<Bill>().handler::<Mail>().fan_out();
    /// # }
    /// ```
    pub fn fan_out(self) -> Self {
        self.set(|settings| settings.fan_out = true)
    }

    /// The kill switch: pauses consumption if `limit` of the last `of` deliveries became dead letters because no
    /// handler could be called for them (`no key`, `unknown type`, `undecodable`), and none of the others was processed
    /// or stored; 50 of 100 by default. A wrong header name or codec makes a dead letter of every message, and would
    /// otherwise move the whole queue into the inbox.
    ///
    /// While consumption is paused, [`Health`](crate::Health) is not ready and returns the reason; the worker receives
    /// no deliveries, and keeps undeliverable ones unsettled. After a while it releases them, if the source has an
    /// [`unsettled_limit`](Source::unsettled_limit). It resumes after [`Health::resume`](crate::Health::resume) or a
    /// restart. One bad producer among good ones never pauses it, because messages of the others are processed. A limit
    /// of 0 or above `of`, or an `of` above 10,000, is an error when the worker starts. If most messages of a queue are
    /// of types that nobody needs, add a handler that names no event, and does nothing.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// // A small queue, on which ten bad messages in a row are no accident.
    /// let worker = Worker::new("billing", store, orders).undeliverable_limit(10, 10);
    /// # }
    /// ```
    pub fn undeliverable_limit(self, limit: usize, of: usize) -> Self {
        self.set(|settings| settings.undeliverable_limit = (limit, of))
    }

    /// Calls this function with each delivery, or run from the inbox, and its outcome, after the delivery was settled: if several
    /// handlers take it, once for each of them. For a message scheduled with an ordering key, it is called before. It must return
    /// quickly. A panic in it is a warning in the log.
    ///
    /// ```
    /// # use idem_core::{Outcome, Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// let worker = Worker::new("billing", store, orders).observe(|observed| {
    ///     if let Outcome::Dead { reason, .. } = observed.outcome {
    ///         let (queue, key) = (observed.delivery.source(), observed.key.map(ToString::to_string));
    ///         tracing::error!(queue, handler = observed.handler, key, %reason, "page the one on call");
    ///     }
    /// });
    /// # }
    /// ```
    pub fn observe(self, observer: impl Fn(Observed<'_>) + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.observe = Some(Arc::new(observer)))
    }

    /// Acts as a separate process: see [`IsolationLock`].
    #[doc(hidden)]
    pub fn isolation_lock(self, isolation_lock: IsolationLock) -> Self {
        self.set(|settings| settings.isolation_lock = isolation_lock)
    }

    /// Sets how many deliveries are processed at once, each on its own connection, from 1 to 65535; 16 by default. The
    /// [`prefetch`](Self::prefetch) follows from it. With [`inbox`](Self::inbox) it is only the prefetch.
    pub fn concurrency(self, deliveries: usize) -> Self {
        self.set(|settings| settings.concurrency = deliveries)
    }

    /// Sets how many deliveries may be unsettled at once, of each queue of the source: those that are processed, and those
    /// that wait here until they can be. The default is [`concurrency`](Self::concurrency) and a quarter of it, rounded
    /// up, so that the next delivery is at hand when one ends. With [`batch`](Self::batch) it is twice as many as are
    /// processed, and with an order by partition or key 16 times as many. With the order of a queue and with
    /// [`inbox`](Self::inbox) none waits.
    ///
    /// A delivery that waits here is not given to another worker that is idle, and its payload is in memory. If
    /// handlers are slow, set this to the concurrency: each then waits for the broker in between, which costs little
    /// compared to the handler. Fewer than are processed at once, or more than 65535, are an error when the worker
    /// starts.
    ///
    /// With an order by partition or key, deliveries behind a slow or failing one of their ordering key are unsettled too.
    /// When there are as many of them as this, no other key goes on, so set it to several times the concurrency.
    ///
    /// Where the broker has a limit for all workers together (`max_ack_pending` of a NATS consumer), no single message waits
    /// here by default, and a value that is set here must fit into that limit.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, reports: impl Source) {
    /// // A report takes a minute. None waits here while another worker is idle.
    /// let worker = Worker::new("reports", store, reports).concurrency(4).prefetch(4);
    /// # }
    /// ```
    pub fn prefetch(self, deliveries: usize) -> Self {
        self.set(|settings| settings.prefetch = Some(deliveries))
    }

    /// Takes deliveries in batches of at most this size; 1 by default, which disables batches. Deliveries that are
    /// available are processed together, in one transaction with one commit, and each is settled by its own outcome.
    /// [`concurrency`](Self::concurrency) is then the number of batches at once. The [`prefetch`](Self::prefetch) is
    /// twice what these batches hold, so that the next batch is available when one ends.
    ///
    /// A message that fails rolls back its batch. The other messages run again without it. It is then run alone, and
    /// only that run counts as an attempt. A handler therefore runs more often than without batches, and so do its
    /// effects outside the transaction. If batches deadlock because their handlers write the same rows in different
    /// orders, they become smaller and run one at a time until no deadlock has occurred for a while.
    ///
    /// A handler must not end the transaction. In a batch the database rejects its COMMIT, and after its ROLLBACK
    /// nothing can be written. Its message becomes a dead letter. The others run again without it, some of them several
    /// times in vain.
    ///
    /// The handlers of a batch share one session. PostgreSQL: if a handler changes the role, search path, row security,
    /// replication role, time zone or date style, the batch is split, so that no other handler runs under the change.
    /// Any other `SET LOCAL` lasts until the end of the batch, unless the store is configured to reset the session
    /// between messages, which costs one round trip per message. A batch with an order is an error at the start.
    ///
    /// ```
    /// # use std::time::Duration; use idem_core::*; fn add<S: Store>(store: S, readings: impl Source) {
    /// // Four batches at a time, of up to 100, each with one commit.
    /// let worker = Worker::new("meters", store, readings).batch(100).concurrency(4).linger(Duration::from_millis(20));
    /// # }
    /// ```
    pub fn batch(self, deliveries: usize) -> Self {
        self.set(|settings| settings.batch = deliveries)
    }

    /// Sets how long a batch that is not full waits for more deliveries; zero by default. At low load, each message
    /// takes that much longer.
    pub fn linger(self, wait: Duration) -> Self {
        self.set(|settings| settings.linger = wait)
    }

    /// Sets how many rows of the inbox run at once, besides the deliveries, each on its own connection; 4 by default.
    /// With [`inbox`](Self::inbox) all messages run from the inbox, and the default is that of
    /// [`concurrency`](Self::concurrency).
    pub fn inbox_concurrency(self, rows: usize) -> Self {
        self.set(|settings| settings.inbox_concurrency = Some(rows))
    }

    /// Sets how many [external calls](crate::External) are made at once; 16 by default. A call holds no connection, so this
    /// only bounds how much a provider gets at once from this worker. Zero is an error.
    ///
    /// All handlers share these calls. While one provider gives no answer, its calls occupy them until their timeouts,
    /// and those to other providers wait: give each provider a separate worker.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, orders: impl Source) {
    /// // The provider allows 100 requests per second, and answers each within 200 ms.
    /// let worker = Worker::new("billing", store, orders).call_concurrency(20);
    /// # }
    /// ```
    pub fn call_concurrency(self, calls: usize) -> Self {
        self.set(|settings| settings.call_concurrency = calls)
    }

    /// Stores each message in the inbox, acks it, and then runs it from there, with the same handlers, tables and
    /// guarantee. Off by default: a message runs when it is delivered, and is acked when it is processed.
    ///
    /// Use it if a handler takes longer than the broker waits for an ack, or if slow handlers must not fill up the
    /// broker. Each delivery is settled within milliseconds, whatever its outcome, and the backlog is in the database.
    /// `concurrency` is then only the prefetch. Deliveries that are available are stored together, up to 100 messages
    /// per commit.
    ///
    /// The cost is one row written and deleted per message, one commit per batch stored and one per batch fetched, and
    /// therefore a few milliseconds from the delivery to the handler (the histogram `idem_inbox_wait_seconds`).
    /// Messages run in no particular order. A worker on another machine finds rows stored here only when it polls
    /// ([`poll_interval`](Self::poll_interval)).
    ///
    /// Combining it with an order is an error when the worker starts.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, invoices: impl Source) {
    /// // Each invoice takes minutes: eight of them run at once, and the queue does not wait for them.
    /// let worker = Worker::new("invoices", store, invoices).inbox().inbox_concurrency(8);
    /// # }
    /// ```
    pub fn inbox(self) -> Self {
        self.set(|settings| settings.inbox = true)
    }

    /// Sets how long a handler may run; 30 seconds by default. A handler that runs longer is dropped, which rolls back,
    /// and counts as failed. The timeout does not cover COMMIT. A handler may have its own,
    /// [`HandlerOptions::timeout`](crate::HandlerOptions::timeout).
    pub fn handler_timeout(self, handler_timeout: Duration) -> Self {
        self.set(|settings| settings.handler_timeout = handler_timeout)
    }

    /// Sets how long a codec may take to [prepare](crate::Codec::prepare) for a message; 10 seconds by default. A
    /// preparation that takes longer is dropped and tried again, with increasing delays of up to one minute. A timeout
    /// counts as unavailable and never makes the message a dead letter. JSON needs no preparation.
    pub fn prepare_timeout(self, limit: Duration) -> Self {
        self.set(|settings| settings.prepare_timeout = limit)
    }

    /// Sets when and how often a message whose handler failed runs again; 5 attempts by default, and with a
    /// [key-value store](crate::key_value) 3 within half a minute, since the delivery waits unacked meanwhile. A handler
    /// may have its own policy, [`HandlerOptions::retry`](crate::HandlerOptions::retry).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.set(|settings| settings.retry = Some(policy))
    }

    /// Sets the maximum payload size in bytes; 1 MiB by default. A larger payload is never decoded; it is kept whole as
    /// a dead letter.
    pub fn max_payload(self, bytes: usize) -> Self {
        self.set(|settings| settings.max_payload = bytes)
    }

    /// Sets how long a row fetched from the inbox stays leased to this worker before it runs; 10 seconds by default.
    /// While it runs, the row is locked. After a crash, the row waits until the lease expires. Zero is an error.
    pub fn lease_duration(self, lease: Duration) -> Self {
        self.set(|settings| settings.lease = lease)
    }

    /// Sets how often the worker polls the inbox; every second by default. Rows that this worker itself schedules wake
    /// it earlier. Zero is an error.
    pub fn poll_interval(self, every: Duration) -> Self {
        self.set(|settings| settings.poll = every)
    }

    /// Sets how long a shutdown waits for running handlers; 30 seconds by default. After that, handlers are dropped,
    /// which rolls back, and their deliveries are released.
    pub fn shutdown_timeout(self, patience: Duration) -> Self {
        self.set(|settings| settings.shutdown_timeout = patience)
    }
}
