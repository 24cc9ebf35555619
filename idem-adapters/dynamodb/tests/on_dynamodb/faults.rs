//! Answers that no test server gives: throttling, conflicts, none at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use idem_conformance::{fake_aws, soon};
use idem_core::key_value::{Acquired, Completed, KeyValueStore};
use idem_core::store::StoreError;
use idem_core::{BoxError, Delivery, Fingerprint, Handler, Key, KeyError, State, Worker};
use idem_dynamodb::{DynamoDb, DynamoWrites};
use idem_test::{Broker, Publication};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::common::{config, counter, id};
use crate::fake::{error, table};

const LONG: Duration = Duration::from_secs(60);

struct Count;

impl Handler for Count {
    const NAME: &'static str = "count";
    type Message = String;
    type Input = String;
    type Params = (State<Arc<AtomicUsize>>,);
    type Connection = DynamoWrites;

    fn key(id: &String, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(id)
    }

    async fn handle(id: String, (State(runs),): Self::Params, writes: &mut DynamoWrites) -> Result<(), BoxError> {
        runs.fetch_add(1, SeqCst);
        writes.update(counter(&id), "ADD n :one").value(":one", 1);
        Ok(())
    }
}

/// A policy with one attempt: a fault that was counted as one would end the message.
#[tokio::test]
async fn conflicts_and_throttling_charge_no_attempt() {
    let (asked, cancelled) = (AtomicUsize::new(0), "TransactionCanceledException");
    let url = fake_aws(move |request| {
        let answer = match request.action.as_str() {
            "UpdateItem" | "TransactWriteItems" => match asked.fetch_add(1, SeqCst) {
                0 => error("ThrottlingException", ""),
                1 => error("TransactionConflictException", ""),
                3 => error(cancelled, r#","CancellationReasons":[{"Code":"TransactionConflict"},{"Code":"None"}]"#),
                4 => error(cancelled, r#","CancellationReasons":[{"Code":"None"},{"Code":"ThrottlingError"}]"#),
                5 => error("ProvisionedThroughputExceededException", ""),
                6 => error("TransactionInProgressException", ""),
                _ => (200, "{}".to_owned()),
            },
            action => table(action).unwrap(),
        };
        async move { answer }
    })
    .await;
    let (broker, runs) = (Broker::new(), Arc::new(AtomicUsize::new(0)));
    broker.publish("orders", Publication::new("\"e-1\""));
    let (report, mut outcomes) = mpsc::unbounded_channel();
    let dynamodb = DynamoDb::connect(&config(&url), "idem").await.unwrap();
    let worker = Worker::new("billing", dynamodb, broker.queue("orders"))
        .state(runs.clone())
        .handler::<Count>()
        .retry(idem_core::RetryPolicy::new().max_attempts(1))
        .observe(move |observed| drop(report.send(observed.outcome.as_str().to_owned())));
    let worker = tokio::spawn(worker.run_until(std::future::pending()));
    assert_eq!(soon(outcomes.recv()).await.unwrap(), "processed");
    assert_eq!(runs.load(SeqCst), 1);
    worker.abort();
}

#[tokio::test]
async fn a_server_that_is_away_is_a_lost_connection() {
    let url = fake_aws(|request| async move { table(&request.action).unwrap() }).await;
    let store = DynamoDb::connect(&config(&url), "idem").await.unwrap().store().clone();
    // Its answers to other actions are a panic, and the connection ends.
    let away = store.acquire(&id(), Fingerprint::of(b"{}"), Uuid::new_v4(), LONG, LONG).await;
    assert!(matches!(away, Err(StoreError::ConnectionLost(_))), "{away:?}");
}

/// A connection hangs. The configuration has no timeout, and the next attempt is made on another connection.
#[tokio::test]
async fn an_attempt_that_hangs_does_not_hold_up_its_request() {
    let asked = AtomicUsize::new(0);
    let url = fake_aws(move |request| {
        let hangs = request.action == "UpdateItem" && asked.fetch_add(1, SeqCst) == 0;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            table(&request.action).unwrap_or((200, "{}".to_owned()))
        }
    })
    .await;
    let config = config(&url).into_builder().retry_config(RetryConfig::standard()).build();
    let store = DynamoDb::connect(&config, "idem").await.unwrap().store().clone();
    let acquired = store.acquire(&id(), Fingerprint::of(b"{}"), Uuid::new_v4(), LONG, LONG).await;
    assert!(matches!(acquired, Ok(Acquired::New { starts: 1, .. })), "{acquired:?}");
}

/// The policy lacks an action: nothing is wrong with the message.
#[tokio::test]
async fn a_denied_action_is_no_fault_of_the_message() {
    let url =
        fake_aws(|request| async move { table(&request.action).unwrap_or(error("AccessDeniedException", "")) }).await;
    let store = DynamoDb::connect(&config(&url), "idem").await.unwrap().store().clone();
    let denied = store.acquire(&id(), Fingerprint::of(b"{}"), Uuid::new_v4(), LONG, LONG).await;
    assert!(
        matches!(&denied, Err(StoreError::Unavailable(why)) if why.to_string().contains("AccessDenied")),
        "{denied:?}"
    );
}

/// One handler's table is denied, and the other handlers of the worker run.
#[tokio::test]
async fn a_denied_table_of_a_handler_is_a_failed_attempt() {
    let records_are_denied = Arc::new(AtomicBool::new(false));
    let denied = records_are_denied.clone();
    let url = fake_aws(move |request| {
        let answer = match request.action.as_str() {
            "TransactWriteItems" => error("AccessDeniedException", ""),
            "UpdateItem" if denied.load(SeqCst) => error("AccessDeniedException", ""),
            "UpdateItem" => (200, "{}".to_owned()),
            action => table(action).unwrap(),
        };
        async move { answer }
    })
    .await;
    let store = DynamoDb::connect(&config(&url), "idem").await.unwrap().store().clone();
    let (id, mut writes) = (id(), DynamoWrites::default());
    writes.delete(counter("n"));
    let refused = store.complete(&id, Uuid::new_v4(), LONG, &writes).await;
    assert!(matches!(&refused, Ok(Completed::Refused(why)) if why.contains("AccessDenied")), "{refused:?}");
    records_are_denied.store(true, SeqCst);
    let denied = store.complete(&id, Uuid::new_v4(), LONG, &writes).await;
    assert!(matches!(&denied, Err(StoreError::Unavailable(_))), "{denied:?}");
}

/// The first request of its completion was applied, and its answer was lost.
#[tokio::test]
async fn a_repeated_transaction_finds_its_own_completion() {
    use base64::Engine;
    let token = Uuid::new_v4();
    let own = base64::prelude::BASE64_STANDARD.encode(token.as_bytes());
    let reasons = format!(
        r#","CancellationReasons":[{{"Code":"ConditionalCheckFailed","Item":{{"pk":{{"S":"k"}},"state":{{"S":"done"}},"token":{{"B":"{own}"}}}}}},{{"Code":"None"}}]"#
    );
    let url = fake_aws(move |request| {
        let answer = table(&request.action).unwrap_or_else(|| error("TransactionCanceledException", &reasons));
        async move { answer }
    })
    .await;
    let store = DynamoDb::connect(&config(&url), "idem").await.unwrap().store().clone();
    let mut writes = DynamoWrites::default();
    writes.delete(counter("n"));
    assert_eq!(store.complete(&id(), token, LONG, &writes).await.unwrap(), Completed::Yes);
    assert_eq!(store.complete(&id(), Uuid::new_v4(), LONG, &writes).await.unwrap(), Completed::Lost);
}
