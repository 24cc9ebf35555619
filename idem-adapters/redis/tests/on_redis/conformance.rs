//! The suite for key-value stores, on Redis.

use std::time::Duration;

use idem_conformance::key_value::World;
use idem_core::key_value::KeyValue;
use idem_redis::{Redis, RedisWrites};

use crate::common;

struct OnRedis(common::World);

impl World for OnRedis {
    type Writes = RedisWrites;
    type Store = Redis;
    type Engine = KeyValue<Redis>;

    async fn make() -> Option<Self> {
        common::world().await.map(Self)
    }

    fn store(&self) -> Redis {
        self.0.redis.store().clone()
    }

    fn engine(&self, retention: Duration) -> KeyValue<Redis> {
        self.0.redis.clone().retention(retention)
    }

    fn count(writes: &mut RedisWrites, counter: &str) {
        writes.incr_by(counter, 1);
    }

    /// A list under the name of a number.
    fn refuse(writes: &mut RedisWrites, counter: &str) {
        writes.l_push(counter, "x");
    }

    /// Its type is right, and its value is none.
    fn fail(writes: &mut RedisWrites, counter: &str) {
        let text = format!("{counter}-text");
        writes.set(&text, "no number").incr_by(&text, 1);
    }

    async fn counted(&self, counter: &str) -> i64 {
        let found: Option<i64> = redis::cmd("GET").arg(counter).query_async(&mut self.0.client.clone()).await.unwrap();
        found.unwrap_or_default()
    }
}

idem_conformance::kv_suite!(OnRedis);
