//! The handlers of a worker, and which of them take a delivery.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::external::CallLimits;
use crate::registry::{Registered, Undeliverable};
use crate::store::{FetchFor, HandlerId, Identity, Row, first_provider_key};
use crate::subject;
use crate::telemetry::Meters;
use crate::{Delivery, Engine, Reason, RetryPolicy};

/// A handler with its id and limits.
pub(crate) struct Route<S> {
    pub(crate) id: HandlerId,
    pub(crate) handler: Arc<dyn Registered<S>>,
    pub(crate) meters: Meters,
    /// How long the handler may run.
    pub(crate) timeout: Duration,
    /// When and how often its messages run again.
    pub(crate) retry: RetryPolicy,
    /// Whether a first delivery runs without a claim: its handler says `natural`, and the worker keeps no order. In an order
    /// a message that is delivered again must wait for its inbox row, and those behind it must wait with it.
    pub(crate) is_unclaimed: bool,
    /// Whether it takes local messages only, and no delivery.
    pub(crate) is_local_only: bool,
    /// How long its claims were kept when the worker started; `None`: forever.
    pub(crate) retention: Option<Duration>,
    /// Its external call, if it makes one.
    pub(crate) external: Option<RouteCall>,
    /// Set once the database knows that the handler has processed messages.
    pub(crate) history: OnceCell<()>,
}

/// The external call of a handler.
#[derive(Clone, Copy)]
pub(crate) struct RouteCall {
    pub(crate) limits: CallLimits,
    /// The random value of the handler, of which the first keys of its messages are hashes.
    pub(crate) namespace: Uuid,
}

impl RouteCall {
    /// Returns the first key of the call for a message. `from`: the delivery that brings the message, or that of the handler that
    /// hands it over. Without a position in a stream it is random: nothing tells whether the message comes again, or is another
    /// one with the same key and content, which must have an effect as well.
    pub(crate) fn first_provider_key(&self, message: &Identity, from: &Delivery) -> Uuid {
        let Some(position) = from.position() else { return Uuid::new_v4() };
        first_provider_key(self.namespace, self.limits.name, (from.source(), position), message)
    }
}

/// The part of a delivery that selects its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouteBy {
    /// The event type.
    EventType,
    /// The header with this name.
    Header(String),
    /// The subject, by patterns.
    Subject,
}

/// Selects the handler of a delivery.
pub(crate) struct Routes<S> {
    pub(crate) routes: Vec<Route<S>>,
    /// Stands for "no handler known" in rows that no handler takes.
    pub(crate) nobody: HandlerId,
    pub(crate) nobody_meters: Meters,
    pub(crate) route_by: RouteBy,
    /// Whether several handlers may take one delivery.
    pub(crate) fan_out: bool,
}

impl<S: Engine> Routes<S> {
    /// Returns the handler that names this delivery's event type or subject, or else the one that names none. If there
    /// are several, returns the first.
    pub(crate) fn find(&self, delivery: &Delivery) -> Result<&Route<S>, Undeliverable> {
        // Asked twice for each delivery, and most workers have one handler, which takes all of them.
        if let [only] = &self.routes[..]
            && !only.is_local_only
            && only.handler.facts().event.is_none()
        {
            return Ok(only);
        }
        self.routes_for(delivery).next().ok_or_else(|| self.no_route(delivery))
    }

    /// Returns why a delivery is undeliverable that no handler takes.
    pub(crate) fn no_route(&self, delivery: &Delivery) -> Undeliverable {
        let (what, event) = self.named_by(delivery);
        let event = event.map_or_else(|| format!("no {what}"), |event| format!("the {what} {event:?}"));
        Undeliverable::new(Reason::UnknownType, format!("no handler of this worker takes a delivery with {event}"))
    }

    /// Returns all handlers that name this delivery's event type or subject, or else all that name none.
    pub(crate) fn routes_for(&self, delivery: &Delivery) -> impl Iterator<Item = &Route<S>> {
        let (_, event) = self.named_by(delivery);
        let takes = move |route: &&Route<S>| match (&self.route_by, route.handler.facts().event, event) {
            (RouteBy::Subject, Some(pattern), Some(subject)) => subject::matches(pattern, subject),
            (_, Some(wanted), Some(event)) => wanted == event,
            _ => false,
        };
        let routes = || self.routes.iter().filter(|route| !route.is_local_only);
        let any = routes().any(|route| takes(&route));
        routes().filter(move |route| if any { takes(route) } else { route.handler.facts().event.is_none() })
    }

    /// Returns whether several handlers take this delivery.
    pub(crate) fn are_several(&self, delivery: &Delivery) -> bool {
        self.fan_out && self.routes_for(delivery).nth(1).is_some()
    }

    /// Returns the handlers for which a replayed row without a key goes back through decode and key: the one that the
    /// row belongs to, or all that take it now if that one does not.
    pub(crate) fn routes_for_row<'a>(&'a self, row: &'a Row) -> Vec<&'a Route<S>> {
        let routes: Vec<_> = self.routes_for(&row.delivery).collect();
        match routes.iter().find(|route| route.id == row.identity.handler) {
            Some(route) => vec![*route],
            None => routes,
        }
    }

    /// Returns the part of a delivery that selects its handlers, and what it is.
    fn named_by<'a>(&self, delivery: &'a Delivery) -> (&'static str, Option<&'a str>) {
        match &self.route_by {
            RouteBy::EventType => ("event type", delivery.event_type()),
            RouteBy::Header(name) => ("event type", delivery.headers().get_str(name)),
            RouteBy::Subject => ("subject", delivery.subject()),
        }
    }

    /// Returns the name of the header that should say the event type, if it is there with different values.
    pub(crate) fn ambiguous(&self, delivery: &Delivery) -> Option<&str> {
        let RouteBy::Header(name) = &self.route_by else { return None };
        delivery.headers().differ(name).then_some(name)
    }

    /// How long claims of all these handlers were kept when the worker started; `None`: forever. The shortest retention
    /// counts, because a message of any of them may be redelivered. Those of natural handlers do not count, since their
    /// messages may run again, unless they stage messages: for a copy they stage the same ones, which their consumers know
    /// for about as long.
    pub(crate) fn retention(&self) -> Option<Duration> {
        let counts = |route: &&Route<S>| !route.handler.facts().is_natural || route.handler.facts().stages;
        self.routes.iter().filter(counts).filter_map(|route| route.retention).min()
    }

    /// Returns whether a first delivery of this handler runs without a claim.
    pub(crate) fn is_unclaimed(&self, handler: HandlerId) -> bool {
        self.get(handler).is_some_and(|route| route.is_unclaimed)
    }

    /// Returns the first key of the external call for a message, if its handler makes one.
    pub(crate) fn first_provider_key(&self, message: &Identity, from: &Delivery) -> Option<Uuid> {
        Some(self.get(message.handler)?.external?.first_provider_key(message, from))
    }

    /// The handlers that make external calls.
    pub(crate) fn callers(&self) -> Vec<FetchFor> {
        let caller = |route: &Route<S>| {
            let limits = route.external?.limits;
            Some(FetchFor { handler: route.id, lease: limits.lease(), call: limits.kept_name() })
        };
        self.routes.iter().filter_map(caller).collect()
    }

    /// The longest time that a handler may run: how long a delivery normally stays unsettled.
    pub(crate) fn longest_timeout(&self) -> Duration {
        self.routes.iter().map(|route| route.timeout).max().unwrap_or_default()
    }

    pub(crate) fn get(&self, id: HandlerId) -> Option<&Route<S>> {
        self.routes.iter().find(|route| route.id == id)
    }

    /// Returns the handler with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Route<S>> {
        self.routes.iter().find(|route| route.handler.facts().name == name)
    }

    pub(crate) fn meters(&self, id: HandlerId) -> &Meters {
        self.get(id).map_or(&self.nobody_meters, |route| &route.meters)
    }

    /// The ids of all handlers whose inbox rows this worker runs.
    pub(crate) fn ids(&self) -> Vec<HandlerId> {
        self.routes.iter().map(|route| route.id).chain([self.nobody]).collect()
    }
}
