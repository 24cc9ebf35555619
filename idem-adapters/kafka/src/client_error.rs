//! How the subscription handles errors of the client.

use std::sync::atomic::Ordering;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::connection::is_unknown;
use crate::error::{Loss, is_unreadable, passes};
use crate::member::Member;
use crate::partition::TopicPartition;
use crate::stall::Cause;

impl Member {
    /// Ignores errors from which the client recovers by itself. Any other error stops the partition it concerns or, if
    /// it concerns none, ends the subscription, so that no record is skipped.
    pub(crate) fn handle_error(
        &self,
        consumer: &BaseConsumer<Self>,
        error: &KafkaError,
        partition: Option<&TopicPartition>,
    ) -> Result<(), Loss> {
        let heard = self.witness.said();
        let said = if heard.reason.is_empty() { error.to_string() } else { heard.reason };
        let ended = || Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), said.clone());
        if let Some((code, said)) = consumer.client().fatal_error() {
            let cure = self.plan.protocol.cure(code);
            return Err(Loss::Broker(format!("the subscription to {} has ended{cure}", self.plan.place()), said));
        }
        if let KafkaError::MessageConsumptionFatal(_) = error {
            return Err(ended());
        }
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => {
                let what = format!("no broker of {} can be reached: check that the server runs", self.plan.place());
                self.shared.lose(Loss::Broker(what, said));
                Ok(())
            }
            Some(Code::AutoOffsetReset) if self.out_of_range(consumer, partition) => Ok(()),
            // A refusal without a partition came before that had its own queue; the client asks again. The error does not
            // name the topic, so the topics are looked up.
            Some(code) if is_unknown(code) || (code == Code::TopicAuthorizationFailed && partition.is_none()) => {
                self.shaken.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(Code::Authentication) if !heard.ended => Ok(()),
            Some(code) if passes(code) => Ok(()),
            Some(Code::GroupAuthorizationFailed) => Err(ended()),
            code => {
                let Some(partition) = partition else { return Err(ended()) };
                // The client would continue after the batch.
                if code.is_some_and(is_unreadable) {
                    self.quarantine(consumer, partition, Cause::Stuck, &format!("it cannot be read: {error}"));
                } else {
                    // A member that left would pass a forbidden topic on to the next one, and that to another.
                    let cure = match code {
                        Some(Code::TopicAuthorizationFailed) => " (allow the user to read the topic)",
                        _ => "",
                    };
                    let why = format!("a broker refuses to let it be read, and is asked again: {error}{cure}");
                    self.quarantine(consumer, partition, Cause::Failing, &why);
                }
                Ok(())
            }
        }
    }
}
