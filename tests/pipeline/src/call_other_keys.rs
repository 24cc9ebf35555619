//! Messages, handlers and databases whose calls have other keys: under one key, the provider would answer the second call with
//! the result of the first one, and it would have no effect.

use std::time::Duration;

use idem_core::store::Replayed;
use idem_core::{CallError, External, Key, OutboundKey, Reason, State};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::Publication;

use super::call_keys::{POSITION, comes, forget, order_at, rename};
use super::desk::Desk;
use super::orders::{Act, Order};
use super::paying::{Charged, KEY_LIFE, Paying, PaysBy};
use super::settings::Settings;

/// A later position in the stream.
const LATER: &str = "ORDERS/8@1702592000000000000";

/// Another call to the same provider.
struct Capture;

impl External for Capture {
    const NAME: &'static str = "capture";
    const KEY_LIFE: Option<Duration> = Some(KEY_LIFE);

    type Message = Order;
    type Params = (OutboundKey, State<Desk>);
    type Answer = Charged;

    async fn call(order: &Order, (key, State(desk)): Self::Params) -> Result<Charged, CallError> {
        let reply = desk.provider.charge(Some(key.as_str()), &order.id).await?;
        Ok(Charged { number: reply.body })
    }
}

/// Asserts that there were two requests, under two keys, and two charges.
fn is_charged_twice<W: World>(paying: &Paying<W>) {
    let keys = paying.provider().requests("a");
    assert_eq!((keys.len(), paying.provider().charged("a")), (2, 2), "{keys:?}");
    assert_ne!(keys[0], keys[1]);
}

/// It also has the same content, as an event that tells of the next month. The provider remembers the key of the first one.
pub async fn another_message_with_the_key_of_a_pruned_claim_is_charged<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    comes(&paying, paying.start(), order_at(LATER)).await;
    is_charged_twice(&paying);
}

/// The producer has published it twice. Behind the restored backup only the second copy comes, which cannot be told from another
/// message.
pub async fn another_copy_of_a_message_calls_under_another_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let worker = paying.start();
    paying.0.publish(order_at(POSITION));
    paying.completed("a").await;
    comes(&paying, worker, order_at(LATER)).await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
    forget(&paying).await;
    comes(&paying, paying.start(), order_at(LATER)).await;
    is_charged_twice(&paying);
}

/// It cannot be told from one that comes again, so it counts as another one.
pub async fn another_message_without_a_position_is_charged<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    for _ in 0..2 {
        comes(&paying, paying.start(), Publication::from(Order::ok("a"))).await;
        forget(&paying).await;
    }
    is_charged_twice(&paying);
}

/// A person has decided that it is another message.
pub async fn a_conflict_that_is_replayed_under_another_key_is_charged<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    let worker = paying.start();
    paying.0.publish(Publication::from(Order::new("a", &[Act::Ok, Act::Ok])).position(LATER));
    let conflict = paying.dead().await;
    assert_eq!(conflict.reason, Some(Reason::Conflict));
    let second = Key::of("a, the second").unwrap();
    assert_eq!(paying.0.operator().replay_as(conflict.id, &second).await.unwrap(), Replayed::Due);
    until(async || paying.counts("a").await.2 >= 2).await;
    worker.stop().await;
    is_charged_twice(&paying);
}

/// The restored database has no namespace for it, so a worker makes another one. A second charge is found; a missing one is not.
pub async fn a_handler_that_is_newer_than_the_backup_calls_under_other_keys<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    let handlers = paying.0.world.own("handlers");
    paying.0.world.run(&format!("DELETE FROM {handlers}")).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    is_charged_twice(&paying);
}

/// It is another handler, so the effects of the renamed one do not count for it.
pub async fn a_handler_under_a_name_that_another_one_has_left_calls_under_other_keys<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    rename(&paying).await;
    forget(&paying).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    is_charged_twice(&paying);
}

/// A capture is not the authorization that the handler made before.
pub async fn a_handler_with_another_call_calls_under_other_keys<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    let line = &paying.0;
    let worker = line.run_until_stopped(line.worker().handler::<PaysBy<W, Capture>>(), Settings::default());
    comes(&paying, worker, order_at(POSITION)).await;
    is_charged_twice(&paying);
}

/// It uses the same account of the provider as the original, and has to charge as well. A handler that got its call after the
/// backup is in the same state.
pub async fn a_copy_whose_namespaces_were_deleted_calls_under_other_keys<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    let namespaces = paying.0.world.own("call_namespaces");
    paying.0.world.run(&format!("DELETE FROM {namespaces}")).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    is_charged_twice(&paying);
}
