//! What is written in front of COMMIT: staged messages, those for other handlers, and the reply to a request.

use std::iter;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::outbox::{StagedMessage, envelope};
use crate::store::{self, Identity, LOCAL_CONFLICT, LocalMessage, OutboxId, StoredReply};

use super::handle::Statement;
use super::local_sql::CONFLICTS;
use super::quote::bytes;
use super::rows::each;
use super::{Postgres, local_sql, outbox_sql, replies};

/// How long each claim of a batch waits for a lock, in milliseconds: the batch is split then, and waits again.
const BATCH_WAIT: u64 = 100;

/// How many bytes of payloads one transaction may write. The string has twice as many, and the server holds it several times; it
/// parses no value of 256 MiB.
const MOST: usize = 128 * 1024 * 1024;

/// Why a transaction that would write more is refused.
pub(super) const TOO_MUCH: &str = "more than 128 MiB were staged in one transaction: stage less, or store it elsewhere and stage \
                                   where it is";

/// What COMMIT writes, in the string of its guard. It allocates nothing while it is empty.
#[derive(Default)]
pub(super) struct Writes {
    /// The messages for other handlers, in claim order.
    pub(super) local: Vec<LocalMessage>,
    /// Those for a broker, each with its outbox.
    pub(super) staged: Vec<(OutboxId, StagedMessage)>,
    /// The reply to the request that the transaction has claimed.
    pub(super) reply: Option<Box<(Identity, StoredReply)>>,
}

impl Writes {
    pub(super) fn are_too_large(&self) -> bool {
        let local = self.local.iter().map(|message| message.delivery.payload().len());
        let staged = self.staged.iter().map(|(_, message)| message.payload().len());
        local.chain(staged).sum::<usize>() > MOST
    }

    /// Returns the statements of all of it. They call prepared ones if the session has these; a pooler's has none. Claims come
    /// first, as they may wait for another transaction: `own` and `batch` are those of `claim_wait`.
    pub(super) fn statements(&self, store: &Postgres, prepared: bool, own: u64, batch: bool) -> Vec<String> {
        let statement = |name: &str, template: &str, values: &[String]| match prepared {
            true => format!("EXECUTE {name}({})", values.join(", ")),
            false => store.text_with(template, values),
        };
        let staged = self.staged.iter().map(staged_values);
        let staged = staged.map(|values| statement("idem_stage", outbox_sql::STAGE, &values));
        let reply = self.reply.as_deref().map(|kept| statement("idem_reply", replies::KEEP, &replies::values(kept)));
        let staged = staged.chain(reply);
        if self.local.is_empty() {
            return staged.collect();
        }
        let values = local_values(&self.local, claim_wait(self.local.len(), own, batch));
        iter::once(statement("idem_local", &local_sql::stage(), &values)).chain(staged).collect()
    }
}

/// Returns the values of the statement of local messages as literals. Nothing of a message gets into them except hexadecimal
/// digits, which the types read whatever settings the handler has left.
fn local_values(messages: &[LocalMessage], lock_wait: u64) -> [String; 8] {
    let array = |value: &dyn Fn(&LocalMessage) -> String| {
        let values: Vec<String> = messages.iter().map(value).collect();
        format!("ARRAY[{}]", values.join(", "))
    };
    [
        array(&|message| message.identity.handler.0.to_string()),
        array(&|message| bytes(message.identity.key.as_bytes())),
        array(&|message| bytes(message.identity.fingerprint.as_bytes())),
        array(&|message| bytes(message.delivery.payload())),
        array(&|message| bytes(&store::envelope::seal(&message.delivery))),
        bytes(LOCAL_CONFLICT.as_bytes()),
        format!("'{lock_wait}'"),
        array(&|message| match message.provider_key {
            Some(key) => format!("'{key}'::pg_catalog.uuid"),
            None => "NULL::pg_catalog.uuid".to_owned(),
        }),
    ]
}

/// Returns how many local messages became dead letters, if the answer to their statement is among these rows.
pub(super) fn conflicts(answer: &[PgRow]) -> i64 {
    answer.iter().find_map(|row| row.try_get::<i64, _>(CONFLICTS).ok()).unwrap_or(0)
}

fn key(message: &StagedMessage) -> &[u8] {
    message.key().map_or(&[], |key| key.as_bytes())
}

/// Returns the values of the INSERT of a message as literals, as those of local ones.
fn staged_values((outbox, message): &(OutboxId, StagedMessage)) -> [String; 6] {
    let (id, sealed) = (message.id(), envelope::seal(message.message()));
    let [to, key, envelope] = [message.to().as_bytes(), key(message), &sealed].map(bytes);
    [outbox.number.to_string(), format!("'{id}'"), to, key, envelope, bytes(message.payload())]
}

/// Binds the values of all messages to the statement of an application.
pub(super) fn bind<'q>(query: Statement<'q>, outbox: OutboxId, messages: &[StagedMessage]) -> Statement<'q> {
    let query = query.bind(outbox.number).bind(each(messages, |message| message.id()));
    let query = query.bind(each(messages, |message| message.to().as_bytes().to_vec()));
    let query = query.bind(each(messages, |message| key(message).to_vec()));
    let query = query.bind(each(messages, |message| envelope::seal(message.message())));
    query.bind(each(messages, |message| message.payload().to_vec()))
}

/// How long the claim of one of so many local messages waits for a lock, in milliseconds: all of them together as long as another
/// of idem's statements, `own`. The server applies its limit to each lock, and the COMMIT behind them must be answered within `OWN`.
fn claim_wait(count: usize, own: u64, batch: bool) -> u64 {
    let wait = (own / u64::try_from(count).unwrap_or(u64::MAX).max(1)).max(1);
    if batch { wait.min(BATCH_WAIT) } else { wait }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{LOCK_WAIT, OWN};
    use super::*;

    #[test]
    fn however_many_claims_wait_the_commit_is_answered_in_time() {
        let waits = |counts: [usize; 6], batch| counts.map(|count| claim_wait(count, LOCK_WAIT, batch));
        assert_eq!(waits([1, 2, 10, 50, 100, 9000], false), [1000, 500, 100, 20, 10, 1]);
        assert_eq!(waits([1, 2, 10, 50, 100, 9000], true), [100, 100, 100, 20, 10, 1]);
        assert_eq!(claim_wait(3, 40, false), 13, "together no longer than one of them");
        for count in 1..=5000 {
            assert!(u128::from(claim_wait(count, LOCK_WAIT, false)) * count as u128 <= OWN.as_millis() / 2, "{count}");
        }
    }
}
