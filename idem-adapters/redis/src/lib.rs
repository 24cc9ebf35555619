//! Deduplication in Redis, or Valkey, for idem.
//!
//! ```no_run
//! # use idem_redis::Redis;
//! # use std::time::Duration;
//! # async fn example() -> Result<(), idem_core::Error> {
//! // For `Worker::new`, in place of a store.
//! let redis = Redis::connect("redis://localhost").await?.retention(Duration::from_secs(3 * 24 * 3600));
//! # let _ = redis;
//! # Ok(())
//! # }
//! ```
//!
//! # Records
//!
//! A message has a hash under `idem:consumer/handler/key`, with its `state` (`running`, `done`, `half`, `dead`), `fingerprint`,
//! `token`, `starts`, the end of its lease (`until`) and the time of its end (`at`), in milliseconds by the clock of Redis. The names of
//! those with a dead letter are in the set `idem:dead`. A handler must not write to a key that begins with `idem:`.
//!
//! Each step is a script, called by the hash of its text (`EVALSHA`), and loaded again where Redis has forgotten it. So two versions of a
//! service never run each other's steps. A login needs the keys `~idem:*` and those of the handlers, the commands
//! `+evalsha +script|load +info +time +type +hmget +hset +hdel +del +pexpire +pttl +persist +sadd +srem` and those of the handlers,
//! `+sscan` to list dead letters, and `+config|get` for one of the warnings. On Redis 7 and Valkey a worker does not start without one that
//! the steps need.
//!
//! # Server requirements
//!
//! | setting | required value | reason |
//! |---|---|---|
//! | version | Redis 6 or Valkey 7.2 | scripts read the time and write |
//! | `maxmemory-policy` | `noeviction` | any other evicts records, whose messages would run again |
//! | cluster, sentinel | no | the keys of a message's writes and its record must be on one node |
//!
//! A worker warns if Redis keeps nothing on disk (`appendonly no`: a restart forgets), if it syncs each second
//! (`appendfsync everysec`: a crash of the machine forgets a second of acked messages), and if it has replicas (a failover forgets what
//! they had not received).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod connection;
mod fitness;
mod script;
mod steps;
mod writes;

pub use connection::Redis;
pub use writes::RedisWrites;
