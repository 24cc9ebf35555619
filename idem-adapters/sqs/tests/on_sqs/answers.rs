//! Answers of SQS that no test server gives: missing permissions, expired credentials, throttling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::{Error, Source};
use idem_sqs::{Queue, Sqs};

use crate::common::fake::{empty_queue, error, serve};
use crate::common::{config, loss, subscribe_options};

/// A queue whose server answers this action with this error while the flag is set, and the flag.
async fn failing(action: &'static str, status: u16, code: &'static str) -> (Sqs, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&fails);
    let url = serve(move |asked| match asked == action && flag.load(SeqCst) {
        true => error(status, code, "because of a test"),
        false => empty_queue(asked),
    })
    .await;
    (Sqs::new(&config(&url)), fails)
}

async fn open(sqs: &Sqs) -> Result<Queue, Error> {
    let mut queue = sqs.queue("orders").await?.wait_time(Duration::from_secs(1));
    match queue.subscribe(subscribe_options(10)).await {
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
