//! What a handler writes to Redis.

use std::fmt;
use std::time::Duration;

use idem_core::HasConnection;
use idem_core::key_value::{KeyValue, Lent, Memory};

use crate::Redis;
use crate::steps::PREFIX;

/// The most commands of one message, and the most bytes: Redis does nothing else while it applies them.
const MOST: usize = 1_000;
const BYTES: usize = 64 * 1024 * 1024;

/// The writes of one message to Redis. They are collected while the handler runs, and applied by one script together with the completion of
/// the message: all of them once, or none.
///
/// Redis cannot roll back. So idem checks first that each key has the type that its commands need, and that the login may give these
/// commands (Redis 7, Valkey); otherwise nothing is written, and the attempt has failed. If a command fails nevertheless behind another one (`incr_by` of a value that is no number), the message becomes a
/// dead letter, `half applied`, and never runs again by itself.
///
/// A handler cannot read through it. What it reads otherwise may have changed by the time of its writes.
///
/// ```
/// # use idem_core::BoxError; use idem_redis::RedisWrites;
/// # struct Reserve { sku: String, n: i64 }
/// async fn reserve(event: Reserve, writes: &mut RedisWrites) -> Result<(), BoxError> {
///     writes.decr_by(format!("stock:{}", event.sku), event.n).s_add("reserved", &event.sku);
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// // A test looks at what a handler has collected.
/// let mut writes = RedisWrites::default();
/// reserve(Reserve { sku: "7".to_owned(), n: 2 }, &mut writes).await?;
/// assert_eq!(writes, *RedisWrites::default().decr_by("stock:7", 2).s_add("reserved", "7"));
/// # Ok(()) }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisWrites {
    pub(crate) commands: Vec<Command>,
    bytes: usize,
    /// Why they cannot be applied.
    pub(crate) flaw: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The type that its key must have; empty for any.
    pub(crate) kind: &'static str,
    /// Its name, its key, and the rest.
    pub(crate) parts: Vec<Vec<u8>>,
}

impl RedisWrites {
    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sets a value, without an end (SET).
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add("", "SET", key, [value.as_ref()])
    }

    /// Sets a value that ends after this time, of at least a millisecond (SET with PX).
    pub fn set_for(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, time: Duration) -> &mut Self {
        let millis = time.as_millis().clamp(1, i64::MAX as u128 / 2).to_string();
        self.add("", "SET", key, [value.as_ref(), b"PX", millis.as_bytes()])
    }

    /// Deletes a key of any type (DEL).
    pub fn del(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.add("", "DEL", key, [])
    }

    /// Lets a key of any type end after this time (PEXPIRE).
    pub fn expire(&mut self, key: impl AsRef<[u8]>, time: Duration) -> &mut Self {
        let millis = time.as_millis().clamp(1, i64::MAX as u128 / 2).to_string();
        self.add("", "PEXPIRE", key, [millis.as_bytes()])
    }

    /// Adds to a number (INCRBY).
    pub fn incr_by(&mut self, key: impl AsRef<[u8]>, by: i64) -> &mut Self {
        self.add("string", "INCRBY", key, [by.to_string().as_bytes()])
    }

    /// Subtracts from a number (DECRBY).
    pub fn decr_by(&mut self, key: impl AsRef<[u8]>, by: i64) -> &mut Self {
        self.add("string", "DECRBY", key, [by.to_string().as_bytes()])
    }

    /// Appends to a text (APPEND).
    pub fn append(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add("string", "APPEND", key, [value.as_ref()])
    }

    /// Sets a field of a hash (HSET).
    pub fn h_set(&mut self, key: impl AsRef<[u8]>, field: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add("hash", "HSET", key, [field.as_ref(), value.as_ref()])
    }

    /// Adds to a number in a hash (HINCRBY).
    pub fn h_incr_by(&mut self, key: impl AsRef<[u8]>, field: impl AsRef<[u8]>, by: i64) -> &mut Self {
        self.add("hash", "HINCRBY", key, [field.as_ref(), by.to_string().as_bytes()])
    }

    /// Deletes a field of a hash (HDEL).
    pub fn h_del(&mut self, key: impl AsRef<[u8]>, field: impl AsRef<[u8]>) -> &mut Self {
        self.add("hash", "HDEL", key, [field.as_ref()])
    }

    /// Adds a member to a set (SADD).
    pub fn s_add(&mut self, key: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> &mut Self {
        self.add("set", "SADD", key, [member.as_ref()])
    }

    /// Removes a member of a set (SREM).
    pub fn s_rem(&mut self, key: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> &mut Self {
        self.add("set", "SREM", key, [member.as_ref()])
    }

    /// Adds a member with this score to a sorted set, or changes its score (ZADD).
    pub fn z_add(&mut self, key: impl AsRef<[u8]>, member: impl AsRef<[u8]>, score: f64) -> &mut Self {
        self.score(score).add("zset", "ZADD", key, [score.to_string().as_bytes(), member.as_ref()])
    }

    /// Adds to the score of a member of a sorted set (ZINCRBY).
    pub fn z_incr_by(&mut self, key: impl AsRef<[u8]>, member: impl AsRef<[u8]>, by: f64) -> &mut Self {
        self.score(by).add("zset", "ZINCRBY", key, [by.to_string().as_bytes(), member.as_ref()])
    }

    /// Removes a member of a sorted set (ZREM).
    pub fn z_rem(&mut self, key: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> &mut Self {
        self.add("zset", "ZREM", key, [member.as_ref()])
    }

    /// Adds a value at the head of a list (LPUSH).
    pub fn l_push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add("list", "LPUSH", key, [value.as_ref()])
    }

    /// Adds a value at the end of a list (RPUSH).
    pub fn r_push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add("list", "RPUSH", key, [value.as_ref()])
    }

    fn score(&mut self, score: f64) -> &mut Self {
        if !score.is_finite() {
            self.flaw.get_or_insert_with(|| format!("a score of a sorted set is {score}"));
        }
        self
    }

    fn add<const N: usize>(
        &mut self,
        kind: &'static str,
        name: &'static str,
        key: impl AsRef<[u8]>,
        rest: [&[u8]; N],
    ) -> &mut Self {
        let key = key.as_ref();
        let parts: Vec<Vec<u8>> = [name.as_bytes(), key].into_iter().chain(rest).map(<[u8]>::to_vec).collect();
        self.bytes += parts.iter().map(Vec::len).sum::<usize>();
        self.commands.push(Command { kind, parts });
        let flaw = if key.starts_with(PREFIX.as_bytes()) {
            Some(format!("keys that begin with `{PREFIX}` are the records of idem: write to another one"))
        } else if self.commands.len() > MOST || self.bytes > BYTES {
            Some(format!("one message may write {MOST} commands and {BYTES} bytes: divide it into several"))
        } else {
            None
        };
        if let Some(flaw) = flaw {
            self.flaw.get_or_insert(flaw);
        }
        self
    }
}

/// Shows names and numbers, and no key or value: both may contain personal data.
impl fmt::Debug for RedisWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.commands.iter().filter_map(|command| std::str::from_utf8(command.parts.first()?).ok());
        f.debug_struct("RedisWrites").field("commands", &names.collect::<Vec<_>>()).field("flaw", &self.flaw).finish()
    }
}

impl HasConnection<RedisWrites> for KeyValue<Redis> {
    fn connection(lent: &mut Lent<RedisWrites>) -> &mut RedisWrites {
        lent.writes_mut()
    }
}

/// For tests of handlers, without a server.
impl HasConnection<RedisWrites> for KeyValue<Memory<RedisWrites>> {
    fn connection(lent: &mut Lent<RedisWrites>) -> &mut RedisWrites {
        lent.writes_mut()
    }
}
