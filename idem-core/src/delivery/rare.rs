//! The parts that few deliveries have.

use std::sync::Arc;
use std::time::SystemTime;

use uuid::Uuid;

use crate::CloudEvent;
use crate::store::{CallAnswer, HandlerId};

/// The parts that few deliveries have. They are on the heap, by themselves, so that a delivery without them is smaller: deliveries
/// are moved often.
#[derive(Clone, Default)]
pub(crate) struct Rare {
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    /// Its CloudEvents attributes, if the worker reads them.
    pub(crate) cloud_event: Option<Result<CloudEvent, Arc<str>>>,
    pub(crate) unrepresentable: Option<Arc<str>>,
    /// The external call of its message, as its inbox row has kept it.
    pub(crate) call: Option<Arc<KeptCall>>,
    /// How many preparations of codecs for it have ended in this process.
    pub(crate) preparations: usize,
    /// The handlers whose codecs have shown in one that they can never decode it, and why.
    pub(crate) undecodable: Vec<(HandlerId, Arc<str>)>,
}

/// What an inbox row has kept of the external call of its message.
#[derive(Clone)]
pub(crate) struct KeptCall {
    /// The key under which the provider knows it.
    pub(crate) provider_key: Uuid,
    pub(crate) answer: Option<CallAnswer>,
    /// Its name, and when the first one was about to begin, if one was.
    pub(crate) name: Option<String>,
    pub(crate) called_at: Option<SystemTime>,
}

#[cfg(test)]
mod tests {
    use crate::Delivery;

    #[test]
    fn a_delivery_without_them_allocates_nothing_for_them() {
        let delivery = Delivery::new("orders", "").with_correlation_id(None).with_unrepresentable(None::<&str>);
        assert!(delivery.rare.is_none());
        let delivery = delivery.with_reply_to(Some("answers".to_owned())).with_correlation_id(None);
        assert_eq!((delivery.reply_to(), delivery.correlation_id()), (Some("answers"), None));
        assert_eq!(delivery.with_reply_to(None).reply_to(), None);
    }
}
