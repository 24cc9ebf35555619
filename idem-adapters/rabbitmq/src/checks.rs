//! Checks of a worker's options.

use idem_core::{DeliveryOrder, Error, SubscribeOptions};

use crate::config::Config;

/// Refuses options that RabbitMQ cannot support, whatever the queues are. `queue` is their name, for the log, and `place`
/// also has their address, for errors.
pub(crate) fn check(config: &Config, queue: &str, place: &str, options: &SubscribeOptions) -> Result<(), Error> {
    if !matches!(options.order, DeliveryOrder::None | DeliveryOrder::Queue) {
        return Err(Error::Config(format!(
            "RabbitMQ has neither partitions nor keys, so it cannot keep the order {:?} of {}: ask for \
             DeliveryOrder::Queue, or for DeliveryOrder::None; messages that need no order among each other can go to \
             different queues",
            options.order, place
        )));
    }
    if options.handler_timeout > config.consumer_timeout / 2 {
        tracing::warn!(
            queue,
            handler_timeout = ?options.handler_timeout,
            consumer_timeout = ?config.consumer_timeout,
            "RabbitMQ takes deliveries back that are unsettled for longer than its consumer timeout, and a delivery \
             may have to wait before its handler runs: raise consumer_timeout on the server (and say so by \
             .consumer_timeout), or lower the handler timeout"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::RabbitMq;

    #[test]
    fn a_handler_timeout_near_the_consumer_timeout_is_warned_about() {
        let options = RabbitMq::options("amqp://u:s3ntinel@h").consumer_timeout(Duration::from_secs(60));
        let config = options.config().unwrap();
        for (seconds, warned) in [(30, false), (31, true)] {
            let (text, subscriber) = idem_conformance::captured();
            let options = SubscribeOptions::new("billing", 1).with_handler_timeout(Duration::from_secs(seconds));
            tracing::subscriber::with_default(subscriber, || check(&config, "orders", "orders on h", &options))
                .unwrap();
            let text = text.to_string();
            assert_eq!(text.contains("WARN") && text.contains("orders"), warned, "{text}");
        }
    }
}
