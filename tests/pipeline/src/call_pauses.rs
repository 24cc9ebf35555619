//! A call whose process does not run for longer than the lease of its row.

use std::time::Duration;

use idem_core::{BoxError, CallError, External, Found, State};

use idem_conformance::store::World;
use idem_conformance::until;

use super::desk::Desk;
use super::orders::Order;
use super::paying::{MINUTE, Paying};
use super::payments::PaysBy;
use super::settings::Settings;

/// Longer than a call with the timeout below may send: its lease is the timeout and ten seconds, and nothing is sent in the
/// last five.
const PAUSE: Duration = Duration::from_millis(5500);

/// A call to a provider without keys. The first one is paused before it sends its request.
struct Pause;

impl External for Pause {
    const NAME: &'static str = "pause";
    const KEY_LIFE: Option<Duration> = None;
    const TIMEOUT: Duration = Duration::from_millis(100);
    const RECONCILES: bool = true;
    const ASK_AFTER: Duration = Duration::from_secs(1);

    type Message = Order;
    type Params = State<Desk>;
    type Answer = ();

    async fn call(order: &Order, State(desk): State<Desk>) -> Result<(), CallError> {
        if desk.run("pause") == 1 {
            // As a process that is stopped, it does not even notice that it is late, and goes on with its next poll.
            std::thread::sleep(PAUSE);
            tokio::task::yield_now().await;
        }
        desk.provider.charge(None, &order.id).await?;
        Ok(())
    }

    async fn reconcile(order: &Order, State(desk): State<Desk>) -> Result<Found<()>, BoxError> {
        Ok(if desk.provider.charged(&order.id) == 0 { Found::NotThere } else { Found::There(()) })
    }
}

/// Meanwhile the lease of its row is over, and the provider has said that there was no call: another one is made. A request
/// of the first one would be a second charge.
pub async fn a_call_that_was_paused_beyond_its_lease_sends_nothing<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", []);
    let worker = paying.0.run_until_stopped(paying.0.worker().handler::<PaysBy<W, Pause>>(), Settings::default());
    until(async || paying.0.desk.runs("pause") != 0).await;
    paying.time_passes(MINUTE).await;
    paying.completed("a").await;
    // It waits for the first call.
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
}
