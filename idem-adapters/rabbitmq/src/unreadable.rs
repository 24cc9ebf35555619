//! Messages that lapin cannot parse. It closes its connection at each of them, and everything prefetched is returned.
//!
//! A connection without lapin then reads as many messages as lapin had prefetched, before lapin consumes again. It keeps
//! those that lapin cannot parse until they are dead letters, and releases the others. With an order, it returns the others
//! when it ends, and nothing else is delivered until then.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use idem_core::{Delivery, Error};
use lapin::types::FieldTable;
use tokio::sync::Mutex;

use crate::acker::RabbitMqAcker;
use crate::config::Config;
use crate::raw::{Kept, Message, Raw};

/// The header that contains the whole property list, as bytes.
const LIST: &str = "idem-amqp-properties";

/// Takes such messages out of a queue, if they are among the next `count`, and also returns their connection. If it is
/// dropped, they return to the queue.
pub(crate) async fn take_out(
    config: &Config,
    queue: &Arc<str>,
    count: u16,
    arguments: FieldTable,
    ordered: bool,
) -> Result<(Weak<Kept>, Vec<(Delivery, RabbitMqAcker)>), Error> {
    let mut raw = Raw::open(config).await?;
    let messages = raw.unreadable(queue, count, arguments, ordered).await;
    let messages = messages
        .map_err(|source| Error::broker(format!("cannot read queue `{queue}` on {}", config.address), source))?;
    if messages.is_empty() {
        raw.close().await;
        return Ok((Weak::new(), Vec::new()));
    }
    let kept = Arc::new(Mutex::new(Some(raw)));
    let taken = |message: Message| {
        tracing::error!(%queue, "a message that lapin cannot read is taken out of the queue: its dead letter has all of it");
        let acker = RabbitMqAcker::raw(&kept, message.tag);
        (delivery(queue, message), acker)
    };
    Ok((Arc::downgrade(&kept), messages.into_iter().map(taken).collect()))
}

/// Keeps the whole message: the names of its way as text, as far as they are, and the property list as it was received.
fn delivery(queue: &Arc<str>, message: Message) -> Delivery {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let exchange = Some(text(&message.exchange)).filter(|exchange| !exchange.is_empty());
    // Its bytes also tell messages apart that differ in nothing else.
    let why = format!(
        "its routing key \"{}\", its exchange \"{}\" or one of its properties is not UTF-8: the header idem-amqp-properties \
         has the list of its properties",
        message.routing_key.escape_ascii(),
        message.exchange.escape_ascii()
    );
    Delivery::new(Arc::clone(queue), message.body)
        .with_subject(Some(text(&message.routing_key)))
        .with_properties(exchange.map(|exchange| ("exchange", exchange)).into_iter().collect())
        .with_headers([(LIST, Bytes::from(message.properties))].into_iter().collect())
        .with_redelivered(message.redelivered)
        .with_unrepresentable(Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_lapin_cannot_read_keeps_all() {
        let (exchange, routing_key) = (b"shop".to_vec(), b"orders.\xFF".to_vec());
        let (properties, body) = (vec![0, 0x80, 1, 0xFE], b"{}".to_vec());
        let message = Message { exchange, routing_key, properties, body, redelivered: true, ..Default::default() };
        let delivery = delivery(&"q".into(), message);
        assert!(delivery.unrepresentable().unwrap().contains(r#"routing key "orders.\xff""#) && delivery.redelivered());
        assert_eq!((delivery.payload(), delivery.subject()), (&"{}".into(), Some("orders.\u{fffd}")));
        assert_eq!(delivery.properties().get("exchange"), Some("shop"));
        assert_eq!(delivery.headers().get(LIST), Some(&[0, 0x80, 1, 0xFE][..]));
    }
}
