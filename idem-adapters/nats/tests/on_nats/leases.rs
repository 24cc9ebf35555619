//! How long a lease lasts, and what is sent after its end.

use std::time::Duration;

use crate::common::{KEPT, SHORT, World, loss, next, nothing_for, subscribe_options};
use futures_util::StreamExt;
use idem_conformance::Proxy;
use idem_core::{Acker, Settled, Source};
use idem_nats::Nats;
use tokio::time::sleep;

#[tokio::test]
async fn a_handler_that_takes_longer_than_the_ack_wait_keeps_its_delivery() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut stream = world.open_for(1, KEPT).await;
    let (_, acker) = next(&mut stream).await;
    let mut another = world.open_for(1, KEPT).await;
    nothing_for(&mut another, KEPT * 2).await;
    assert!(acker.is_live());
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    world.until(0, 0).await;
}

#[tokio::test]
async fn buffered_deliveries_keep_their_leases() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..4).await;
    let mut stream = world.open_for(4, KEPT).await;
    world.until(0, 4).await;
    let mut another = world.open_for(4, KEPT).await;
    nothing_for(&mut another, KEPT * 2).await;
    for n in 0..4 {
        let (delivery, acker) = next(&mut stream).await;
        assert_eq!((delivery.payload(), delivery.redelivered()), (&n.to_string().into(), false));
        acker.ack().await.unwrap();
    }
}

/// Its handler may still run.
#[tokio::test]
async fn what_a_lost_connection_has_brought_keeps_its_lease_over_the_next_one() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    world.publish("x").await;
    let stream = Nats::connect(relay.address()).await.unwrap().stream(&world.stream).await.unwrap();
    let mut stream = stream.ack_wait(KEPT);
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let (_, acker) = next(&mut stream).await;
    relay.cut();
    loss(&mut stream).await;
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let mut another = world.open_for(1, KEPT).await;
    nothing_for(&mut another, KEPT * 2).await;
    assert!(acker.is_live());
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    world.until(0, 0).await;
}

#[tokio::test]
async fn no_delivery_is_kept_after_its_work_has_ended() {
    let Some(world) = World::new().await else { return };
    world.publish("dropped").await;
    let mut stream = world.open_short(1).await;
    drop(next(&mut stream).await);
    let mut another = world.open_short(1).await;
    let (delivery, _acker) = next(&mut another).await;
    assert_eq!((delivery.payload(), delivery.redelivered()), (&"dropped".into(), true));
}

#[tokio::test]
async fn no_delivery_is_kept_after_its_source_has_ended() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut stream = world.open_short(1).await;
    let (_, acker) = next(&mut stream).await;
    drop(stream);
    let mut another = world.open_short(1).await;
    assert!(next(&mut another).await.0.redelivered());
    assert!(!acker.is_live());
}

/// A late release would take the message from the worker that has it now.
#[tokio::test]
async fn a_release_after_the_lease_has_run_out_is_not_sent() {
    let Some((world, relay, _stream, old)) = World::delivered_through(1).await else { return };
    relay.hold(true);
    let mut another = world.open_short(1).await;
    let (delivery, new) = next(&mut another).await;
    assert!(delivery.redelivered());
    relay.hold(false);

    assert!(!old.is_live());
    assert_eq!(old.release().await.unwrap(), Settled::Stale);
    let mut third = world.open_short(1).await;
    nothing_for(&mut third, SHORT / 2).await;
    assert!(new.is_live());
    assert_eq!(new.ack().await.unwrap(), Settled::Confirmed);
}

/// The database has recorded the message, regardless of which worker has it now.
#[tokio::test]
async fn an_ack_after_the_lease_has_run_out_is_sent() {
    let Some((world, relay, _stream, old)) = World::delivered_through(1).await else { return };
    relay.hold(true);
    let mut another = world.open_short(1).await;
    let (_, new) = next(&mut another).await;
    drop(new);
    relay.hold(false);
    assert_eq!(old.ack().await.unwrap(), Settled::Confirmed);
    nothing_for(&mut another, SHORT * 2).await;
    world.until(0, 0).await;
}

#[tokio::test]
async fn a_buffered_delivery_with_an_expired_lease_is_not_handed_out() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    world.publish("x").await;
    let mut stream = world.open_through(&relay, 1).await;
    world.until(0, 1).await;
    relay.hold(true);
    let mut another = world.open_short(1).await;
    let (_, _new) = next(&mut another).await;
    relay.hold(false);
    nothing_for(&mut stream, SHORT / 2).await;
}

/// If no consumer listens on the ack subject, the server itself responds.
#[tokio::test]
async fn an_answer_that_there_is_no_consumer_confirms_nothing() {
    let Some((world, _stream, acker)) = World::delivered(1).await else { return };
    world.delete_consumer().await;
    // The consumer's subscription ends a moment after the response to its deletion.
    sleep(Duration::from_millis(200)).await;
    let answer = acker.ack().await;
    assert!(answer.as_ref().is_err_and(|error| error.to_string().contains("no responders")), "{answer:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_the_consumers_confirms_nothing() {
    let Some((world, _stream, acker)) = World::delivered(1).await else { return };
    world.delete_consumer().await;
    // The consumer's subscription ends a moment after the response to its deletion.
    sleep(Duration::from_millis(200)).await;
    let client = async_nats::connect(&world.url).await.unwrap();
    let mut asked = client.subscribe(format!("$JS.ACK.{}.>", world.stream)).await.unwrap();
    client.flush().await.unwrap();
    // The same server responds to this, so the subscription exists before the next step.
    client.request("$JS.API.INFO", "".into()).await.unwrap();
    let impostor = async {
        let message = asked.next().await.unwrap();
        assert_eq!(message.payload, "+ACK");
        client.publish(message.reply.unwrap(), "-ERR".into()).await.unwrap();
        client.flush().await.unwrap();
    };
    let (answer, ()) = tokio::join!(acker.ack(), impostor);
    assert!(answer.as_ref().is_err_and(|error| error.to_string().contains("not that of a consumer")), "{answer:?}");
}

#[tokio::test]
async fn an_ack_is_confirmed_by_nothing_but_its_answer() {
    let Some((_world, relay, _stream, acker)) = World::delivered_through(1).await else { return };
    relay.hold(true);
    let mut ack = std::pin::pin!(acker.ack());
    assert!(tokio::time::timeout(Duration::from_millis(300), ack.as_mut()).await.is_err(), "nobody has answered");
    relay.hold(false);
    assert_eq!(ack.await.unwrap(), Settled::Confirmed);
}

#[tokio::test]
async fn a_consumers_own_ack_wait_is_the_lease() {
    let Some(world) = World::new().await else { return };
    world.consumer(|config| config.ack_wait = KEPT).await;
    world.publish("x").await;
    let (mut stream, mut another) = (world.source().await, world.source().await);
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let (_, acker) = next(&mut stream).await;
    another.subscribe(subscribe_options(1)).await.unwrap();
    nothing_for(&mut another, KEPT * 2).await;
    assert!(acker.is_live());
}
