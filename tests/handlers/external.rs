//! A function with `#[external]` is a call, which a handler makes first.

use std::time::Duration;

use idem::external::External;
use idem::prelude::*;
use idem_test::Broker;
use idem_test::provider::{Fault, Provider};
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

#[derive(serde::Deserialize, serde::Serialize)]
struct OrderPlaced {
    id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Charge {
    number: String,
}

#[external(key_life = "24h", timeout = "5s", reconcile = find_charge, ask_after = "7s")]
async fn charge(order: &OrderPlaced, key: OutboundKey, State(provider): State<Provider>) -> Result<Charge, CallError> {
    match provider.charge(Some(key.as_str()), &order.id).await? {
        reply if reply.status == 200 => Ok(Charge { number: reply.body }),
        reply if reply.status == 429 => Err(CallError::not_done(reply.body)),
        reply => Err(reply.body.into()),
    }
}

async fn find_charge(
    _: &OrderPlaced,
    key: OutboundKey,
    State(provider): State<Provider>,
) -> Result<Found<Charge>, BoxError> {
    let found = provider.find(key.as_str()).pop();
    Ok(found.map_or(Found::NotThere, |charge| Found::There(Charge { number: charge.number.to_string() })))
}

#[idempotent(key = "id", call = charge)]
async fn order_placed(
    order: OrderPlaced,
    Called(charge): Called<Charge>,
    key: OutboundKey,
    tx: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    sqlx::query("CREATE TABLE IF NOT EXISTS payments (id TEXT, charge TEXT, key TEXT)").execute(&mut *tx).await?;
    let insert = sqlx::query("INSERT INTO payments VALUES (?, ?, ?)");
    insert.bind(order.id).bind(charge.number).bind(key.as_str()).execute(tx).await.map(drop)
}

/// A mail: without a key, without an answer, and with an error of its own.
#[external(at_most_once)]
async fn send_mail(_: &OrderPlaced) -> Result<(), std::io::Error> {
    std::future::ready(Ok(())).await
}

#[idempotent(key = id, name = "confirmed", event = "order.confirmed", call = send_mail)]
async fn confirmed(_: OrderPlaced, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

mod elsewhere {
    use super::{CallError, OrderPlaced, external};

    #[external(at_most_once, timeout = "500ms", name = "a name of its own")]
    pub(super) async fn r#match(_: &OrderPlaced) -> Result<(), CallError> {
        Err(CallError::not_done("never"))
    }
}

macro_rules! call {
    ($name:ident, $life:literal, $message:ty) => {
        #[external(key_life = $life, crate = ::idem)]
        async fn $name(_: &$message, _: OutboundKey) -> Result<u64, BoxError> {
            Ok(7)
        }
    };
}

call!(from_a_macro, "30d", OrderPlaced);

#[idempotent(key = id, call = elsewhere::r#match)]
async fn by_a_path(_: OrderPlaced, _: Called<()>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = id, call = from_a_macro)]
async fn of_a_macro(_: OrderPlaced, _: &mut SqliteConnection, _: Called<u64>) -> Result<(), BoxError> {
    Ok(())
}

const fn limits<C: External>() -> (&'static str, Option<Duration>, Duration, bool) {
    (C::NAME, C::KEY_LIFE, C::TIMEOUT, C::RECONCILES)
}

#[test]
fn the_arguments_are_the_limits_of_the_call() {
    let seconds = Duration::from_secs;
    assert_eq!(limits::<charge>(), ("charge", Some(seconds(86_400)), seconds(5), true));
    assert_eq!(limits::<send_mail>(), ("send_mail", None, seconds(20), false));
    assert_eq!(limits::<elsewhere::r#match>(), ("a name of its own", None, Duration::from_millis(500), false));
    assert_eq!(limits::<from_a_macro>(), ("from_a_macro", Some(seconds(30 * 86_400)), seconds(20), false));
    assert_eq!((charge::ASK_AFTER, send_mail::ASK_AFTER), (seconds(7), seconds(120)));
    assert_eq!((by_a_path::NAME, of_a_macro::NAME, confirmed::NAME), ("by_a_path", "of_a_macro", "confirmed"));
}

#[tokio::test]
async fn a_test_calls_the_functions_as_they_are_written() -> Result<(), BoxError> {
    let (provider, order) = (Provider::new(), OrderPlaced { id: "o-1".to_owned() });
    let key = OutboundKey::new("a8098c1a-f86e-11da-bd1a-00112444be1e".parse()?);
    provider.fail("o-1", [Fault::LoseAnswer]);
    assert!(charge(&order, key, State(provider.clone())).await.is_err());
    let found = find_charge(&order, key, State(provider.clone())).await?;
    assert_eq!(found, Found::There(Charge { number: "1".to_owned() }));
    let mut tx = <SqliteConnection as sqlx::Connection>::connect("sqlite::memory:").await?;
    order_placed(order, Called(Charge { number: "1".to_owned() }), key, &mut tx).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_calls_before_it_handles() -> Result<(), BoxError> {
    let file = tempfile::NamedTempFile::new()?;
    let store = Sqlite::connect(&format!("sqlite://{}", file.path().display())).await?;
    let (broker, provider) = (Broker::new(), Provider::new());
    broker.publish("orders", idem_test::Publication::json(&OrderPlaced { id: "o-1".to_owned() })?);
    let (done, when) = oneshot::channel();
    let done = std::sync::Mutex::new(Some(done));
    let worker = Worker::new("shop", store, broker.queue("orders")).state(provider.clone());
    let worker = worker.handler::<order_placed>().handler::<confirmed>().call_concurrency(2).observe(move |observed| {
        if *observed.outcome == Outcome::Processed
            && let Some(done) = done.lock().ok().and_then(|mut done| done.take())
        {
            let _ = done.send(());
        }
    });
    worker.run_until(async { drop(when.await) }).await?;
    let mut tx =
        <SqliteConnection as sqlx::Connection>::connect(&format!("sqlite://{}", file.path().display())).await?;
    let rows: Vec<(String, String, String)> = sqlx::query_as("SELECT * FROM payments").fetch_all(&mut tx).await?;
    let key = provider.ledger()[0].key.clone().unwrap_or_default();
    assert_eq!(rows, [("o-1".to_owned(), "1".to_owned(), key)]);
    assert_eq!(provider.charged("o-1"), 1);
    Ok(())
}
