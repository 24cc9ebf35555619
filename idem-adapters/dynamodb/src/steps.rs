//! The steps of a key-value store, each a conditional write. The condition that fails returns the record, and by it the step decides.

use std::time::{Duration, UNIX_EPOCH};

use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValueStore, Letter, LetterFilter, Resolve};
use idem_core::store::Answer;
use idem_core::{Error, Fingerprint};
use uuid::Uuid;

use crate::change::{
    ACQUIRE, BURY, BURY_AGAIN, COMPLETE, COMPLETE_REPLAYED, Change, DISCARD, DISCARD_PARTS, FORGET, PROLONG, RELEASE,
    RENEW, REPLAY, RESUME, TAKE_OVER,
};
use crate::record::{Record, State, millis, now, ttl};
use crate::table;
use crate::transaction::Changed;
use crate::{DynamoDb, DynamoWrites};

/// How often a record is read again that others change meanwhile.
const TRIES: u32 = 4;

impl DynamoDb {
    /// Makes a change whose answer is whether its condition held.
    async fn held(&self, id: &Id, change: Change) -> Answer<Held> {
        Ok(match self.change(id, change).await? {
            Changed::Yes => Held::Yes,
            Changed::No(_) => Held::Lost,
        })
    }
}

impl KeyValueStore for DynamoDb {
    type Writes = DynamoWrites;

    fn name(&self) -> String {
        self.place()
    }

    async fn check(&self, _: Duration) -> Result<(), Error> {
        table::check(self).await
    }

    async fn acquire(
        &self,
        id: &Id,
        fingerprint: Fingerprint,
        token: Uuid,
        lease: Duration,
        keep: Duration,
    ) -> Answer<Acquired> {
        let mut found: Option<Record> = None;
        for _ in 0..TRIES {
            let now = now();
            let (change, starts) = match found.take().filter(|record| !record.is_over(now)) {
                None => (Change::new(ACQUIRE).with(":now", now / 1000).with(":ttl", ttl(now, keep)), 1),
                Some(record) if record.state != State::Running => {
                    let age = Duration::from_millis(now.saturating_sub(record.at));
                    return Ok(Acquired::Done { fingerprint: Fingerprint::stored(&record.fingerprint), age });
                }
                Some(record) => {
                    let is_own = record.is_held_by(token);
                    if !is_own && record.until > now {
                        return Ok(Acquired::Busy { left: Duration::from_millis(record.until - now) });
                    }
                    let change = match record.letter.is_empty() {
                        true => Change::new(TAKE_OVER).with(":ttl", ttl(now, keep)),
                        false => Change::new(RESUME),
                    };
                    let change = change.with(":seen", &record.token[..]).with(":ended", record.until);
                    (change, record.starts + u32::from(!is_own))
                }
            };
            let change = change.with(":fingerprint", fingerprint.as_bytes()).with(":token", &token.as_bytes()[..]);
            let change = change.with(":until", now + millis(lease)).with(":starts", starts);
            found = match self.change(id, change).await? {
                Changed::Yes => {
                    return Ok(Acquired::New { starts, now: UNIX_EPOCH + Duration::from_millis(now) });
                }
                Changed::No(found) => found,
            };
        }
        // Others have changed it each time.
        Ok(Acquired::Busy { left: Duration::ZERO })
    }

    async fn renew(&self, id: &Id, token: Uuid, lease: Duration) -> Answer<Held> {
        let now = now();
        let renewed = |statement| {
            let change = Change::new(statement).with(":token", &token.as_bytes()[..]);
            change.with(":until", now + millis(lease)).with(":ttl", ttl(now, 2 * lease))
        };
        match self.change(id, renewed(RENEW)).await? {
            Changed::Yes => Ok(Held::Yes),
            Changed::No(Some(record)) if record.is_held_by(token) => self.held(id, renewed(PROLONG)).await,
            Changed::No(_) => Ok(Held::Lost),
        }
    }

    async fn complete(&self, id: &Id, token: Uuid, keep: Duration, writes: &DynamoWrites) -> Answer<Completed> {
        if let Some(flaw) = writes.flaw(&self.shared.table) {
            return Ok(Completed::Refused(flaw));
        }
        let now = now();
        let completed = |statement| {
            let change = Change::new(statement).with(":token", &token.as_bytes()[..]);
            change.with(":at", now).with(":ttl", ttl(now, keep))
        };
        let changed = match self.change_with(id, token, completed(COMPLETE), writes).await? {
            // It has a letter, whose message was published again.
            Ok(Changed::No(Some(record))) if record.is_held_by(token) => {
                let changed = self.change_with(id, token, completed(COMPLETE_REPLAYED), writes).await?;
                if let Ok(Changed::Yes) = changed {
                    self.delete_parts(id, &record).await;
                }
                changed
            }
            changed => changed,
        };
        Ok(match changed {
            Ok(Changed::Yes) => Completed::Yes,
            // Its own completion, whose answer was lost.
            Ok(Changed::No(Some(record))) if record.state == State::Done && record.token == token.as_bytes() => {
                Completed::Yes
            }
            Ok(Changed::No(_)) => Completed::Lost,
            Err(why) => Completed::Refused(why),
        })
    }

    async fn release(&self, id: &Id, token: Uuid) -> Answer<Held> {
        let forget = Change::new(FORGET).with(":token", &token.as_bytes()[..]).with(":one", 1);
        match self.change(id, forget).await? {
            Changed::Yes => Ok(Held::Yes),
            Changed::No(Some(record)) if record.is_held_by(token) => {
                let release = Change::new(RELEASE).with(":token", &token.as_bytes()[..]);
                let release = release.with(":nobody", &Uuid::nil().as_bytes()[..]).with(":zero", 0).with(":one", 1);
                self.held(id, release).await
            }
            Changed::No(_) => Ok(Held::Lost),
        }
    }

    async fn bury(&self, id: &Id, token: Uuid, letter: &Letter) -> Answer<Held> {
        let encoded = letter.encode();
        let sum = Fingerprint::of(&encoded);
        let (first, parts) = self.put_parts(id, &encoded, sum).await?;
        let now = now();
        let buried = |statement| {
            let change = Change::new(statement).with(":token", &token.as_bytes()[..]).with(":at", now);
            let change = change.with(":consumer", &*id.consumer).with(":letter", first);
            change.with(":parts", parts).with(":sum", sum.as_bytes())
        };
        let changed = match self.change(id, buried(BURY)).await? {
            // The message of a letter was published again, and has failed again.
            Changed::No(Some(record)) if record.is_held_by(token) => {
                let changed = self.change(id, buried(BURY_AGAIN)).await?;
                if matches!(changed, Changed::Yes) && record.sum != sum.as_bytes() {
                    self.delete_parts(id, &record).await;
                }
                changed
            }
            changed => changed,
        };
        Ok(match changed {
            Changed::Yes => Held::Yes,
            // Its own letter, the answer to which was lost.
            Changed::No(Some(record)) if record.state == State::Dead && record.token == token.as_bytes() => Held::Yes,
            Changed::No(_) => Held::Lost,
        })
    }

    async fn dead(&self, filter: &LetterFilter) -> Answer<Vec<Letter>> {
        let (mut letters, mut from) = (Vec::new(), None);
        loop {
            let (entries, next) = self.listed(filter.consumer.as_deref(), from.take()).await?;
            for entry in entries {
                if letters.len() >= filter.limit {
                    return Ok(letters);
                }
                letters.extend(self.letter(entry).await?.filter(|letter| filter.matches(letter)));
            }
            if next.is_none() {
                return Ok(letters);
            }
            from = next;
        }
    }

    async fn resolve(&self, id: &Id, how: Resolve, keep: Duration) -> Answer<bool> {
        let now = now();
        let discarded = |statement| Change::new(statement).with(":at", now).with(":ttl", ttl(now, keep));
        let change = match how {
            Resolve::Replay => Change::new(REPLAY).with(":nobody", &Uuid::nil().as_bytes()[..]).with(":zero", 0),
            Resolve::Discard => discarded(DISCARD).with(":zero", 0),
        };
        let record = match self.change(id, change).await? {
            Changed::Yes => return Ok(true),
            Changed::No(Some(record)) if !record.letter.is_empty() => record,
            Changed::No(_) => return Ok(false),
        };
        // Replayed before, perhaps by this call, whose answer was lost.
        if how == Resolve::Replay {
            return Ok(true);
        }
        let is_discarded = self.held(id, discarded(DISCARD_PARTS).with(":sum", &record.sum[..])).await? == Held::Yes;
        if is_discarded {
            self.delete_parts(id, &record).await;
        }
        Ok(is_discarded)
    }
}
