//! What the tests share.

use std::sync::Arc;

use idem_conformance::server;
use idem_core::Key;
use idem_core::key_value::{Id, KeyValue};
use idem_redis::Redis;
use redis::aio::MultiplexedConnection;

/// A server, and a connection of a client to it.
pub(crate) struct World {
    pub(crate) redis: KeyValue<Redis>,
    pub(crate) client: MultiplexedConnection,
}

pub(crate) async fn world() -> Option<World> {
    let url = server("REDIS_URL")?;
    let client = redis::Client::open(&*url).unwrap().get_multiplexed_async_connection().await.unwrap();
    Some(World { redis: Redis::connect(&url).await.unwrap(), client })
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", uuid::Uuid::new_v4().simple())
}

/// The id of a message of a consumer that no other test has.
pub(crate) fn id() -> Id {
    Id { consumer: Arc::from(unique("c")), handler: "reserve".into(), key: Key::of("e-1").unwrap(), apart: None }
}

/// The key of its record.
pub(crate) fn record(id: &Id) -> Vec<u8> {
    [b"idem:", &id.name()[..]].concat()
}
