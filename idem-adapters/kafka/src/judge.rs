//! What an error of the client means.

use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::error::{Loss, no_topic};
use crate::group::Member;
use crate::start;

impl Member {
    /// What the client cures by itself is none. What is not known is the end, so that nothing is passed over: a batch
    /// that cannot be read, for example, is an error in its place, and the client would go on behind it.
    pub(crate) fn judge(
        &self,
        consumer: &BaseConsumer<Self>,
        error: &KafkaError,
        partition: Option<i32>,
    ) -> Result<(), Loss> {
        let said = self.witness.said().reason;
        let said = if said.is_empty() { error.to_string() } else { said };
        let ended = || Loss::Broker(format!("the subscription to {} has ended", self.plan.place()), said.clone());
        if let KafkaError::MessageConsumptionFatal(_) = error {
            return Err(ended());
        }
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => {
                let what = format!("no broker of {} can be reached: check that the server runs", self.plan.place());
                self.shared.lose(Loss::Broker(what, said));
                Ok(())
            }
            Some(Code::AutoOffsetReset) => Err(self.out_of_range(consumer, partition).unwrap_or_else(ended)),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
                Err(no_topic(&self.plan.config, &self.plan.topic))
            }
            Some(code) if passes(code) => Ok(()),
            _ => Err(ended()),
        }
    }

    /// With the range that is there, unless it has changed meanwhile.
    fn out_of_range(&self, consumer: &BaseConsumer<Self>, partition: Option<i32>) -> Option<Loss> {
        let partition = partition?;
        let offset = self.shared.lock().assigned.place(partition)?;
        start::check(consumer, &self.plan, partition, offset).err()
    }
}

/// What librdkafka tries again by itself.
fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::PollExceeded
            | Code::NoOffset
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::RebalanceInProgress
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::KafkaStorageError
            | Code::OffsetNotAvailable
    )
}
