//! The number of messages that wait in the queue.

use std::sync::Arc;

use aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages as Waiting;
use idem_core::Lag;

use crate::requests::{Target, answered};

/// Returns the handle for a queue's lag. SQS counts approximately, and does not count what was received.
pub(crate) fn lag(target: &Arc<Target>) -> Lag {
    let target = Arc::clone(target);
    Lag::new(move || {
        let target = Arc::clone(&target);
        async move {
            let request = target.config.client.get_queue_attributes().queue_url(&target.url).attribute_names(Waiting);
            let attributes = answered(request.send()).await?.attributes.unwrap_or_default();
            let waiting = attributes.get(&Waiting).and_then(|number| number.parse().ok());
            Ok(waiting.map(|waiting| (Arc::clone(&target.name), waiting)).into_iter().collect())
        }
    })
}
