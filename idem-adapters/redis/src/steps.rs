//! The steps of a key-value store, each one call of a script.

use std::time::{Duration, UNIX_EPOCH};

use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValueStore, Letter, LetterFilter, Resolve};
use idem_core::store::{Answer, StoreError};
use idem_core::{Error, Fingerprint};
use redis::{FromRedisValue, ScriptInvocation, Value};
use uuid::Uuid;

use crate::answer::{fault, unexpected};
use crate::script::SCRIPTS;
use crate::{Redis, RedisWrites, fitness};

/// What the keys of idem begin with.
pub(crate) const PREFIX: &str = "idem:";

/// The set of the records with dead letters.
pub(crate) const DEAD: &str = "idem:dead";

fn key(id: &Id) -> Vec<u8> {
    [PREFIX.as_bytes(), &id.name()].concat()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, u64::from(u32::MAX) * 1000)
}

impl Redis {
    async fn call<T: FromRedisValue>(&self, step: &ScriptInvocation<'_>) -> Answer<T> {
        step.invoke_async(&mut self.connection()).await.map_err(fault)
    }

    /// Returns whether the login may do the steps with this record.
    async fn permits(&self, id: &Id) -> bool {
        let mut asked = SCRIPTS.lacking.key(key(id));
        asked
            .key(DEAD)
            .invoke_async::<Vec<String>>(&mut self.connection())
            .await
            .is_ok_and(|lacking| lacking.is_empty())
    }

    /// Calls a step whose answer is whether the token had the lease.
    async fn held(&self, step: &ScriptInvocation<'_>) -> Answer<Held> {
        Ok(if self.call::<i64>(step).await? == 1 { Held::Yes } else { Held::Lost })
    }
}

/// Returns a part of an answer.
fn part<T: FromRedisValue>(answer: &[Value], at: usize) -> Option<T> {
    T::from_redis_value_ref(answer.get(at)?).ok()
}

fn text(answer: &[Value], at: usize) -> Option<String> {
    part::<Vec<u8>>(answer, at).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn acquired(answer: &[Value]) -> Option<Acquired> {
    let time = |at| part(answer, at).map(Duration::from_millis);
    Some(match text(answer, 0)?.as_str() {
        "new" => Acquired::New { starts: part(answer, 1)?, now: UNIX_EPOCH.checked_add(time(2)?)? },
        "done" => Acquired::Done { fingerprint: Fingerprint::stored(&part::<Vec<u8>>(answer, 1)?), age: time(2)? },
        "busy" => Acquired::Busy { left: time(1)? },
        "half" => Acquired::HalfApplied(text(answer, 1)?),
        _ => return None,
    })
}

fn completed(answer: &[Value]) -> Option<Completed> {
    Some(match text(answer, 0)?.as_str() {
        "yes" => Completed::Yes,
        "lost" => Completed::Lost,
        "refused" => Completed::Refused(text(answer, 1)?),
        "half" => Completed::HalfApplied(text(answer, 1)?),
        _ => return None,
    })
}

impl KeyValueStore for Redis {
    type Writes = RedisWrites;

    fn name(&self) -> String {
        format!("Redis at {}", self.shared.address)
    }

    async fn check(&self, _: Duration) -> Result<(), Error> {
        fitness::check(self).await
    }

    async fn acquire(
        &self,
        id: &Id,
        fingerprint: Fingerprint,
        token: Uuid,
        lease: Duration,
        keep: Duration,
    ) -> Answer<Acquired> {
        let mut step = SCRIPTS.acquire.key(key(id));
        step.arg(&token.as_bytes()[..]).arg(fingerprint.as_bytes()).arg(millis(lease)).arg(millis(keep));
        acquired(&self.call::<Vec<Value>>(&step).await?).ok_or_else(|| unexpected("acquire"))
    }

    async fn renew(&self, id: &Id, token: Uuid, lease: Duration) -> Answer<Held> {
        let mut step = SCRIPTS.renew.key(key(id));
        self.held(step.arg(&token.as_bytes()[..]).arg(millis(lease))).await
    }

    async fn complete(&self, id: &Id, token: Uuid, keep: Duration, writes: &RedisWrites) -> Answer<Completed> {
        if let Some(flaw) = &writes.flaw {
            return Ok(Completed::Refused(flaw.clone()));
        }
        let mut step = SCRIPTS.complete.key(key(id));
        step.key(DEAD);
        for command in &writes.commands {
            if let Some(written) = command.parts.get(1) {
                step.key(written);
            }
        }
        step.arg(&token.as_bytes()[..]).arg(millis(keep));
        for command in &writes.commands {
            step.arg(command.kind).arg(command.parts.len());
            for part in &command.parts {
                step.arg(part);
            }
        }
        match step.invoke_async::<Vec<Value>>(&mut self.connection()).await {
            Ok(answer) => completed(&answer).ok_or_else(|| unexpected("complete")),
            // Redis has looked at the keys before the script. If the record alone is permitted, others may go on.
            Err(error) if error.code() == Some("NOPERM") && !writes.is_empty() && self.permits(id).await => {
                Ok(Completed::Refused(format!("the login may not write all keys of the handler: {error}")))
            }
            Err(error) => Err(fault(error)),
        }
    }

    async fn release(&self, id: &Id, token: Uuid) -> Answer<Held> {
        let mut step = SCRIPTS.release.key(key(id));
        self.held(step.arg(&token.as_bytes()[..])).await
    }

    async fn bury(&self, id: &Id, token: Uuid, letter: &Letter) -> Answer<Held> {
        let mut step = SCRIPTS.bury.key(key(id));
        self.held(step.key(DEAD).arg(&token.as_bytes()[..]).arg(letter.encode())).await
    }

    async fn dead(&self, filter: &LetterFilter) -> Answer<Vec<Letter>> {
        let (mut letters, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let mut scan = redis::cmd("SSCAN");
            scan.arg(DEAD).arg(cursor).arg("COUNT").arg(100);
            let (next, names): (u64, Vec<Vec<u8>>) = scan.query_async(&mut self.connection()).await.map_err(fault)?;
            for name in names {
                let mut get = redis::cmd("HMGET");
                get.arg(name).arg("state").arg("letter");
                let (state, letter): (Option<String>, Option<Vec<u8>>) =
                    get.query_async(&mut self.connection()).await.map_err(fault)?;
                // It may have been resolved meanwhile. One that runs is replayed.
                let is_letter = matches!(state.as_deref(), Some("dead" | "running"));
                let letter = letter.filter(|_| is_letter).and_then(|text| Letter::decode(&text));
                letters.extend(letter.filter(|letter| filter.matches(letter)));
            }
            cursor = next;
            if cursor == 0 || letters.len() >= filter.limit {
                letters.truncate(filter.limit);
                return Ok(letters);
            }
        }
    }

    async fn resolve(&self, id: &Id, how: Resolve, keep: Duration) -> Result<bool, StoreError> {
        let mut step = SCRIPTS.resolve.key(key(id));
        let how = match how {
            Resolve::Replay => "replay",
            Resolve::Discard => "discard",
        };
        Ok(self.call::<i64>(step.key(DEAD).arg(how).arg(millis(keep))).await? == 1)
    }
}
