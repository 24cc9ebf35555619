//! Checks of a worker's options, and of the queues.

use idem_core::{BoxError, DeliveryOrder, Error, SubscribeOptions};

use crate::bare::Bare;
use crate::limit::Limits;
use crate::source::Queue;

impl Queue {
    /// Refuses options that RabbitMQ cannot support, whatever the queues are.
    pub(crate) fn check(&self, options: &SubscribeOptions) -> Result<(), Error> {
        if options.max_unsettled == 0 {
            return Err(Error::Config(
                "`max_unsettled` is 0, which RabbitMQ takes as no limit: set it to at least 1".to_owned(),
            ));
        }
        if !matches!(options.order, DeliveryOrder::None | DeliveryOrder::Queue) {
            return Err(Error::Config(format!(
                "RabbitMQ has neither partitions nor keys, so it cannot keep the order {:?} of {}: ask for \
                 DeliveryOrder::Queue, or for DeliveryOrder::None; messages that need no order among each other can go to \
                 different queues",
                options.order,
                self.place()
            )));
        }
        if options.handler_timeout > self.config.consumer_timeout / 2 {
            tracing::warn!(
                queue = %self.name,
                handler_timeout = ?options.handler_timeout,
                consumer_timeout = ?self.config.consumer_timeout,
                "RabbitMQ takes deliveries back that are unsettled for longer than its consumer timeout, and a delivery \
                 may have to wait before its handler runs: raise consumer_timeout on the server (and say so by \
                 .consumer_timeout), or lower the handler timeout"
            );
        }
        Ok(())
    }

    /// Checks each queue.
    pub(crate) async fn look(&mut self, bare: &mut Bare, order: DeliveryOrder) -> Result<(), BoxError> {
        let limits = Limits::of(bare, &self.config);
        for member in &mut self.members {
            member.look(&self.config, bare, limits).await?;
            if order == DeliveryOrder::Queue {
                member.check_order(&self.config.address)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lapin::types::FieldTable;

    use super::*;
    use crate::RabbitMq;
    use crate::request::{Expected, Request};

    fn queue(consumer_timeout: Duration) -> Queue {
        let config = RabbitMq::options("amqp://u:s3ntinel@h").consumer_timeout(consumer_timeout).config().unwrap();
        Queue::new(Arc::new(config), "orders".to_owned(), Request::new(Expected::Existing), FieldTable::default())
    }

    #[test]
    fn a_handler_timeout_near_the_consumer_timeout_is_warned_about() {
        for (seconds, warned) in [(30, false), (31, true)] {
            let (text, subscriber) = idem_test::captured();
            let options = SubscribeOptions::new("billing", 1).with_handler_timeout(Duration::from_secs(seconds));
            tracing::subscriber::with_default(subscriber, || queue(Duration::from_secs(60)).check(&options)).unwrap();
            let text = text.to_string();
            assert_eq!(text.contains("WARN") && text.contains("orders"), warned, "{text}");
        }
    }
}
