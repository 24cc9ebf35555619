//! The outbox, filled.

use anyhow::Result;
use idem::Postgres;
use idem::outbox::Outgoing;
use sqlx::{Connection, PgConnection};

/// The name of the outbox.
pub(super) const OUTBOX: &str = "bench";
/// The name of the queue, stream or topic.
pub(super) const NAME: &str = "idem-bench-relay";

/// The bytes of a payload.
pub(super) const SIZE: usize = 200;

/// The number of messages of a transaction.
const CHUNK: usize = 1000;

/// Returns the payload of a message.
pub(super) fn payload(number: usize) -> Vec<u8> {
    let mut payload = number.to_string().into_bytes();
    payload.resize(SIZE, b'.');
    payload
}

/// Stages this many messages. With `keys`, they are spread over this many keys.
pub(super) async fn fill(conn: &mut PgConnection, store: &Postgres, messages: usize, keys: usize) -> Result<()> {
    let outbox = store.outbox(OUTBOX);
    for first in (0..messages).step_by(CHUNK) {
        let staged = (first..messages.min(first + CHUNK)).map(|number| {
            let message = Outgoing::new(NAME, payload(number));
            if keys == 0 { message } else { message.key((number % keys) as i64) }
        });
        let mut tx = conn.begin().await?;
        outbox.stage(&mut tx, staged).await?;
        tx.commit().await?;
    }
    Ok(())
}
