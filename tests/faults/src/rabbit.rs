//! A RabbitMQ queue of a test's own.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::{Order, fresh, variable};

/// A quorum queue, and a producer.
pub struct Rabbit {
    /// Where the server is.
    pub url: String,
    /// The queue's name.
    pub queue: String,
    channel: Channel,
    _connection: Connection,
}

impl Rabbit {
    /// A new queue; `None` where there is no server to test against.
    pub async fn new() -> Option<Self> {
        let url = variable("AMQP_URL")?;
        let queue = fresh("idem-faults");
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        // It removes itself also after a test that failed.
        arguments.insert("x-expires".into(), AMQPValue::LongInt(600_000));
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(queue.as_str().into(), options, arguments).await.unwrap();
        Some(Self { url, queue, channel, _connection: connection })
    }

    /// Publishes, and waits for the confirm.
    pub async fn publish(&self, order: &Order) {
        let payload = serde_json::to_vec(order).unwrap();
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let properties = BasicProperties::default().with_delivery_mode(2);
        let name = self.queue.as_str().into();
        let confirm = self.channel.basic_publish("".into(), name, options, &payload, properties).await.unwrap();
        let confirm = confirm.await.unwrap();
        assert!(confirm.is_ack() && confirm.take_message().is_none(), "the message did not reach the queue");
    }

    /// How many messages wait in the queue that no consumer has.
    pub async fn ready(&self) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.channel.queue_declare(self.queue.as_str().into(), options, FieldTable::default()).await;
        queue.unwrap().message_count()
    }

    /// Removes the queue.
    pub async fn end(self) {
        self.channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    }
}
