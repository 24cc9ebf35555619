//! How many write units messages cost, since users pay for them.

use std::time::Duration;

use idem_conformance::{AwsRequest, fake_aws};
use idem_core::Fingerprint;
use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValueStore};
use idem_dynamodb::{DynamoDb, DynamoWrites};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::{self, config, counter, id, unique};
use crate::fake::pass_on;

const LONG: Duration = Duration::from_secs(60);

/// Passes requests on, and prices the answers as AWS does, since the server reports other units: one for each KB of the item,
/// or two in a transaction.
async fn priced(server: &str) -> String {
    let server = server.to_owned();
    fake_aws(move |request| {
        let server = server.clone();
        async move {
            let (status, body) = pass_on(&server, &request).await;
            if status != 200 {
                return (status, body);
            }
            let mut body: Value = serde_json::from_str(&body).unwrap();
            let consumed = |units: usize| json!({"TableName": "t", "CapacityUnits": units});
            match price(&request) {
                Some((units, true)) => body["ConsumedCapacity"] = json!([consumed(units)]),
                Some((units, false)) => body["ConsumedCapacity"] = consumed(units),
                None => {}
            }
            (status, body.to_string())
        }
    })
    .await
}

/// Returns the units of a request, and whether it is a transaction. The size of an item is at most that of its request.
fn price(request: &AwsRequest) -> Option<(usize, bool)> {
    let kilobytes = |bytes: usize| bytes.div_ceil(1024).max(1);
    match request.action.as_str() {
        "UpdateItem" | "DeleteItem" => {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body["ReturnConsumedCapacity"], "TOTAL");
            Some((kilobytes(content(&body["ExpressionAttributeValues"])), false))
        }
        "TransactWriteItems" => {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body["ReturnConsumedCapacity"], "TOTAL");
            let items = body["TransactItems"].as_array().unwrap();
            let written = items.iter().map(|item| match item.get("Put") {
                Some(put) => content(&put["Item"]),
                None => 1,
            });
            Some((written.map(|bytes| 2 * kilobytes(bytes)).sum(), true))
        }
        _ => None,
    }
}

/// Returns the bytes of the names and values of attributes.
fn content(attributes: &Value) -> usize {
    let all = attributes.as_object().into_iter().flatten();
    all.map(|(name, value)| {
        name.len() + value.as_object().unwrap().values().map(|value| value.to_string().len()).sum::<usize>()
    })
    .sum()
}

struct Costs {
    store: DynamoDb,
    before: f64,
}

impl Costs {
    /// Returns the units since the last call, and prints them.
    fn of(&mut self, what: &str) -> f64 {
        let units = self.store.write_units() - self.before;
        self.before += units;
        println!("{units} write units: {what}");
        units
    }

    async fn acquire(&self, id: &Id, token: Uuid) -> Acquired {
        self.store.acquire(id, Fingerprint::of(b"{}"), token, LONG, LONG).await.unwrap()
    }
}

#[tokio::test]
async fn a_message_costs_two_units_and_with_n_writes_three_and_two_for_each() {
    let Some(world) = common::world().await else { return };
    let url = priced(&world.url).await;
    let store = DynamoDb::connect(&config(&url), &world.table).await.unwrap().store().clone();
    let (mut costs, token) = (Costs { store: store.clone(), before: 0.0 }, Uuid::new_v4());
    for n in [0, 1, 3, 10] {
        let (id, mut writes) = (id(), DynamoWrites::default());
        for _ in 0..n {
            // With its name and its key, 1 KB.
            writes.put(counter(&unique("n")), [("text", "x".repeat(950))]);
        }
        assert!(matches!(costs.acquire(&id, token).await, Acquired::New { .. }));
        assert_eq!(store.complete(&id, token, LONG, &writes).await.unwrap(), Completed::Yes);
        let expected = if n == 0 { 2.0 } else { 3.0 + 2.0 * f64::from(n) };
        assert_eq!(costs.of(&format!("a message with {n} writes of 1 KB")), expected);
        assert!(matches!(costs.acquire(&id, Uuid::new_v4()).await, Acquired::Done { .. }));
        assert_eq!(costs.of("a duplicate"), 1.0);
    }
    let id = id();
    costs.acquire(&id, token).await;
    costs.of("a start");
    assert_eq!(store.renew(&id, token, LONG / 4).await.unwrap(), Held::Yes);
    assert_eq!(costs.of("a renewal"), 1.0);
    assert_eq!(store.release(&id, token).await.unwrap(), Held::Yes);
    assert_eq!(costs.of("a release"), 1.0);
}
