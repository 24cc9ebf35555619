//! Decodes Avro messages with schemas from a registry. Each message has Confluent's wire format: a zero byte, the id of
//! the schema in four bytes, and the body.
//!
//! `cargo run -p idem-examples --example avro` needs no server: the registry is a function, instead of `GET /schemas/ids/{id}`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize, atomic::Ordering::Relaxed};

use apache_avro::{Schema, reader::datum::GenericDatumReader, writer::datum::GenericDatumWriter};
use idem::codec::{Codec, DecodeError, PrepareError};
use idem::operator::{Filter, Operator, Page};
use idem::prelude::*;
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::OnceCell;

const PAYMENT: &str = r#"{"type": "record", "name": "Payment", "fields": [
    {"name": "event_id", "type": "string"}, {"name": "amount", "type": "long"}]}"#;

/// How often the registry was asked.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Asks the registry, which has one schema and is unavailable for the first request.
async fn registry(id: u32) -> Result<Option<&'static str>, BoxError> {
    println!("asked for the schema {id}");
    if ASKED.fetch_add(1, Relaxed) == 0 { Err("connection refused".into()) } else { Ok((id == 7).then_some(PAYMENT)) }
}

/// A codec that requests each schema once and caches it.
#[derive(Default)]
struct Avro(Mutex<HashMap<u32, Arc<OnceCell<Schema>>>>);

impl Avro {
    fn schema(&self, id: u32) -> Arc<OnceCell<Schema>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default().clone()
    }
}

fn split(delivery: &Delivery) -> Result<(u32, &[u8]), BoxError> {
    match delivery.data().split_first_chunk::<5>() {
        Some(([0, id @ ..], body)) => Ok((u32::from_be_bytes(*id), body)),
        _ => Err("the payload does not begin with a zero and the id of a schema".into()),
    }
}

impl<M: DeserializeOwned> Codec<M> for Avro {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        let (id, mut body) = split(delivery)?;
        let schema = self.schema(id);
        let schema = schema.get().ok_or_else(DecodeError::unprepared)?;
        Ok(GenericDatumReader::builder(schema).build()?.read_deser(&mut body)?)
    }

    async fn prepare(&self, delivery: &Delivery) -> Result<(), PrepareError> {
        let (id, _) = split(delivery).map_err(PrepareError::undecodable)?;
        let fetch = || async {
            let schema = registry(id).await.map_err(PrepareError::unavailable)?;
            let schema = schema.ok_or_else(|| PrepareError::undecodable(format!("the registry has no schema {id}")))?;
            Schema::parse_str(schema).map_err(PrepareError::undecodable)
        };
        self.schema(id).get_or_try_init(fetch).await.map(drop)
    }
}

#[derive(Serialize, Deserialize)]
struct Payment {
    event_id: String,
    amount: i64,
}

#[idempotent(key = "event_id", name = "credit_account")]
async fn credit_account(payment: Payment, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE account SET balance = balance + ?").bind(payment.amount).execute(tx).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = format!("sqlite://{}/idem-avro-{}.db", std::env::temp_dir().display(), std::process::id());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (0)").execute(&mut db).await?;

    let (broker, schema) = (Broker::new(), Schema::parse_str(PAYMENT)?);
    for (id, event) in [(7_u32, "e-1"), (7, "e-2"), (7, "e-1"), (8, "e-3")] {
        let payment = Payment { event_id: event.to_owned(), amount: 25 };
        let body = GenericDatumWriter::builder(&schema).build()?.write_ser_to_vec(&payment)?;
        broker.publish("payments", Publication::new([&[0], &id.to_be_bytes()[..], &body].concat()));
    }
    let worker = Worker::new("bank", store.clone(), broker.queue("payments")).codec(Avro::default());
    worker.handler::<credit_account>().run_until(async move { broker.idle().await }).await?;

    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut db).await?;
    let dead = Operator::new(&store).consumer("bank").list(&Filter::default(), Page::default()).await?.rows;
    println!("balance {balance}; one dead letter: {}", dead[0].error);
    assert_eq!((balance, dead.len(), ASKED.load(Relaxed)), (50, 1, 3));
    Ok(())
}
