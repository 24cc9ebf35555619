//! Deletion of claims that are older than the retention of their handler: a walk through the table, in steps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::prune_sql::{COUNT, DELETE, END, ENTER, FIND, PLACE, PRUNED_THROUGH, RECORD};
use super::sql::{duration, millis};
use super::{Sqlite, Txn};
use crate::store::sql::Walk;
use crate::store::{Pruned, StoreError};

/// How many claims one step reads, without keeping writers away.
const STEP: u64 = 10_000;
/// How many claims one transaction deletes: it occupies the single writer for about 10 ms.
const CHUNK: usize = 1000;
/// A table of at most this many claims is walked as a whole by each call.
const SMALL: u64 = 100_000;
/// How long a pruner keeps others away after it last renewed its turn.
const TURN: Duration = Duration::from_secs(10);
/// The longest pause between two transactions.
const PAUSE: Duration = Duration::from_millis(250);

/// A claim: its handler and its key.
type Claim = (i64, Vec<u8>);

/// Where the walk is.
struct Place {
    /// The last claim that was read.
    last: Claim,
    /// How many claims this round has read, and the last one.
    walked: u64,
    size: u64,
    /// The time by which claims are old.
    now: i64,
}

/// One step: the old claims, how many claims it read, and the last one of these; `None` at the end of the table.
struct Found {
    old: Vec<Claim>,
    read: u64,
    end: Option<Claim>,
}

/// Pauses after each transaction for as long as it took, so that claims of other processes, which poll for the write
/// lock, can proceed. Claims of this process wait in the same fair queue.
pub(super) async fn prune(store: &Sqlite) -> Result<Pruned, StoreError> {
    let token = Uuid::new_v4();
    let Some((mut place, walk, mut left)) = enter(store, token).await? else { return Ok(Pruned::elsewhere()) };
    let (mut claims, mut before, mut unrecorded, mut recorded) = (0, place.walked, 0, Instant::now());
    while left > 0 {
        let begun = Instant::now();
        let found = find(store, &place, STEP.min(left)).await?;
        tokio::time::sleep(begun.elapsed().min(PAUSE)).await;
        for old in found.old.chunks(CHUNK) {
            let begun = Instant::now();
            let Some(deleted) = delete(store, token, old, place.now).await? else { return Ok(Pruned::of(claims)) };
            claims += deleted;
            tokio::time::sleep(begun.elapsed().min(PAUSE)).await;
        }
        left -= found.read.min(left);
        unrecorded += found.read;
        place.walked += found.read;
        match found.end {
            Some(end) => place.last = end,
            // From the beginning up to where this call began.
            None => {
                left = left.min(std::mem::take(&mut before));
                place = Place { last: (0, Vec::new()), walked: 0, size: place.walked, ..place };
            }
        }
        if recorded.elapsed() > TURN / 5 {
            let caught_up = walk.worth(std::mem::take(&mut unrecorded));
            record(store, token, &place, caught_up, TURN).await?;
            recorded = Instant::now();
        }
    }
    record(store, token, &place, walk.worth(unrecorded), Duration::ZERO).await?;
    Ok(Pruned::of(claims))
}

/// Returns the place of the walk, and how many claims this call may read; `None` while another pruner is active.
async fn enter(store: &Sqlite, token: Uuid) -> Result<Option<(Place, Walk, u64)>, StoreError> {
    let asked = Instant::now();
    let enter = async |store: &Sqlite, txn: &mut Txn| {
        if !take_turn(store, txn.connection(), token).await? {
            return Ok(None);
        }
        let row = store.query(PLACE).fetch_one(txn.connection()).await?;
        let number = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
        let last = (row.try_get("handler_id")?, row.try_get("key")?);
        let now: i64 = row.try_get("now")?;
        let now = now - millis(store.clock.ahead(asked, duration(now)));
        let place = Place { last, walked: number("walked")?, size: number("size")?, now };
        let (behind, retention): (i64, Option<i64>) = (row.try_get("behind")?, row.try_get("retention")?);
        // The table may have grown since the last round.
        let size = place.size.max(place.walked).max(SMALL);
        let walk = Walk { size, small: SMALL, step: STEP, retention: retention.map_or(Duration::MAX, duration) };
        let share = if retention.is_some() { walk.share(duration(behind)) } else { 0 };
        Ok(Some((place, walk, share)))
    };
    store.in_transaction(enter).await
}

/// Reads with another connection than the writer, in one snapshot: otherwise a claim that is deleted meanwhile would look
/// like the end of the table.
async fn find(store: &Sqlite, place: &Place, step: u64) -> Result<Found, StoreError> {
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    let find = async |store: &Sqlite, reader: &mut SqliteConnection| {
        let asked = |text| store.query(text).bind(place.last.0).bind(&place.last.1).bind(step);
        let claim = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?));
        sqlx::raw_sql("BEGIN").execute(&mut *reader).await?;
        let old = asked(FIND).bind(place.now).fetch_all(&mut *reader).await?;
        let read: i64 = asked(COUNT).fetch_one(&mut *reader).await?.try_get(0)?;
        let end = asked(END).fetch_optional(&mut *reader).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *reader).await?;
        let old = old.iter().map(claim).collect::<Result<_, sqlx::Error>>()?;
        Ok(Found { old, read: read.unsigned_abs(), end: end.as_ref().map(claim).transpose()? })
    };
    store.read(find).await
}

/// Runs one transaction, and returns how many claims it has deleted; `None` if another pruner has taken the turn.
async fn delete(store: &Sqlite, token: Uuid, old: &[Claim], now: i64) -> Result<Option<u64>, StoreError> {
    let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(Some(0)) };
    let delete = async |store: &Sqlite, txn: &mut Txn| {
        if !take_turn(store, txn.connection(), token).await? {
            return Ok(None);
        }
        let query = store.query(DELETE).bind(first.0).bind(&first.1).bind(last.0).bind(&last.1);
        let query = query.bind(now);
        let deleted = query.fetch_all(txn.connection()).await?;
        let mut through = BTreeMap::<i64, i64>::new();
        for row in &deleted {
            let highest = through.entry(row.try_get("handler_id")?).or_insert(i64::MIN);
            *highest = row.try_get::<i64, _>("processed_at")?.max(*highest);
        }
        for (handler, highest) in through {
            let query = store.query(PRUNED_THROUGH).bind(handler).bind(highest);
            query.execute(txn.connection()).await?;
        }
        Ok(Some(u64::try_from(deleted.len()).unwrap_or(0)))
    };
    store.in_transaction(delete).await
}

async fn take_turn(store: &Sqlite, connection: &mut SqliteConnection, token: Uuid) -> Result<bool, sqlx::Error> {
    let enter = store.query(ENTER).bind(token).bind(millis(TURN));
    Ok(enter.execute(connection).await?.rows_affected() > 0)
}

/// Records the place, and keeps the turn for this long. Changes nothing if another pruner has taken the turn.
async fn record(
    store: &Sqlite,
    token: Uuid,
    place: &Place,
    caught_up: Duration,
    keep: Duration,
) -> Result<(), StoreError> {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let query = store.query(RECORD).bind(token).bind(place.last.0).bind(&place.last.1);
    let query = query.bind(number(place.walked)).bind(number(place.size)).bind(millis(caught_up)).bind(millis(keep));
    store.change(query).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::store::Consumers as _;
    use crate::store::sql::Clock;
    use crate::store::sqlite::sql::since_epoch;

    const DAY: i64 = 86_400_000;

    /// As if the clock had jumped: at the last reading, it was eight days behind the present one.
    #[tokio::test]
    async fn a_clock_that_jumps_forward_prunes_no_claim_before_its_time() {
        let file = std::env::temp_dir().join(format!("idem-{}.db", Uuid::new_v4().simple()));
        let mut store = Sqlite::connect(format!("sqlite:{}", file.display())).await.unwrap();
        let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
        let now = since_epoch(SystemTime::now());
        for (key, days) in [("six days", 6 + 8), ("eight days", 8 + 8)] {
            let insert = r#"INSERT INTO "idem_processed_messages" VALUES (?, ?, x'', ?)"#;
            let insert = sqlx::query(insert).bind(handler.0).bind(key.as_bytes()).bind(now - days * DAY);
            store.change(insert).await.unwrap();
        }
        let jumped = Clock::default();
        jumped.ahead(Instant::now(), duration(now - 8 * DAY));
        store.clock = Arc::new(jumped);
        assert_eq!([store.prune().await.unwrap(), store.prune().await.unwrap()], [Pruned::of(1), Pruned::default()]);
        drop(store);
        let _ = std::fs::remove_file(file);
    }
}
