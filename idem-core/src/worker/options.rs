//! Options of a worker that concern which messages it takes, in which order, and who is told of them.

use std::sync::Arc;

use crate::registry::RouteBy;
use crate::runtime::SuspectLock;
use crate::{Delivery, DeliveryOrder, Outcome, Source, Store, Worker};

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// In which order deliveries are handled; [`DeliveryOrder::None`] by default, in which each is handled as soon as there is
    /// room.
    ///
    /// In an ordered lane, a delivery begins when the one before it is processed or dead. A failing message is retried by the
    /// [`retry`](Self::retry) policy as any other, and its lane waits for it, unacked; deliveries that wait take their part
    /// of [`concurrency`](Self::concurrency). A conflict and whatever cannot be decoded is dead at once. A message that is
    /// replayed runs out of order.
    ///
    /// An order that the broker cannot keep is refused when the worker starts.
    pub fn order(mut self, order: DeliveryOrder) -> Self {
        self.settings.order = order;
        self
    }

    /// The header that tells the type of event, where it is not the broker's own property (AMQP `type`).
    pub fn event_type(mut self, header: impl Into<String>) -> Self {
        self.settings.route_by = RouteBy::Header(header.into());
        self
    }

    /// The subject chooses the handler, in place of the type of event: the subject of NATS, the routing key of AMQP. The
    /// `event` of a handler is a pattern then, as NATS writes it: `*` stands for one token between dots, and `>` at the end
    /// for one or more, so that `event = "orders.*.paid"` takes `orders.42.paid`.
    ///
    /// Two patterns that one subject could match are refused as the worker starts, as is a source without subjects. A
    /// handler without an `event` takes what no pattern matches; without such a handler, that is a dead letter (`unknown
    /// type`). Of this and [`event_type`](Self::event_type) the last one counts.
    pub fn route_by_subject(mut self) -> Self {
        self.settings.route_by = RouteBy::Subject;
        self
    }

    /// Reads deliveries that say that they are CloudEvents (version 1.0) as such: the type of event is that of the event,
    /// the payload that is decoded is its data, a handler can have `key = cloud_event_id`, and
    /// [`CloudEvent`](crate::CloudEvent) is an extractor. Off by default.
    ///
    /// The attributes are headers (`ce-`, `ce_`, `cloudEvents:` or `cloudEvents_` and the name, on every broker), or they are
    /// in one JSON object with the data, which the content type `application/cloudevents+json` says. What says that it is
    /// an event, by that or by one of the headers `specversion`, `id`, `source` and `type`, and is none is a dead letter
    /// (`undecodable`) that says why; so is a batch of events. What does not say so is taken as ever.
    pub fn cloud_events(mut self) -> Self {
        self.settings.cloud_events = true;
        self
    }

    /// Starts without a word about inbox rows of handlers that this worker does not have. They stay where they are.
    ///
    /// Without it a worker warns of them as it starts, where a worker of this consumer had their handler within a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)), and refuses to start where none had. Both name each cure. Rows that
    /// become so while it runs are warned of within an hour.
    pub fn allow_unregistered_rows(mut self) -> Self {
        self.settings.allow_unregistered_rows = true;
        self
    }

    /// Pauses consumption where `limit` of the last `of` deliveries became dead letters because no handler could be called
    /// for them (`no key`, `unknown type`, `undecodable`), and none of the others was processed or stored; 50 of 100 by
    /// default. A wrong header name or codec makes a dead letter of every message, and would empty the queue into the inbox.
    ///
    /// While it is paused, [`Health`](crate::Health) is not ready and says why; no delivery is taken, and unfit ones at hand are held
    /// unsettled. [`Health::resume`](crate::Health::resume) or a restart goes on. One bad producer among good ones never pauses it, since what is
    /// processed counts for the queue.
    pub fn unfit_limit(mut self, limit: usize, of: usize) -> Self {
        self.settings.unfit_limit = Some((limit, of));
        self
    }

    /// Makes a dead letter of each delivery for which no handler can be called, however many there are.
    pub fn no_unfit_limit(mut self) -> Self {
        self.settings.unfit_limit = None;
        self
    }

    /// Calls this with each delivery, or run from the inbox, and its outcome, after it was settled; what is scheduled in
    /// an ordered lane, before. It must be quick.
    pub fn observe(mut self, observer: impl Fn(&Delivery, &Outcome) + Send + Sync + 'static) -> Self {
        self.settings.observe = Some(Arc::new(observer));
        self
    }

    /// Plays a process of its own: see [`Gate`].
    #[doc(hidden)]
    pub fn suspect_lock(mut self, gate: SuspectLock) -> Self {
        self.gate = gate;
        self
    }
}
