//! Answers of SQS that no test server gives: missing permissions, expired credentials, throttling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use futures_util::future::join_all;
use idem_conformance::sink::publish;
use idem_conformance::{captured, subscribe, until};
use idem_core::{Acker, Error, Outgoing, Settled, Sink, SinkError, Source, StagedMessage};
use idem_sqs::{EventBus, Queue, Sqs};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::common::fake::{empty_queue, error, failed_entry, message, serve};
use crate::common::{SHORT, config, loss, next, nothing_for, subscribe_options};

/// A queue whose server answers this action with this error while the flag is set, and the flag.
async fn failing(action: &'static str, status: u16, code: &'static str) -> (Sqs, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&fails);
    let url = serve(move |asked, _| match asked == action && flag.load(SeqCst) {
        true => error(status, code, "because of a test"),
        false => empty_queue(asked),
    })
    .await;
    (Sqs::new(&config(&url)), fails)
}

async fn open(sqs: &Sqs) -> Result<Queue, Error> {
    open_for(sqs, 10).await
}

async fn open_for(sqs: &Sqs, max_unsettled: u16) -> Result<Queue, Error> {
    let mut queue = sqs.queue("orders").await?.wait_time(Duration::from_secs(1));
    match queue.subscribe(subscribe_options(max_unsettled)).await {
        Ok(()) => Ok(queue),
        Err(error) => Err(*error.downcast().unwrap()),
    }
}

#[tokio::test]
async fn a_missing_permission_is_refused_at_the_start_and_named() {
    for (action, named) in [
        ("GetQueueUrl", "sqs:GetQueueUrl"),
        ("GetQueueAttributes", "sqs:GetQueueAttributes"),
        ("DeleteMessageBatch", "sqs:DeleteMessage:"),
        ("ChangeMessageVisibilityBatch", "sqs:ChangeMessageVisibility:"),
        ("ReceiveMessage", "sqs:ReceiveMessage"),
    ] {
        let (sqs, denies) = failing(action, 403, "AccessDeniedException").await;
        let Err(error) = open(&sqs).await else { panic!("{action}") };
        assert!(matches!(&error, Error::Config(text) if text.contains(named)), "{error}");
        denies.store(false, SeqCst);
        open(&sqs).await.unwrap();
    }
}

#[tokio::test]
async fn credentials_that_expire_are_an_error_of_the_broker_until_they_are_replaced() {
    let (sqs, expired) = failing("ReceiveMessage", 403, "ExpiredTokenException").await;
    expired.store(false, SeqCst);
    let mut queue = open(&sqs).await.unwrap();
    expired.store(true, SeqCst);
    let text = loss(&mut queue).await.to_string();
    assert!(text.contains("missing, wrong or expired"), "{text}");
    let again = queue.subscribe(subscribe_options(10)).await.unwrap_err();
    assert!(matches!(again.downcast_ref(), Some(Error::Broker { .. })), "{again}");
    expired.store(false, SeqCst);
    queue.subscribe(subscribe_options(10)).await.unwrap();
}

/// The SDK would consume the queue of that name in its own region.
#[tokio::test]
async fn a_queue_of_another_region_is_refused_by_its_url_and_its_arn() {
    let url = serve(|asked, _| empty_queue(asked)).await;
    let sqs = Sqs::new(&config(&url));
    for queue in ["https://sqs.us-east-1.amazonaws.com/1/orders", "arn:aws:sqs:us-east-1:1:orders"] {
        let Err(Error::Config(text)) = sqs.queue(queue).await else { panic!("{queue}") };
        assert!(text.contains("another region") && text.contains("eu-west-1"), "{text}");
    }
    sqs.queue("https://sqs.eu-west-1.amazonaws.com/1/orders").await.unwrap();
}

#[tokio::test]
async fn a_retention_below_a_day_is_warned_of() {
    let (log, subscriber) = captured();
    let _guard = subscribe(subscriber);
    for (retention, warnings) in [("86400", 0), ("3600", 1)] {
        let url = serve(move |asked, _| match asked {
            "GetQueueAttributes" => (200, format!(r#"{{"Attributes":{{"MessageRetentionPeriod":"{retention}"}}}}"#)),
            _ => empty_queue(asked),
        })
        .await;
        open(&Sqs::new(&config(&url))).await.unwrap();
        assert_eq!(log.to_string().matches("MessageRetentionPeriod to a day").count(), warnings, "{log}");
    }
}

#[tokio::test]
async fn throttling_and_a_wrong_clock_are_named() {
    for (status, code, says) in
        [(400, "RequestThrottled", "RequestThrottled"), (403, "RequestExpired", "the clock of this machine")]
    {
        let (sqs, fails) = failing("ReceiveMessage", status, code).await;
        let Err(error @ Error::Broker { .. }) = open(&sqs).await else { panic!("{code}") };
        assert!(error.to_string().contains(says), "{error}");
        fails.store(false, SeqCst);
        open(&sqs).await.unwrap();
    }
}

/// Other credentials each time. The SDK uses them for a few seconds, and asks for others well before they expire.
#[derive(Debug, Default)]
struct Rotating(AtomicUsize);

impl ProvideCredentials for Rotating {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let key = format!("rotated-{}", self.0.fetch_add(1, SeqCst));
        let expiry = SystemTime::now() + Duration::from_secs(11);
        future::ProvideCredentials::ready(Ok(Credentials::new(key, "s3ntinel", None, Some(expiry), "test")))
    }
}

#[tokio::test]
async fn credentials_that_were_rotated_are_used_without_a_new_source() {
    let revoked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&revoked);
    let url = serve(move |asked, signed| match signed.contains("rotated-0/") && flag.load(SeqCst) {
        true => error(403, "ExpiredTokenException", "because of a test"),
        false => empty_queue(asked),
    })
    .await;
    let mut config = config(&url).into_builder();
    config.set_credentials_provider(Some(SharedCredentialsProvider::new(Rotating::default())));
    let mut queue = open(&Sqs::new(&config.build())).await.unwrap();
    revoked.store(true, SeqCst);
    let rotated = async || queue.subscribe(subscribe_options(10)).await.is_ok();
    until(rotated).await;
}

#[tokio::test]
async fn a_relay_refuses_a_message_only_if_the_queue_does() {
    for (status, code, is_refused) in [
        (403, "AccessDeniedException", true),
        (403, "ExpiredTokenException", false),
        (403, "RequestExpired", false),
        (400, "RequestThrottled", false),
    ] {
        let (sqs, _) = failing("SendMessageBatch", status, code).await;
        let message = StagedMessage::new(Uuid::now_v7(), Outgoing::new("orders", "{}"));
        let error = publish(&sqs.queues(""), &message).await.unwrap_err();
        assert_eq!(matches!(error, SinkError::Message(_)), is_refused, "{error:?}");
    }
}

#[tokio::test]
async fn each_event_of_a_request_has_its_own_result() {
    let body = r#"{"FailedEntryCount":2,"Entries":[
        {"EventId":"e-1"},{"ErrorCode":"ThrottlingException"},{"ErrorCode":"NotAuthorizedForSourceException"}]}"#;
    let url = serve(move |_, _| (200, body.to_owned())).await;
    let bus = EventBus::new(&config(&url), "orders", "shop");
    let messages = [(); 4].map(|()| StagedMessage::new(Uuid::now_v7(), Outgoing::new("paid", "{}")));
    let results = join_all(messages.iter().map(|message| publish(&bus, message))).await;
    let [Ok(()), Err(SinkError::Broker(_)), Err(SinkError::Message(_)), Err(SinkError::Broker(_))] = &*results else {
        panic!("{results:?}");
    };
}

#[tokio::test]
async fn an_ack_that_fails_because_of_a_fault_of_the_service_is_sent_again() {
    let deletes = AtomicUsize::new(0);
    let url = serve(move |asked, _| match asked {
        "ReceiveMessage" => message(deletes.load(SeqCst)),
        "DeleteMessageBatch" => match deletes.fetch_add(1, SeqCst) {
            // It asks whether deletes are allowed.
            0 => empty_queue(asked),
            1 => failed_entry("InternalError"),
            _ => (200, r#"{"Successful":[{"Id":"0"}],"Failed":[]}"#.to_owned()),
        },
        _ => empty_queue(asked),
    })
    .await;
    let mut queue = open_for(&Sqs::new(&config(&url)), 1).await.unwrap();
    let (_, acker) = next(&mut queue).await;
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
}

/// Otherwise, a queue with a visibility timeout of an hour would stand for as long.
#[tokio::test]
async fn an_ack_without_an_answer_makes_room_for_another_delivery() {
    let receives = AtomicUsize::new(0);
    let url = serve(move |asked, _| match asked {
        "ReceiveMessage" => message(receives.fetch_add(1, SeqCst)),
        "DeleteMessageBatch" if receives.load(SeqCst) > 0 => error(500, "InternalError", "because of a test"),
        _ => empty_queue(asked),
    })
    .await;
    let mut queue = open_for(&Sqs::new(&config(&url)), 1).await.unwrap();
    let (_, acker) = next(&mut queue).await;
    assert!(timeout(Duration::from_millis(100), acker.ack()).await.is_err());
    next(&mut queue).await;
}

#[tokio::test]
async fn a_delivery_is_extended_although_each_subscription_is_lost_at_once() {
    let receives = AtomicUsize::new(0);
    let url = serve(move |asked, _| match asked {
        "ReceiveMessage" => match receives.fetch_add(1, SeqCst) {
            0 => message(0),
            // The first one of a subscription.
            number if number % 2 == 0 => empty_queue(asked),
            _ => error(500, "InternalError", "because of a test"),
        },
        "ChangeMessageVisibilityBatch" => (200, r#"{"Successful":[{"Id":"0"}],"Failed":[]}"#.to_owned()),
        _ => empty_queue(asked),
    })
    .await;
    let mut queue = Sqs::new(&config(&url)).queue("orders").await.unwrap().visibility(SHORT);
    queue.subscribe(subscribe_options(2)).await.unwrap();
    let (_, acker) = next(&mut queue).await;
    let began = Instant::now();
    while began.elapsed() < SHORT * 2 {
        loss(&mut queue).await;
        sleep(SHORT / 20).await;
        queue.subscribe(subscribe_options(2)).await.unwrap();
    }
    assert!(acker.is_live());
}

/// Such timeouts are usual for other services that share the configuration.
#[tokio::test]
async fn a_receive_waits_for_longer_than_the_timeouts_of_the_application() {
    let url = serve(|asked, _| empty_queue(asked)).await;
    let short = Duration::from_millis(500);
    let timeouts =
        TimeoutConfig::builder().read_timeout(short).operation_timeout(short).operation_attempt_timeout(short);
    let config = config(&url).into_builder().timeout_config(timeouts.build()).build();
    let mut queue = open(&Sqs::new(&config)).await.unwrap();
    nothing_for(&mut queue, Duration::from_millis(2500)).await;
}

#[tokio::test]
async fn a_redrive_policy_that_a_queue_is_given_while_it_is_consumed_is_logged_once() {
    let has_policy = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_policy);
    let url = serve(move |asked, _| match asked {
        "GetQueueAttributes" if flag.load(SeqCst) => {
            let policy = r#"{\"deadLetterTargetArn\":\"arn:aws:sqs:r:1:dead\",\"maxReceiveCount\":3}"#;
            (200, format!(r#"{{"Attributes":{{"ApproximateNumberOfMessages":"7","RedrivePolicy":"{policy}"}}}}"#))
        }
        _ => empty_queue(asked),
    })
    .await;
    let (log, subscriber) = captured();
    let _guard = subscribe(subscriber);
    let queue = open(&Sqs::new(&config(&url))).await.unwrap();
    let lag = queue.lag().unwrap();
    lag.call().await.unwrap();
    has_policy.store(true, SeqCst);
    for _ in 0..2 {
        assert_eq!(lag.call().await.unwrap()[0].1, 7);
    }
    assert_eq!(log.to_string().matches("was given a redrive policy").count(), 1, "{log}");
}

/// EventBridge drops such an event, and its answer has an id.
#[tokio::test]
async fn an_event_to_a_bus_that_was_deleted_is_not_confirmed_until_the_bus_is_there_again() {
    let is_deleted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_deleted);
    let url = serve(move |asked, _| match asked {
        "DescribeEventBus" if flag.load(SeqCst) => error(400, "ResourceNotFoundException", "because of a test"),
        _ => (200, r#"{"FailedEntryCount":0,"Entries":[{"EventId":"e-1"}]}"#.to_owned()),
    })
    .await;
    let bus = EventBus::new(&config(&url), "orders", "shop");
    let message = StagedMessage::new(Uuid::now_v7(), Outgoing::new("paid", "{}"));
    bus.open().await.unwrap();
    publish(&bus, &message).await.unwrap();
    is_deleted.store(true, SeqCst);
    let Err(SinkError::Broker(error)) = publish(&bus, &message).await else { panic!("it was dropped") };
    assert!(error.to_string().contains("create-event-bus"), "{error}");
    is_deleted.store(false, SeqCst);
    publish(&bus, &message).await.unwrap();
}

#[tokio::test]
async fn a_bus_that_may_not_be_described_is_used_with_a_warning() {
    let described = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&described);
    let url = serve(move |asked, _| match asked {
        "DescribeEventBus" => {
            count.fetch_add(1, SeqCst);
            error(400, "AccessDeniedException", "because of a test")
        }
        _ => (200, r#"{"FailedEntryCount":0,"Entries":[{"EventId":"e-1"}]}"#.to_owned()),
    })
    .await;
    let (log, subscriber) = captured();
    let _guard = subscribe(subscriber);
    let bus = EventBus::new(&config(&url), "orders", "shop");
    bus.open().await.unwrap();
    assert!(log.to_string().contains("allow events:DescribeEventBus"), "{log}");
    for _ in 0..3 {
        publish(&bus, &StagedMessage::new(Uuid::now_v7(), Outgoing::new("paid", "{}"))).await.unwrap();
    }
    assert_eq!(described.load(SeqCst), 2, "at the start, and once in a minute");
}
