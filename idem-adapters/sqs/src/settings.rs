//! The attributes of a queue, and which of them are refused.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName as Name;
use idem_core::{DeliveryOrder, Error, ReplayWindow};
use serde_json::Value;

use crate::lease::LONGEST;
use crate::name::{place, remedy};
use crate::requests::{Target, answered};

/// The shortest visibility timeout: idem could not extend a shorter one in time over a network.
const SHORTEST: Duration = Duration::from_secs(3);

/// What the application has asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) visibility: Option<Duration>,
    pub(crate) redrive_to: Option<String>,
}

/// The attributes of a queue that concern idem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) is_fifo: bool,
    pub(crate) visibility: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) redrive: Option<Redrive>,
}

/// After how many receives a message is moved, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redrive {
    pub(crate) queue: String,
    pub(crate) receives: String,
}

impl Settings {
    /// Asks for the attributes of a queue.
    pub(crate) async fn read(target: &Target) -> Result<Self, Error> {
        // Some attributes cannot be asked of a standard queue by name.
        let request = target.config.client.get_queue_attributes().queue_url(&target.url).attribute_names(Name::All);
        let answer = answered(request.send())
            .await
            .map_err(|failure| failure.error("sqs:GetQueueAttributes", &target.place(), &remedy(&target.name)))?;
        Ok(Self::parse(&answer.attributes.unwrap_or_default()))
    }

    pub(crate) fn parse(attributes: &HashMap<Name, String>) -> Self {
        let seconds = |name| attributes.get(&name)?.parse().ok().map(Duration::from_secs);
        Self {
            is_fifo: attributes.get(&Name::FifoQueue).is_some_and(|fifo| fifo == "true"),
            // That of a queue without one.
            visibility: seconds(Name::VisibilityTimeout).unwrap_or(Duration::from_secs(30)),
            retention: seconds(Name::MessageRetentionPeriod),
            redrive: attributes.get(&Name::RedrivePolicy).and_then(|policy| redrive(policy)),
        }
    }

    /// Returns the visibility timeout of deliveries, in whole seconds.
    ///
    /// # Errors
    /// The queue would lose or repeat messages, or cannot keep the order.
    pub(crate) fn check(&self, wishes: &Wishes, order: DeliveryOrder, place: &str) -> Result<Duration, Error> {
        let refused = |text: String| Err(Error::Config(text));
        match order {
            DeliveryOrder::None => {}
            DeliveryOrder::Key if self.is_fifo => {}
            DeliveryOrder::Key => {
                return refused(format!(
                    "{place} is a standard queue, which has no order, even with message groups: use a FIFO queue, or a \
                     worker without .order(..)"
                ));
            }
            _ => {
                return refused(format!(
                    "SQS cannot keep DeliveryOrder::{order:?}: use DeliveryOrder::Key with a FIFO queue, which keeps the \
                     order of each message group"
                ));
            }
        }
        let visibility = wishes.visibility.unwrap_or(self.visibility);
        if visibility < SHORTEST || visibility > LONGEST {
            let whose = if wishes.visibility.is_some() { "given to .visibility(..)" } else { "of the queue" };
            return refused(format!(
                "the visibility timeout {whose} is {visibility:?} at {place}: idem needs {SHORTEST:?} to extend it in time, and \
                 SQS allows 12 hours. Set it with .visibility(..) or at the queue"
            ));
        }
        if let Some(Redrive { queue, receives }) = &self.redrive
            && wishes.redrive_to.as_deref() != Some(queue)
        {
            return refused(format!(
                "{place} has a redrive policy: after {receives} receives SQS moves a message to `{queue}`, also one that was \
                 only returned by workers that ended, and idem would not see it again. Remove the policy, since idem keeps \
                 dead letters, or accept it by .accept_redrive_to({queue:?})"
            ));
        }
        Ok(Duration::from_secs(visibility.as_secs()))
    }

    pub(crate) fn replay_window(&self) -> ReplayWindow {
        self.retention.map_or(ReplayWindow::Unknown, ReplayWindow::Within)
    }
}

fn redrive(policy: &str) -> Option<Redrive> {
    let policy: Value = serde_json::from_str(policy).ok()?;
    let queue = policy.get("deadLetterTargetArn")?.as_str()?.rsplit(':').next()?.to_owned();
    let receives = match policy.get("maxReceiveCount") {
        Some(Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
        None => "some".to_owned(),
    };
    Some(Redrive { queue, receives })
}

impl Target {
    /// The queue and its region, for errors.
    pub(crate) fn place(&self) -> String {
        place(&self.name, &self.config.region)
    }

    /// Checks that deliveries may be deleted and extended, by a handle that is none: an answer about the handle is a permission.
    ///
    /// # Errors
    /// An action that the policy does not allow, by its name.
    pub(crate) async fn check_permissions(&self) -> Result<(), Error> {
        use crate::error::Cause::{Content, Unavailable};
        let none = ["idem-checks-a-permission".to_owned()];
        let (delete, change) = tokio::join!(self.delete(&none), self.change_visibility(&none, Duration::ZERO));
        for (action, results) in [("sqs:DeleteMessage", delete), ("sqs:ChangeMessageVisibility", change)] {
            for failure in results.into_iter().filter_map(Result::err) {
                // No answer is an error of the receive that follows.
                if !matches!(failure.cause, Content | Unavailable) {
                    return Err(failure.error(action, &self.place(), &remedy(&self.name)));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(attributes: &[(Name, &str)]) -> Settings {
        let attributes = attributes.iter().map(|(name, value)| (name.clone(), (*value).to_owned()));
        Settings::parse(&attributes.collect())
    }

    fn refusal(settings: &Settings, wishes: &Wishes, order: DeliveryOrder) -> String {
        match settings.check(wishes, order, "queue `orders` in r") {
            Err(Error::Config(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_redrive_policy_is_refused_unless_its_queue_is_accepted() {
        let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:r:1:orders-dead","maxReceiveCount":"5"}"#;
        let settings = settings(&[(Name::RedrivePolicy, policy)]);
        let accepted = |queue: &str| Wishes { redrive_to: Some(queue.to_owned()), ..Wishes::default() };
        for wishes in [Wishes::default(), accepted("other")] {
            let text = refusal(&settings, &wishes, DeliveryOrder::None);
            assert!(
                text.contains("after 5 receives") && text.contains(r#".accept_redrive_to("orders-dead")"#),
                "{text}"
            );
        }
        assert!(settings.check(&accepted("orders-dead"), DeliveryOrder::None, "").is_ok());
    }

    #[test]
    fn a_visibility_that_cannot_be_extended_in_time_is_refused() {
        let wish = |seconds| Wishes { visibility: Some(Duration::from_secs(seconds)), ..Wishes::default() };
        let short = settings(&[(Name::VisibilityTimeout, "2")]);
        assert!(refusal(&short, &Wishes::default(), DeliveryOrder::None).contains("of the queue"));
        assert!(refusal(&short, &wish(12 * 3600 + 1), DeliveryOrder::None).contains("given to"));
        assert_eq!(short.check(&wish(3), DeliveryOrder::None, "").ok(), Some(Duration::from_secs(3)));
    }

    #[test]
    fn only_a_fifo_queue_has_an_order_and_only_that_of_keys() {
        let (standard, fifo) = (settings(&[]), settings(&[(Name::FifoQueue, "true")]));
        let none = Wishes::default();
        assert!(fifo.check(&none, DeliveryOrder::Key, "").is_ok());
        assert!(refusal(&standard, &none, DeliveryOrder::Key).contains("use a FIFO queue"));
        for order in [DeliveryOrder::Queue, DeliveryOrder::Partition] {
            assert!(refusal(&fifo, &none, order).contains("DeliveryOrder::Key"));
        }
    }

    #[test]
    fn the_retention_is_the_replay_window() {
        let kept = settings(&[(Name::MessageRetentionPeriod, "345600")]);
        assert_eq!(kept.replay_window(), ReplayWindow::Within(Duration::from_secs(345_600)));
        assert_eq!(settings(&[]).replay_window(), ReplayWindow::Unknown);
    }
}
