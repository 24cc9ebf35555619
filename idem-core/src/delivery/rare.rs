//! The parts that few deliveries have.

use std::sync::Arc;

use crate::CloudEvent;

use super::kept_call::KeptCall;
use super::preparation::Preparation;

/// The parts that few deliveries have. They are on the heap, by themselves, so that the others are smaller: deliveries are moved
/// often.
#[derive(Clone, Default)]
pub(crate) struct Rare {
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    /// Its CloudEvents attributes, if the worker reads them.
    pub(crate) cloud_event: Option<Result<CloudEvent, Arc<str>>>,
    pub(crate) unrepresentable: Option<Arc<str>>,
    /// The external call of its message, as its inbox row has kept it.
    pub(crate) call: Option<Arc<KeptCall>>,
    /// The result of the codec's preparation for it, in this process.
    pub(crate) preparation: Preparation,
}

impl Rare {
    /// Those of a delivery that has none.
    pub(super) const fn none() -> Self {
        Self {
            correlation_id: None,
            reply_to: None,
            cloud_event: None,
            unrepresentable: None,
            call: None,
            preparation: Preparation::none(),
        }
    }
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
