//! A version of the service whose handler makes another call.

use std::time::Duration;

use idem_core::store::Replayed;
use idem_core::{BoxError, CallError, External, Found, Key, OutboundKey, Reason, State};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::provider::Fault;

use super::desk::Desk;
use super::line::Line;
use super::orders::{Act, Order};
use super::paying::{Charged, KEY_LIFE, Paying, Pays, PaysBy, order};
use super::running::Running;
use super::settings::Settings;

/// A call to another provider, which has not heard of the charges of the first one.
struct PayElsewhere;

impl External for PayElsewhere {
    const NAME: &'static str = "pay elsewhere";
    const KEY_LIFE: Option<Duration> = Some(KEY_LIFE);
    const RECONCILES: bool = true;

    type Message = Order;
    type Params = (OutboundKey, State<Desk>);
    type Answer = Charged;

    async fn call(order: &Order, (key, State(desk)): Self::Params) -> Result<Charged, CallError> {
        let key = format!("elsewhere {key}");
        let reply = desk.provider.charge(Some(key.as_str()), &order.id).await?;
        Ok(Charged { number: reply.body })
    }

    async fn reconcile(_: &Order, _: Self::Params) -> Result<Found<Charged>, BoxError> {
        Ok(Found::NotThere)
    }
}

/// It would find nothing at its own provider, and pay there as well; and it would read the answer of the first as its own.
pub async fn a_call_is_not_taken_over_by_another_one<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("lost", [Fault::LoseAnswer]);
    paying.publish_order(order("fails", &[Act::Fail, Act::Ok]), []);
    let hour = Duration::from_secs(3600);
    let worker = paying.start_with(Settings::late());
    paying.row(|row| row.attempts == 1 && row.answer.is_none()).await;
    paying.row(|row| row.attempts == 1 && row.answer.is_some()).await;
    worker.stop().await;
    paying.time_passes(2 * hour).await;
    let worker =
        paying.0.run_until_stopped(paying.0.worker().handler::<PaysBy<W, PayElsewhere>>(), Settings::default());
    until(async || paying.0.dead().await.len() >= 2).await;
    worker.stop().await;
    for row in paying.0.dead().await {
        let reason = if row.answer.is_some() { Reason::Permanent } else { Reason::Unresolved };
        assert_eq!((row.reason, row.call_name.as_deref()), (Some(reason), Some("pay")), "{}", row.error);
        assert!(row.error.contains("`pay`") && row.error.contains("`pay elsewhere`"), "{}", row.error);
    }
    for id in ["lost", "fails"] {
        assert_eq!(paying.counts(id).await, (1, 1, 0), "{id}");
    }
    // The version that has the call goes on with its answer.
    let answered = paying.0.dead().await.into_iter().find(|row| row.answer.is_some()).unwrap();
    assert_eq!(paying.0.operator().replay(answered.id).await.unwrap(), Replayed::Due);
    paying.completes("fails").await;
    assert_eq!(paying.counts("fails").await, (1, 1, 1));
}

/// Starts a version of the service whose provider knows keys, and one whose provider can be asked, or not.
fn start<W: World, const KEYED: bool, const ASKS: bool>(line: &Line<W>) -> Running {
    line.run_until_stopped(line.worker().handler::<Pays<W, KEYED, ASKS>>(), Settings::default())
}

/// The provider has not seen the key of a call that was made without it, and of one that was made with it nobody knows when the
/// last one began.
pub async fn a_call_that_gets_a_key_or_loses_it_goes_on_with_none_in_doubt<W: World>(world: W) {
    let paying = Paying::<W, false, true>::new(world).await;
    for keyed in [false, true] {
        let id = if keyed { "keyed" } else { "keyless" };
        paying.publish(id, [Fault::Hang]);
        let start_now = if keyed { start::<W, true, true> } else { start::<W, false, true> };
        let worker = start_now(&paying.0);
        until(async || paying.provider().charged(id) != 0).await;
        worker.crash().await;
        paying.time_passes(Duration::from_secs(3600)).await;
        let start_later = if keyed { start::<W, false, true> } else { start::<W, true, true> };
        let worker = start_later(&paying.0);
        let is_over = async || {
            let is_dead = paying.0.dead().await.iter().any(|row| row.identity.key == Key::of(id).unwrap());
            is_dead || paying.counts(id).await.2 > 0
        };
        until(is_over).await;
        worker.stop().await;
        assert_eq!((paying.counts(id).await, paying.0.desk.runs(&format!("question {id}"))), ((1, 1, 0), 0), "{id}");
    }
    for row in paying.0.dead().await {
        assert_eq!(row.reason, Some(Reason::Unresolved), "{}", row.error);
        assert!(row.error.contains("`pay (at most once)`") && row.error.contains("`pay`"), "{}", row.error);
        assert!(row.error.contains("that call may have sent none"), "{}", row.error);
    }
}
