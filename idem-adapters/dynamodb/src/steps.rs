//! The steps of a key-value store, each a conditional write. The condition that fails returns the record, and by it the step decides.

use std::time::{Duration, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValueStore, Letter, LetterFilter, Resolve};
use idem_core::store::{Answer, StoreError};
use idem_core::{Error, Fingerprint};
use uuid::Uuid;

use crate::change::{
    ACQUIRE, BURY, COMPLETE, Change, DISCARD, FORGET, PROLONG, RELEASE, RENEW, REPLAY, RESUME, TAKE_OVER,
};
use crate::error::answered;
use crate::item::Attributes;
use crate::record::{PK, Record, State, millis, now, ttl};
use crate::table::{self, DEAD};
use crate::transaction::Changed;
use crate::{DynamoDb, DynamoWrites};

/// The largest payload of a message: its dead letter, in base64 and with its headers and its error, must fit into an item.
const MAX_PAYLOAD: usize = 256 * 1024;

/// The most bytes of a dead letter: an item has 400 KB, and its name and other attributes need some.
const MAX_LETTER: usize = 400 * 1024 - 4096;

/// How often a record is read again that others change meanwhile.
const TRIES: u32 = 4;

impl DynamoDb {
    /// Makes a change whose answer is whether the token had the lease.
    async fn held(&self, id: &Id, change: Change) -> Answer<Held> {
        Ok(match self.change(id, change).await? {
            Changed::Yes => Held::Yes,
            Changed::No(_) => Held::Lost,
        })
    }

    /// Returns a page of the names of dead letters, and where the next one begins.
    async fn listed(
        &self,
        consumer: Option<&str>,
        from: Option<Attributes>,
    ) -> Answer<(Vec<Attributes>, Option<Attributes>)> {
        let table = &self.shared.table;
        let (items, next) = match consumer {
            Some(consumer) => {
                let query = self.client.query().table_name(table).index_name(DEAD).set_exclusive_start_key(from);
                let query =
                    query.key_condition_expression("#dead = :consumer").expression_attribute_names("#dead", DEAD);
                let query = query.expression_attribute_values(":consumer", AttributeValue::S(consumer.to_owned()));
                let page = answered(query.send()).await.map_err(|refusal| refusal.failure.fault())?;
                (page.items, page.last_evaluated_key)
            }
            None => {
                let scan = self.client.scan().table_name(table).index_name(DEAD).set_exclusive_start_key(from);
                let page = answered(scan.send()).await.map_err(|refusal| refusal.failure.fault())?;
                (page.items, page.last_evaluated_key)
            }
        };
        Ok((items.unwrap_or_default(), next.filter(|next| !next.is_empty())))
    }

    /// Reads the letter that an entry of the index names. `None`: it was resolved meanwhile, or somebody has damaged it.
    async fn letter(&self, mut entry: Attributes) -> Answer<Option<Letter>> {
        let Some(name) = entry.remove(PK) else { return Ok(None) };
        let get = self.client.get_item().table_name(&self.shared.table).key(PK, name).consistent_read(true);
        let found = answered(get.send()).await.map_err(|refusal| refusal.failure.fault())?;
        let record = found.item.and_then(|item| Record::read(&item).ok());
        Ok(record.and_then(|record| Letter::decode(&record.letter)))
    }
}

impl KeyValueStore for DynamoDb {
    type Writes = DynamoWrites;

    fn name(&self) -> String {
        self.place()
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
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
        let change = Change::new(COMPLETE).with(":token", &token.as_bytes()[..]);
        let change = change.with(":at", now).with(":ttl", ttl(now, keep));
        let changed = match writes.is_empty() {
            true => self.change(id, change).await?,
            false => match self.change_with(id, token, change, writes).await? {
                Ok(changed) => changed,
                Err(why) => return Ok(Completed::Refused(why)),
            },
        };
        Ok(match changed {
            Changed::Yes => Completed::Yes,
            // Its own completion, whose answer was lost.
            Changed::No(Some(record)) if record.state == State::Done && record.token == token.as_bytes() => {
                Completed::Yes
            }
            Changed::No(_) => Completed::Lost,
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
        if encoded.len() > MAX_LETTER {
            let why = format!(
                "its dead letter has {} bytes, and an item of DynamoDB at most 400 KB: keep such a payload elsewhere, in S3, and publish \
                 its address",
                encoded.len()
            );
            return Err(StoreError::Message(why.into()));
        }
        let change = Change::new(BURY).with(":token", &token.as_bytes()[..]).with(":at", now());
        let change = change.with(":letter", &encoded[..]).with(":consumer", &*id.consumer);
        Ok(match self.change(id, change).await? {
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
        let change = match how {
            Resolve::Replay => Change::new(REPLAY).with(":nobody", &Uuid::nil().as_bytes()[..]).with(":zero", 0),
            Resolve::Discard => Change::new(DISCARD).with(":at", now).with(":ttl", ttl(now, keep)),
        };
        Ok(match self.change(id, change).await? {
            Changed::Yes => true,
            // Replayed before, perhaps by this call, whose answer was lost.
            Changed::No(Some(record)) => how == Resolve::Replay && !record.letter.is_empty(),
            Changed::No(None) => false,
        })
    }
}
