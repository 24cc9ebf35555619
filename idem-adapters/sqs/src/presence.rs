//! Whether an event bus was there when it confirmed events.

use std::time::Duration;

use aws_sdk_eventbridge::Client;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::error::{Cause, Failure};
use crate::requests::answered;

/// The shortest time between two questions, since AWS limits their number.
const SPACING: Duration = Duration::from_millis(100);

/// How long not to ask again if the policy does not allow it.
const DENIED: Duration = Duration::from_secs(60);

/// EventBridge confirms events to a bus that does not exist, and drops them. A bus that is there after the events were put was
/// there before, unless it was deleted and created again in between.
pub(crate) struct Presence {
    client: Client,
    bus: String,
    /// When the last question was sent whose answer counts. Later ones wait here, and share the next answer.
    asked: Mutex<Option<Instant>>,
}

impl Presence {
    pub(crate) fn new(client: Client, bus: String) -> Self {
        Self { client, bus, asked: Mutex::default() }
    }

    /// Checks that the bus was there until now.
    ///
    /// # Errors
    /// The bus does not exist, or EventBridge does not answer. If it may not be described, that is not known, and no error.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        let put = Instant::now();
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|asked| asked >= put) {
            return Ok(());
        }
        if let Some(asked) = *asked {
            sleep_until(asked + SPACING).await;
        }
        let now = Instant::now();
        match answered(self.client.describe_event_bus().name(&self.bus).send()).await {
            Ok(_) => *asked = Some(now),
            Err(failure) if failure.cause == Cause::Denied => *asked = Some(now + DENIED),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}
