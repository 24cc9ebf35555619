//! Delivery limits of queues, and limits by which they delete what was not processed.

use crate::common::{World, subscribe_options};
use idem_core::{Error, Source};
use idem_rabbitmq::RabbitMq;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

/// Returns the errors of `queue` and `declare` for the world's queue.
async fn refusals(world: &World) -> [String; 2] {
    let rabbit = world.rabbit().await;
    [rabbit.queue(&world.queue).await.unwrap_err(), rabbit.declare(&world.queue).await.unwrap_err()].map(|error| {
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        error.to_string()
    })
}

#[tokio::test]
async fn a_queue_with_a_delivery_limit_is_refused_with_the_remedy() {
    let Some(world) = World::empty().await else { return };
    world.declare_as_is("quorum", &[("x-delivery-limit", AMQPValue::LongInt(5))]).await;
    for error in refusals(&world).await {
        assert!(error.contains("x-delivery-limit=5") && error.contains(&world.queue), "{error}");
        assert!(error.contains("declare a queue with another name"), "{error}");
    }
    let said = RabbitMq::options(&world.url).delivery_limit_by_policy().connect().await.unwrap();
    assert!(said.queue(&world.queue).await.is_err(), "the argument goes before a policy");
}

/// Before 4.0, it would drop a message at its first return.
#[tokio::test]
async fn a_negative_limit_is_refused_before_4_0() {
    let Some(world) = World::empty().await else { return };
    world.declare_as_is("quorum", &[("x-delivery-limit", AMQPValue::LongInt(-1))]).await;
    if world.major().await >= 4 {
        assert!(world.rabbit().await.queue(&world.queue).await.is_ok());
        return;
    }
    for error in refusals(&world).await {
        assert!(error.contains("x-delivery-limit=-1") && error.contains(&world.queue), "{error}");
    }
}

#[tokio::test]
async fn a_queue_without_a_limit_needs_a_policy_from_4_0_on() {
    let Some(world) = World::empty().await else { return };
    world.declare_as_is("quorum", &[]).await;
    if world.major().await >= 4 {
        let rabbit = world.rabbit().await;
        let unseen = rabbit.queue_unverified(&world.queue).await.unwrap_err().to_string();
        assert!(unseen.contains("21st return") && unseen.contains(".without_delivery_limit()"), "{unseen}");
        for error in refusals(&world).await {
            assert!(error.contains("21st return") && error.contains(".delivery_limit_by_policy()"), "{error}");
        }
        rabbit.queue_unverified(&world.queue).without_delivery_limit().await.unwrap();
        rabbit.queue(&world.queue).without_delivery_limit().await.unwrap();
    }
    let said = RabbitMq::options(&world.url).delivery_limit_by_policy().connect().await.unwrap();
    for mut queue in [said.queue(&world.queue).await.unwrap(), said.declare(&world.queue).await.unwrap()] {
        queue.subscribe(subscribe_options(1)).await.unwrap();
        queue.close().await;
    }
}

#[tokio::test]
async fn a_queue_that_is_declared_has_no_delivery_limit() {
    let Some(world) = World::empty().await else { return };
    let rabbit = world.rabbit().await;
    let mut queue = rabbit.declare(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;
    // The server refuses to declare it again with other arguments.
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    if world.major().await >= 4 {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(-1));
    }
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    world.channel.queue_declare(world.queue.as_str().into(), options, arguments).await.unwrap();
    assert!(rabbit.queue(&world.queue).await.is_ok());
    world.delete().await;
}

#[tokio::test]
async fn a_queue_that_deletes_unprocessed_messages_is_refused_unless_that_is_accepted() {
    let long = |text: &str| AMQPValue::LongString(text.into());
    for (name, value) in [
        ("x-expires", AMQPValue::LongInt(60_000)),
        ("x-message-ttl", AMQPValue::LongInt(60_000)),
        ("x-max-length", AMQPValue::LongInt(100)),
        ("x-max-length-bytes", AMQPValue::LongInt(100)),
    ] {
        for kind in ["quorum", "classic", "classic by default"] {
            let Some(world) = World::empty().await else { return };
            let rabbit = world.rabbit().await;
            match kind {
                "classic by default" => {
                    let mut table = FieldTable::default();
                    table.insert(name.into(), value.clone());
                    let options = QueueDeclareOptions { durable: true, ..Default::default() };
                    world.channel.queue_declare(world.queue.as_str().into(), options, table).await.unwrap();
                }
                kind => world.declare(kind, &[(name, value.clone()), ("x-overflow", long("drop-head"))]).await,
            }
            let open =
                || if kind == "quorum" { rabbit.queue(&world.queue) } else { rabbit.classic_queue(&world.queue) };
            let error = open().await.unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{error:?}");
            let error = error.to_string();
            for part in
                [&format!("{name}="), &*world.queue, "declare a queue with another name", ".may_delete_unprocessed()"]
            {
                assert!(error.contains(part), "{part} is not in {error}");
            }
            let mut queue = open().may_delete_unprocessed().await.unwrap();
            queue.subscribe(subscribe_options(1)).await.unwrap();
            // It could delete what a worker releases.
            assert_eq!(queue.unsettled_limit().is_none(), matches!(name, "x-expires" | "x-message-ttl"));
            queue.close().await;
        }
    }
}

#[tokio::test]
async fn a_queue_that_would_delete_unprocessed_messages_is_not_declared_unless_that_is_accepted() {
    let Some(world) = World::empty().await else { return };
    let rabbit = world.rabbit().await;
    let declare = || rabbit.declare(&world.queue).argument("x-expires", 60_000);
    let error = declare().await.unwrap_err().to_string();
    assert!(error.contains("x-expires=60000") && error.contains(".may_delete_unprocessed()"), "{error}");
    let error = rabbit.queue(&world.queue).await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
    declare().may_delete_unprocessed().await.unwrap();
}
