//! What is refused, and what is warned of, when a worker starts.

use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use idem_conformance::{captured, subscribe};
use idem_core::{Acker, DeliveryOrder, Error, Source};
use idem_sqs::Sqs;

use crate::common::{World, config, loss, next, refusal, subscribe_options, url};

#[tokio::test]
async fn a_queue_that_does_not_exist_is_named_with_its_remedy() {
    let Some(url) = url() else { return };
    let sqs = Sqs::new(&config(&url));
    for queue in ["idem-test-none", &format!("{url}/000000000000/idem-test-none")] {
        let Err(error) = sqs.queue(queue).await else { panic!("{queue}") };
        let text = error.to_string();
        assert!(matches!(error, Error::Config(_)), "{text}");
        assert!(text.contains("`idem-test-none`") && text.contains("aws sqs create-queue"), "{text}");
    }
    let Err(error) = sqs.queue("no queue").await else { panic!("it is no name") };
    assert!(error.to_string().contains("its URL or its ARN"), "{error}");
}

#[tokio::test]
async fn a_queue_is_found_by_its_url_and_its_arn() {
    let Some(world) = World::new().await else { return };
    for given in [world.queue_url.clone(), format!("arn:aws:sqs:eu-west-1:000000000000:{}", world.queue)] {
        world.publish("a").await;
        let mut queue = world.sqs().queue(given).await.unwrap().wait_time(Duration::from_secs(1));
        queue.subscribe(subscribe_options(1)).await.unwrap();
        assert_eq!(queue.name(), world.queue);
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.source(), world.queue);
        acker.ack().await.unwrap();
        queue.close().await;
    }
    let elsewhere = format!("arn:aws:sqs:us-east-1:000000000000:{}", world.queue);
    let Err(error) = world.sqs().queue(elsewhere).await else { panic!("it is in another region") };
    assert!(error.to_string().contains("give it a configuration of us-east-1"), "{error}");
}

#[tokio::test]
async fn an_incomplete_configuration_is_refused_and_does_not_panic() {
    let Some(url) = url() else { return };
    let complete = || config(&url).into_builder();
    let (mut no_region, mut no_version) = (complete(), complete());
    no_region.set_region(None);
    no_version.set_behavior_version(None);
    for (config, says) in [(no_region, "no region"), (no_version, "behavior version")] {
        let Err(error) = Sqs::new(&config.build()).queue("orders").await else { panic!("{says}") };
        assert!(matches!(&error, Error::Config(text) if text.contains(says)), "{error}");
    }
}

#[tokio::test]
async fn a_redrive_policy_is_refused_unless_its_queue_is_accepted_and_then_warned_of() {
    let Some(dead) = World::new().await else { return };
    let policy =
        format!(r#"{{"deadLetterTargetArn":"arn:aws:sqs:elasticmq:000000000000:{}","maxReceiveCount":5}}"#, dead.queue);
    let Some(world) = World::with(&[(QueueAttributeName::RedrivePolicy, &policy)]).await else { return };
    let text = refusal(world.source().await, subscribe_options(1)).await;
    assert!(text.contains(&format!(".accept_redrive_to({:?})", dead.queue)), "{text}");

    let (log, subscriber) = captured();
    let _guard = subscribe(subscriber);
    let mut queue = world.source().await.accept_redrive_to(&dead.queue);
    for _ in 0..2 {
        queue.subscribe(subscribe_options(1)).await.unwrap();
    }
    assert_eq!(log.to_string().matches("has another id").count(), 1, "{log}");
}

#[tokio::test]
async fn a_visibility_that_cannot_be_extended_in_time_is_refused() {
    let Some(world) = World::with(&[(QueueAttributeName::VisibilityTimeout, "2")]).await else { return };
    let text = refusal(world.source().await, subscribe_options(1)).await;
    assert!(text.contains("2s") && text.contains(".visibility(..)"), "{text}");
    let mut queue = world.source().await.visibility(Duration::from_secs(3));
    queue.subscribe(subscribe_options(1)).await.unwrap();
}

#[tokio::test]
async fn only_a_fifo_queue_keeps_an_order() {
    let (Some(standard), Some(fifo)) = (World::new().await, World::fifo().await) else { return };
    let with = |order| subscribe_options(1).with_order(order);
    for (world, order) in [
        (&standard, DeliveryOrder::Key),
        (&standard, DeliveryOrder::Queue),
        (&fifo, DeliveryOrder::Queue),
        (&fifo, DeliveryOrder::Partition),
    ] {
        let text = refusal(world.source().await, with(order)).await;
        assert!(text.contains("FIFO queue"), "{text}");
    }
    let (log, subscriber) = captured();
    let _guard = subscribe(subscriber);
    fifo.source().await.subscribe(with(DeliveryOrder::Key)).await.unwrap();
    assert!(!log.to_string().contains("keeps no order"), "{log}");
    fifo.source().await.subscribe(with(DeliveryOrder::None)).await.unwrap();
    assert!(log.to_string().contains("keeps no order"), "{log}");
}

/// SQS answers the receive under way with an error. ElasticMQ never answers it.
#[tokio::test]
async fn a_queue_that_is_deleted_while_it_is_consumed_is_an_error_and_is_not_created_again() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.open(1).await;
    world.delete().await;
    let lost = loss(&mut queue).await.to_string();
    assert!(lost.contains(&world.queue), "{lost}");
    let text = refusal(queue, subscribe_options(1)).await;
    assert!(text.contains("does not exist"), "{text}");
}

#[tokio::test]
async fn no_text_shows_a_secret() {
    let Some(url) = url() else { return };
    let config = config(&url);
    let sqs = Sqs::new(&config);
    let shown = format!("{sqs:?} {:?} {:?}", sqs.queues(""), sqs.queue("idem-test-none").await);
    assert!(!shown.contains("ntinel") && shown.contains("eu-west-1"), "{shown}");
}
