//! The suite for key-value stores, on DynamoDB.

use std::time::Duration;

use idem_conformance::key_value::World;
use idem_core::key_value::KeyValue;
use idem_dynamodb::{DynamoDb, DynamoWrites};

use crate::common::{self, counter};

struct OnDynamoDb(common::World);

impl World for OnDynamoDb {
    type Writes = DynamoWrites;
    type Store = DynamoDb;
    type Engine = KeyValue<DynamoDb>;

    const HALF_APPLIES: bool = false;

    async fn make() -> Option<Self> {
        common::world().await.map(Self)
    }

    fn store(&self) -> DynamoDb {
        self.0.dynamodb.store().clone()
    }

    fn engine(&self, retention: Duration) -> KeyValue<DynamoDb> {
        self.0.dynamodb.clone().retention(retention)
    }

    fn count(writes: &mut DynamoWrites, name: &str) {
        writes.update(counter(name), "ADD n :one").value(":one", 1);
    }

    /// A condition on an item that does not exist.
    fn refuse(writes: &mut DynamoWrites, name: &str) {
        writes.condition(counter(&format!("{name}-none")), "attribute_exists(n)");
    }

    fn fail(_: &mut DynamoWrites, _: &str) {
        panic!("a transaction is never half applied");
    }

    async fn counted(&self, name: &str) -> i64 {
        self.0.read(name).await.map_or(0, |item| item["n"].as_n().unwrap().parse().unwrap())
    }
}

idem_conformance::kv_suite!(OnDynamoDb);
