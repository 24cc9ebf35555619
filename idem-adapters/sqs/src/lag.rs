//! The number of messages that wait in the queue, and a redrive policy that it was given meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_sqs::types::QueueAttributeName::{ApproximateNumberOfMessages as Waiting, RedrivePolicy};
use idem_core::Lag;

use crate::requests::{Target, answered};
use crate::settings::{Redrive, Settings};

/// Returns the handle for a queue's lag. SQS counts approximately, and does not count what was received.
/// The same answer shows a redrive policy to another queue than `accepted`, which is logged once.
pub(crate) fn lag(target: &Arc<Target>, accepted: Option<String>) -> Lag {
    let (target, accepted, is_known) = (Arc::clone(target), Arc::new(accepted), Arc::new(AtomicBool::new(false)));
    Lag::new(move || {
        let (target, accepted, is_known) = (Arc::clone(&target), Arc::clone(&accepted), Arc::clone(&is_known));
        async move {
            let request = target.config.client.get_queue_attributes().queue_url(&target.url);
            let request = request.attribute_names(Waiting).attribute_names(RedrivePolicy);
            let attributes = answered(request.send()).await?.attributes.unwrap_or_default();
            if let Some(Redrive { queue, receives }) = Settings::parse(&attributes).redrive
                && accepted.as_ref().as_ref() != Some(&queue)
                && !is_known.swap(true, Ordering::Relaxed)
            {
                tracing::error!(
                    queue = %target.name,
                    to = queue,
                    receives,
                    "the queue was given a redrive policy: SQS moves messages to another queue after so many receives, without \
                     their effects, and this worker does not subscribe again. Remove the policy, or accept it by \
                     .accept_redrive_to(..)"
                );
            }
            let waiting = attributes.get(&Waiting).and_then(|number| number.parse().ok());
            Ok(waiting.map(|waiting| (Arc::clone(&target.name), waiting)).into_iter().collect())
        }
    })
}
