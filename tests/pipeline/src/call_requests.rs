//! A version of the service that makes another request of the same message.

use std::time::Duration;

use idem_core::store::Replayed;
use idem_core::{CallError, External, OutboundKey, Reason, State};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::provider::Fault;

use super::desk::Desk;
use super::orders::Order;
use super::paying::{MINUTE, Paying};
use super::payments::{Charged, KEY_LIFE, PaysBy};
use super::settings::Settings;

/// The call of that version. Its orders cost more.
struct PayMore;

impl External for PayMore {
    const NAME: &'static str = "pay";
    const KEY_LIFE: Option<Duration> = Some(KEY_LIFE);

    type Message = Order;
    type Params = (OutboundKey, State<Desk>);
    type Answer = Charged;

    async fn call(order: &Order, (key, State(desk)): Self::Params) -> Result<Charged, CallError> {
        let reply = desk.provider.charge(Some(key.as_str()), &format!("more for {}", order.id)).await?;
        match reply.status {
            200 => Ok(Charged { number: reply.body }),
            _ => Err(CallError::permanent(reply.body)),
        }
    }
}

/// The provider refuses it under the key of the first one, which may have had an effect. The version that has made that goes on
/// with it.
pub async fn another_request_of_a_call_in_doubt_charges_nothing<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer]);
    paying.fails_once().await;
    let worker = paying.0.run_until_stopped(paying.0.worker().handler::<PaysBy<W, PayMore>>(), Settings::default());
    until(async || !paying.0.dead().await.is_empty() || paying.counts("a").await.2 != 0).await;
    worker.stop().await;
    assert_eq!((paying.provider().ledger().len(), paying.counts("a").await), (1, (1, 1, 0)));
    let dead = paying.0.one_dead().await;
    assert_eq!((dead.reason, dead.called_at.is_some()), (Some(Reason::Permanent), true), "{}", dead.error);
    assert!(!paying.0.inbox().discard(dead.id).await.unwrap(), "nobody would find what was paid");
    assert_eq!(paying.0.inbox().replay(dead.id).await.unwrap(), Replayed::Due);
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!((paying.provider().ledger().len(), paying.counts("a").await), (1, (1, 2, 1)));
}
