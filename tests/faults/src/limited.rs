//! A RabbitMQ queue with a delivery limit, which idem would refuse if it knew of it.

use idem::adapter::SubscribeOptions;
use idem::rabbitmq::Queue;
use idem::{BoxError, Delivery, DeliveryOrder, RabbitMq, Source};
use idem_test::Tapped;
use idem_test::tap::Tap;

/// Returns a source of this queue, in its order. idem is told that the queue has no delivery limit, and is not told of the
/// order: it refuses one of a queue that it may not look at.
pub async fn limited(address: &str, name: &str) -> Result<Tapped<Queue, InOrder>, idem::Error> {
    let queue = RabbitMq::connect(address).await?.queue_unverified(name).without_delivery_limit().await?;
    Ok(Tapped::new(queue, InOrder))
}

/// Gives all deliveries of a queue the same ordering key.
#[derive(Debug)]
pub struct InOrder;

impl Tap for InOrder {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery.with_ordering_key(Some(0)), ())
    }

    async fn subscribe<S: Source>(&mut self, source: &mut S, options: SubscribeOptions) -> Result<(), BoxError> {
        source.subscribe(options.with_order(DeliveryOrder::None)).await
    }
}
