//! Calls that may have had an effect, and calls that come late: behind another call or version of the service, a pause, an outage
//! of the database, or an hour in which nobody has polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use idem_core::store::Replayed;
use idem_core::{BoxError, CallError, External, Found, OutboundKey, Reason, State};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::provider::Fault;

use super::desk::Desk;
use super::faulty::Do;
use super::line::Line;
use super::long_outages::{Silent, orphan_alone};
use super::neighbours::{has_effect, one_process};
use super::orders::Order;
use super::paying::{Charged, KEY_LIFE, MINUTE, Paying, PaysBy};
use super::settings::Settings;

const HOUR: Duration = Duration::from_secs(3600);

/// The call that the provider was too busy for had no effect, and the one before it may have had one: its key gets older.
pub async fn a_call_without_effect_ends_no_doubt_about_an_earlier_one<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer, Fault::Busy]);
    let worker = paying.start_with(Settings::late());
    paying.row(|row| row.attempts == 1).await;
    paying.time_passes(2 * HOUR).await;
    let row = paying.row(|row| row.attempts == 2).await;
    assert!(row.called_at.is_some(), "the first call is forgotten");
    paying.provider().forget();
    paying.time_passes(KEY_LIFE).await;
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 2, 1), 1));
}

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
    assert!(!paying.0.operator().discard(dead.id).await.unwrap(), "nobody would find what was paid");
    assert_eq!(paying.0.operator().replay(dead.id).await.unwrap(), Replayed::Due);
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!((paying.provider().ledger().len(), paying.counts("a").await), (1, (1, 2, 1)));
}

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

/// Its date is written while the orphaned row runs. If the orphaned row ended the process in a call that follows, the call would
/// be in doubt.
pub async fn a_call_behind_a_question_is_made_while_no_orphan_runs<W: World>(world: W) {
    let Some(other) = world.another().await else { return };
    let (paying, neighbour) = (Paying::<W, false, true>::new(world).await, Line::new(other).await);
    let (settings, silent) = (one_process(), Silent::new());
    paying.publish("a", [Fault::LoseRequest]);
    paying.fails_once().await;
    let worker = paying.start_over_with(silent.hook("date_call", None), silent.shown(&settings));
    silent.reached().await;
    silent.go_away().await;
    let beside = orphan_alone(&neighbour, settings).await;
    silent.open();
    paying.row(|row| row.locked_by.is_none()).await;
    // There is no signal that it is not made.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(paying.counts("a").await, (0, 1, 0), "the first request was lost");
    neighbour.desk.go.send_replace(true);
    has_effect(&neighbour, "orphan").await;
    silent.come_back();
    paying.completed("a").await;
    worker.stop().await;
    beside.stop().await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
}

/// A worker looks for calls that became due since its last fetch, and every few seconds for all of them.
pub async fn a_call_that_was_due_long_ago_is_made_by_a_worker_that_runs<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer]);
    let (fetches, of_all) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (fetches.clone(), of_all.clone());
    let worker = paying.start_over(move |method, _| {
        match method {
            "fetch_calls" => _ = counts.0.fetch_add(1, Relaxed),
            "fetch_all_calls" => _ = counts.1.fetch_add(1, Relaxed),
            _ => {}
        }
        Do::Work
    });
    paying.row(|row| row.attempts == 1).await;
    paying.time_passes(HOUR).await;
    paying.completed("a").await;
    let before = of_all.load(Relaxed);
    until(async || of_all.load(Relaxed) != before).await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    let (fetches, of_all) = (fetches.load(Relaxed), of_all.load(Relaxed));
    assert!(fetches > 5 * of_all, "{of_all} of {fetches} fetches have looked for all calls");
}
