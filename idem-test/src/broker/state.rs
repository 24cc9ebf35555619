//! The state of a broker.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use idem_core::{Delivery, DeliveryOrder, ReplayWindow, Settled};

use super::{Counts, Publication};

/// The place of a message in its queue. The second number distinguishes copies.
type Place = (u64, u32);

#[derive(Default)]
pub(super) struct State {
    queues: HashMap<Arc<str>, Waiting>,
    /// The active subscriptions, and whether each still asks for deliveries.
    subscriptions: HashMap<u64, bool>,
    last: u64,
    pub(super) refusing: bool,
    pub(super) acks_to_lose: usize,
    pub(super) to_double: usize,
    pub(super) replay_window: Option<ReplayWindow>,
    pub(super) unsettled_limit: Option<Duration>,
}

/// One queue.
#[derive(Default)]
struct Waiting {
    ready: BTreeMap<Place, Message>,
    unsettled: HashMap<u64, Unsettled>,
    counts: Counts,
}

struct Message {
    publication: Publication,
    redelivered: bool,
}

struct Unsettled {
    place: Place,
    message: Message,
    subscription: u64,
    ordering_key: Option<u64>,
}

/// A delivery, with what its acker needs to identify it.
pub(super) struct HandedOut {
    pub(super) delivery: Delivery,
    pub(super) tag: u64,
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn queue(&mut self, name: &str) -> &mut Waiting {
        self.queues.entry(name.into()).or_default()
    }

    pub(super) fn publish(&mut self, queue: &str, publication: Publication) {
        let place = (self.number(), 0);
        let queue = self.queue(queue);
        queue.counts.published += 1;
        queue.ready.insert(place, Message { publication, redelivered: false });
    }

    // ===== subscriptions =====

    /// Creates a subscription; `None` while connections are refused.
    pub(super) fn subscribe(&mut self) -> Option<u64> {
        if self.refusing {
            return None;
        }
        let subscription = self.number();
        self.subscriptions.insert(subscription, true);
        Some(subscription)
    }

    /// Whether the subscription is active.
    pub(super) fn is_subscribed(&self, subscription: u64) -> bool {
        self.subscriptions.contains_key(&subscription)
    }

    /// The subscription asks for no more deliveries. Its ordering keys pass to others, as in a queue with a single
    /// active consumer.
    pub(super) fn drain(&mut self, subscription: u64) {
        self.subscriptions.entry(subscription).and_modify(|asks| *asks = false);
    }

    /// Ends a subscription: its unsettled messages return to the queue.
    pub(super) fn end(&mut self, subscription: u64) {
        self.subscriptions.remove(&subscription);
        self.take_back(|unsettled| unsettled.subscription == subscription);
    }

    pub(super) fn disconnect(&mut self) {
        self.subscriptions.clear();
        self.take_back(|_| true);
    }

    // ===== deliveries =====

    /// The next message of a queue, if there is one and the subscription has room for it. Skips messages whose order
    /// key has an unsettled delivery in another subscription.
    pub(super) fn hand_out(
        &mut self,
        name: &Arc<str>,
        subscription: u64,
        capacity: usize,
        order: DeliveryOrder,
    ) -> Option<HandedOut> {
        let ordering_key = |publication: &Publication| match order {
            DeliveryOrder::None => None,
            DeliveryOrder::Queue => Some(0),
            _ => Some(publication.ordering_key.unwrap_or(0)),
        };
        let tag = self.last + 1;
        let queue = self.queues.get_mut(name)?;
        if queue.unsettled.values().filter(|unsettled| unsettled.subscription == subscription).count() >= capacity {
            return None;
        }
        let elsewhere = |ordering_key: Option<u64>| {
            let of_another = |unsettled: &Unsettled| {
                unsettled.ordering_key == ordering_key
                    && unsettled.subscription != subscription
                    && self.subscriptions.get(&unsettled.subscription) == Some(&true)
            };
            ordering_key.is_some() && queue.unsettled.values().any(of_another)
        };
        let next = queue.ready.iter().find(|(_, message)| !elsewhere(ordering_key(&message.publication)));
        let place = *next?.0;
        let message = queue.ready.remove(&place)?;
        let ordering_key = ordering_key(&message.publication);
        self.last = tag;
        // Neither a copy nor a returned message is doubled again.
        if self.to_double > 0 && place.1 == 0 && !message.redelivered {
            self.to_double -= 1;
            let copy = Message { publication: message.publication.clone(), redelivered: message.redelivered };
            queue.ready.insert((place.0, place.1 + 1), copy);
        }
        queue.counts.deliveries += 1;
        queue.counts.redeliveries += usize::from(message.redelivered);
        let publication = message.publication.clone();
        let delivery = Delivery::new(name.clone(), publication.payload)
            .with_headers(publication.headers)
            .with_message_id(publication.message_id)
            .with_event_type(publication.event_type)
            .with_subject(publication.subject)
            .with_content_type(publication.content_type)
            .with_correlation_id(publication.correlation_id)
            .with_reply_to(publication.reply_to)
            .with_produced_at(publication.produced_at)
            .with_properties(publication.properties)
            .with_tombstone(publication.tombstone)
            .with_published_at(publication.published_at)
            .with_position(publication.position)
            .with_ordering_key(ordering_key)
            .with_partition_key(publication.partition_key)
            .with_unrepresentable(publication.unrepresentable)
            .with_redelivered(message.redelivered);
        queue.unsettled.insert(tag, Unsettled { place, message, subscription, ordering_key });
        Some(HandedOut { delivery, tag })
    }

    /// Counts a delivery that its receiver reports as stored.
    pub(super) fn stored(&mut self, queue: &str) {
        self.queue(queue).counts.stored += 1;
    }

    /// Whether the receiver still holds the delivery.
    pub(super) fn is_unsettled(&mut self, queue: &str, tag: u64) -> bool {
        self.queue(queue).unsettled.contains_key(&tag)
    }

    pub(super) fn ack(&mut self, queue: &str, tag: u64) -> Settled {
        if !self.is_unsettled(queue, tag) {
            self.queue(queue).counts.stale += 1;
            return Settled::Stale;
        }
        if self.acks_to_lose > 0 {
            self.acks_to_lose -= 1;
            return Settled::Sent;
        }
        let queue = self.queue(queue);
        queue.unsettled.remove(&tag);
        queue.counts.acks += 1;
        Settled::Confirmed
    }

    pub(super) fn release(&mut self, queue: &str, tag: u64) -> Settled {
        let queue = self.queue(queue);
        match queue.unsettled.remove(&tag) {
            Some(unsettled) => {
                queue.counts.releases += 1;
                queue.take_back(unsettled);
                Settled::Confirmed
            }
            None => {
                queue.counts.stale += 1;
                Settled::Stale
            }
        }
    }

    fn take_back(&mut self, which: impl Fn(&Unsettled) -> bool) {
        for queue in self.queues.values_mut() {
            let gone = queue.unsettled.extract_if(|_, unsettled| which(unsettled)).collect::<Vec<_>>();
            gone.into_iter().for_each(|(_, unsettled)| queue.take_back(unsettled));
        }
    }

    // ===== signals =====

    pub(super) fn is_idle(&self) -> bool {
        self.queues.values().all(Waiting::is_idle)
    }

    pub(super) fn counts(&self, queue: &str) -> Counts {
        self.queues.get(queue).map(Waiting::counts).unwrap_or_default()
    }
}

impl Waiting {
    /// Returns the message to its old place, as brokers do, so that the order is kept as far as possible.
    fn take_back(&mut self, unsettled: Unsettled) {
        let Unsettled { place, message, .. } = unsettled;
        self.ready.insert(place, Message { redelivered: true, ..message });
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.unsettled.is_empty()
    }

    fn counts(&self) -> Counts {
        Counts { ready: self.ready.len(), unsettled: self.unsettled.len(), ..self.counts }
    }
}
