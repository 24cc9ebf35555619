//! Options of a worker: which messages it takes, in which order, and its observer.

use std::sync::Arc;

use crate::routes::RouteBy;
use crate::runtime::SuspectLock;
use crate::{DeliveryOrder, Observed, Source, Store, Worker};

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
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
    pub fn order(mut self, order: DeliveryOrder) -> Self {
        self.parts.settings.order = order;
        self
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
    pub fn backlog(mut self, messages: u64) -> Self {
        self.parts.settings.backlog = Some(messages);
        self
    }

    /// Sets how long no relay may be alive until the worker is unready; a minute by default. For tests.
    #[doc(hidden)]
    pub fn relay_patience(mut self, patience: std::time::Duration) -> Self {
        self.parts.settings.relay_patience = patience;
        self
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
    pub fn event_type(mut self, header: impl Into<String>) -> Self {
        self.parts.settings.route_by = RouteBy::Header(header.into());
        self
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
    pub fn route_by_subject(mut self) -> Self {
        self.parts.settings.route_by = RouteBy::Subject;
        self
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
    pub fn cloud_events(mut self) -> Self {
        self.parts.settings.cloud_events = true;
        self
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
    pub fn fan_out(mut self) -> Self {
        self.parts.settings.fan_out = true;
        self
    }

    /// Starts without a check for inbox rows of handlers that this worker does not have. The rows stay in the inbox.
    ///
    /// Without this option, the worker warns of such rows when it starts if a worker of this consumer had their handler
    /// within a day ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)), and refuses to start if none had. Both messages
    /// name each remedy. If rows become unregistered while the worker runs, it warns within an hour.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// // The dead letters of a handler that was removed are kept until somebody has looked at them.
    /// let worker = Worker::new("billing", store, orders).allow_unregistered_rows();
    /// # }
    /// ```
    pub fn allow_unregistered_rows(mut self) -> Self {
        self.parts.settings.allow_unregistered_rows = true;
        self
    }

    /// Pauses consumption if `limit` of the last `of` deliveries became dead letters because no handler could be called
    /// for them (`no key`, `unknown type`, `undecodable`), and none of the others was processed or stored; 50 of 100 by
    /// default. A wrong header name or codec makes a dead letter of every message, and would otherwise move the whole
    /// queue into the inbox.
    ///
    /// While consumption is paused, [`Health`](crate::Health) is not ready and returns the reason; the worker takes no
    /// deliveries, and holds unfit ones unsettled. After a while it gives them back, if the source has an
    /// [`unsettled_limit`](Source::unsettled_limit). It resumes after [`Health::resume`](crate::Health::resume) or a
    /// restart. One bad producer among good ones never pauses it, because messages of the others are processed. A limit
    /// of 0 or above `of` is an error when the worker starts.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// // A small queue, on which ten bad messages in a row are no accident.
    /// let worker = Worker::new("billing", store, orders).unfit_limit(10, 10);
    /// # }
    /// ```
    pub fn unfit_limit(mut self, limit: usize, of: usize) -> Self {
        self.parts.settings.unfit_limit = Some((limit, of));
        self
    }

    /// Disables the unfit limit: each delivery for which no handler can be called becomes a dead letter, however many
    /// there are.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker};
    /// # fn add<S: Store>(store: S, events: impl Source) {
    /// // Most messages of this queue are of types that no handler takes, and are kept as dead letters.
    /// let worker = Worker::new("audit", store, events).no_unfit_limit();
    /// # }
    /// ```
    pub fn no_unfit_limit(mut self) -> Self {
        self.parts.settings.unfit_limit = None;
        self
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
    pub fn observe(mut self, observer: impl Fn(Observed<'_>) + Send + Sync + 'static) -> Self {
        self.parts.settings.observe = Some(Arc::new(observer));
        self
    }

    /// Acts as a separate process: see [`SuspectLock`].
    #[doc(hidden)]
    pub fn suspect_lock(mut self, suspect_lock: SuspectLock) -> Self {
        self.parts.suspect_lock = suspect_lock;
        self
    }
}
