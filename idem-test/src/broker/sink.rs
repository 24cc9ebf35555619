//! The broker as the destination of a relay.

use idem_core::{Sink, SinkError, StagedMessage};

use super::{Broker, Publication};

/// A relay publishes to the queue that the message names as its destination. Each message is confirmed, and a queue is
/// created when it is first named. A key becomes the partition key of the delivery, as on Kafka, and unlike on RabbitMQ
/// and NATS; [`MemorySink`](crate::MemorySink) is for tests of refusals.
impl Sink for Broker {
    fn system(&self) -> &'static str {
        "memory"
    }

    fn name(&self) -> &str {
        "in process"
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let id = message.id().to_string();
        let mut publication =
            Publication::new(message.payload().clone()).message_id(id).headers(message.headers().clone());
        if let Some(key) = message.key() {
            publication = publication.partition_key(key.as_bytes().to_vec());
        }
        if let Some(event_type) = message.event_type() {
            publication = publication.event_type(event_type);
        }
        if let Some(content_type) = message.content_type() {
            publication = publication.content_type(content_type);
        }
        Broker::publish(self, message.to(), publication);
        Ok(())
    }

    async fn close(&self) {}
}
