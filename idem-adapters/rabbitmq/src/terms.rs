//! Checks of the terms of a worker.

use idem_core::{Error, Ordering, Terms};

use crate::source::Queue;

impl Queue {
    /// Refuses what RabbitMQ cannot keep, whatever the queues are.
    pub(crate) fn check(&self, terms: &Terms) -> Result<(), Error> {
        if terms.in_flight == 0 {
            return Err(Error::Refused(
                "0 deliveries in flight mean no limit to RabbitMQ, and would take the whole queue into memory: allow at least 1"
                    .to_owned(),
            ));
        }
        if !matches!(terms.ordering, Ordering::None | Ordering::Queue) {
            return Err(Error::Refused(format!(
                "RabbitMQ has neither partitions nor keys, so it cannot keep the order {:?} of {}: ask for \
                 Ordering::Queue, or for Ordering::None; messages that need no order among each other can go to \
                 different queues",
                terms.ordering,
                self.place()
            )));
        }
        if terms.deadline > self.config.consumer_timeout / 2 {
            tracing::warn!(
                queue = %self.name,
                deadline = ?terms.deadline,
                consumer_timeout = ?self.config.consumer_timeout,
                "RabbitMQ takes deliveries back that are unsettled for longer than its consumer timeout, and a delivery \
                 may have to wait before its handler runs: raise consumer_timeout on the server (and say so by \
                 .consumer_timeout), or lower the deadline"
            );
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
    fn a_deadline_near_the_consumer_timeout_is_warned_about() {
        for (deadline, warned) in [(30, false), (31, true)] {
            let (text, subscriber) = idem_test::captured();
            let terms = Terms { deadline: Duration::from_secs(deadline), ..Terms::new("billing", 1) };
            tracing::subscriber::with_default(subscriber, || queue(Duration::from_secs(60)).check(&terms)).unwrap();
            let text = text.to_string();
            assert_eq!(text.contains("WARN") && text.contains("orders"), warned, "{text}");
        }
    }
}
