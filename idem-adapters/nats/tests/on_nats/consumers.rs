//! The settings of a consumer: how it is created, and what happens if it exists with other settings.

use std::time::Duration;

use crate::common::{World, next, nothing_for, refusal, subscribe_options};
use async_nats::jetstream::consumer::{AckPolicy, Config};
use idem_core::{Acker, Source};

type Change = fn(&mut Config);

#[tokio::test]
async fn a_consumer_is_made_as_it_must_be() {
    let Some(world) = World::new().await else { return };
    let _stream = world.open(2000).await;
    let config = world.info().await.config;
    assert_eq!((config.durable_name.as_deref(), config.deliver_subject), (Some("billing"), None));
    assert_eq!((config.ack_policy, config.max_deliver, config.backoff), (AckPolicy::Explicit, -1, vec![]));
    assert_eq!((config.ack_wait, config.max_ack_pending), (Duration::from_secs(30), -1));
}

#[tokio::test]
async fn a_consumer_with_other_settings_is_refused_with_the_difference_or_updated() {
    let Some(world) = World::new().await else { return };
    let cases: [(&str, Change); 6] = [
        ("max_deliver: is 5, must be -1 (unlimited)", |config| config.max_deliver = 5),
        ("backoff: is [2s, 4s], must be none", |config| {
            (config.max_deliver, config.backoff) = (3, vec![Duration::from_secs(2), Duration::from_secs(4)]);
        }),
        ("ack_wait: is 100ms, must be 1s or more", |config| config.ack_wait = Duration::from_millis(100)),
        ("max_ack_pending: is 3, must be 4 or more", |config| config.max_ack_pending = 3),
        ("headers_only: is true, must be false", |config| config.headers_only = true),
        ("inactive_threshold: is 60s, must be none", |config| config.inactive_threshold = Duration::from_secs(60)),
    ];
    for (difference, change) in cases {
        world.consumer(change).await;
        let error = refusal(world.source().await, subscribe_options(4)).await;
        assert!(error.contains(difference) && error.contains(".reconcile()"), "{error}");
        assert!(error.contains("consumer `billing`") && error.contains(&world.stream), "{error}");

        let mut stream = world.source().await.reconcile();
        stream.subscribe(subscribe_options(4)).await.unwrap_or_else(|error| panic!("{difference}: {error}"));
        stream.close().await;
        world.source().await.subscribe(subscribe_options(4)).await.unwrap();
        world.delete_consumer().await;
    }
}

/// An upgrade must neither stop a worker whose consumer has room for what it processes, nor halve what is left for others.
#[tokio::test]
async fn a_limit_of_the_consumer_leaves_no_room_for_messages_that_only_wait() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..6).await;
    world.consumer(|config| config.max_ack_pending = 5).await;
    let mut options = subscribe_options(6);
    let error = refusal(world.source().await, options.clone()).await;
    assert!(error.contains("must be 6 or more") && error.contains(".batch(..)"), "{error}");
    options.least_unsettled = 4;
    let mut stream = world.source().await;
    stream.subscribe(options).await.unwrap();
    assert_eq!(stream.capacity(), Some(4));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(next(&mut stream).await);
    }
    world.steal().await;
    world.until(1, 5).await;
    drop(held);
}

#[tokio::test]
async fn all_differences_are_named_at_once() {
    let Some(world) = World::new().await else { return };
    world.consumer(|config| (config.max_deliver, config.max_ack_pending) = (5, 3)).await;
    let error = refusal(world.source().await, subscribe_options(4)).await;
    assert!(error.contains("max_deliver: is 5") && error.contains("max_ack_pending: is 3"), "{error}");
}

#[tokio::test]
async fn an_update_leaves_the_other_settings_and_the_place_as_they_were() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..2).await;
    world.consumer(|config| (config.max_deliver, config.description) = (5, Some("by hand".to_owned()))).await;
    let message = world.steal().await;
    message.double_ack().await.unwrap();
    let mut stream = world.source().await.reconcile();
    stream.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut stream).await.0.payload(), "1");
    let config = world.info().await.config;
    assert_eq!((config.max_deliver, config.description.as_deref()), (-1, Some("by hand")));
}

#[tokio::test]
async fn settings_that_the_server_cannot_change_are_refused_despite_reconcile() {
    let Some(world) = World::new().await else { return };
    let cases: [(&str, Change); 2] = [
        ("ack_policy: is all, must be explicit (cannot be changed)", |config| config.ack_policy = AckPolicy::All),
        ("deliver_subject: is `there`, must be none (a pull consumer)", |config| {
            config.deliver_subject = Some("there".to_owned());
        }),
    ];
    for (difference, change) in cases {
        world.consumer(change).await;
        let error = refusal(world.source().await.reconcile(), subscribe_options(4)).await;
        assert!(error.contains(difference) && error.contains(".durable(..)"), "{error}");
        world.delete_consumer().await;
    }
}

#[tokio::test]
async fn an_ack_wait_that_was_asked_for_is_what_the_consumer_must_have() {
    let Some(world) = World::new().await else { return };
    world.consumer(|config| config.ack_wait = Duration::from_secs(5)).await;
    let error = refusal(world.source().await.ack_wait(Duration::from_secs(7)), subscribe_options(1)).await;
    assert!(error.contains("ack_wait: is 5s, must be 7s"), "{error}");
    world.source().await.ack_wait(Duration::from_secs(7)).reconcile().subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(world.info().await.config.ack_wait, Duration::from_secs(7));
}

#[tokio::test]
async fn an_ack_wait_below_a_second_is_refused_before_anything_is_made() {
    let Some(world) = World::new().await else { return };
    let error = refusal(world.source().await.ack_wait(Duration::from_millis(999)), subscribe_options(1)).await;
    assert!(error.contains("1s"), "{error}");
    world.jetstream.get_stream(&world.stream).await.unwrap().consumer_info("billing").await.unwrap_err();
}

#[tokio::test]
async fn another_filter_is_refused_or_updated() {
    let Some(world) = World::new().await else { return };
    let (one, two) = (format!("{}.x", world.stream), format!("{}.y", world.stream));
    let filter = one.clone();
    world.consumer(move |config| config.filter_subject = filter).await;
    let error = refusal(world.source().await, subscribe_options(1)).await;
    assert!(error.contains(&format!("filter: is `{one}`, must be none")), "{error}");
    let error = refusal(world.source().await.filter_subject(&two), subscribe_options(1)).await;
    assert!(error.contains(&format!("filter: is `{one}`, must be `{two}`")), "{error}");
    world.source().await.filter_subject(&one).subscribe(subscribe_options(1)).await.unwrap();
    world.source().await.filter_subject(&two).reconcile().subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(world.info().await.config.filter_subject, two);
}

#[tokio::test]
async fn several_filters_are_taken_by_servers_that_know_them_and_refused_otherwise() {
    let Some(world) = World::new().await else { return };
    let subject = |name: &str| format!("{}.{name}", world.stream);
    let filtered = || async { world.source().await.filter_subject(subject("x")).filter_subject(subject("y")) };
    let client = async_nats::connect(&world.url).await.unwrap();
    if !client.is_server_compatible(2, 10, 0) {
        let error = refusal(filtered().await, subscribe_options(1)).await;
        assert!(error.contains("older than 2.10"), "{error}");
        return;
    }
    let mut stream = filtered().await;
    stream.subscribe(subscribe_options(3)).await.unwrap();
    stream.subscribe(subscribe_options(3)).await.unwrap();
    for name in ["x", "z", "y"] {
        world.jetstream.publish(subject(name), name.into()).await.unwrap().await.unwrap();
    }
    for name in ["x", "y"] {
        let (delivery, acker) = next(&mut stream).await;
        assert_eq!(delivery.payload(), name);
        acker.ack().await.unwrap();
    }
    nothing_for(&mut stream, Duration::from_millis(100)).await;
}
