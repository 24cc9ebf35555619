//! Pruning: how it walks, how fast, and behaviour specific to PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use idem_core::Postgres;
use idem_core::store::{CommitResult, Consumers, Transactions};

use crate::world::{DEADLINE, World, world};

/// Inserts `count` claims, processed `days` days ago.
async fn old_claims(world: &mut World, count: i32, days: i32) {
    let sql = "INSERT INTO processed_messages (handler_id, key, fingerprint, processed_at)
               SELECT $1, ('old-' || $3::text || '-' || n)::bytea, '', now() - $3 * interval '1 day'
               FROM generate_series(1, $2) AS n";
    let query = sqlx::query(sql).bind(world.handler.0).bind(count).bind(days);
    query.execute(&mut world.other).await.unwrap();
}

#[tokio::test]
async fn one_pruner_works_at_a_time_and_gives_the_lock_back() {
    let Some(mut world) = world().await else { return };
    old_claims(&mut world, 3, 8).await;
    let lock = format!("SELECT pg_advisory_lock(hashtextextended('idem prune {}', 0))", world.schema);
    sqlx::query(sqlx::AssertSqlSafe(lock.clone())).execute(&mut world.other).await.unwrap();
    assert_eq!(world.store.prune().await.unwrap(), 0);
    let unlock = lock.replace("advisory_lock", "advisory_unlock");
    sqlx::query(sqlx::AssertSqlSafe(unlock)).execute(&mut world.other).await.unwrap();
    for claims in [3, 0, 0] {
        assert_eq!(world.store.prune().await.unwrap(), claims);
    }
    let free = lock.replace("pg_advisory_lock", "pg_try_advisory_lock");
    let free: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(free)).fetch_one(&mut world.other).await.unwrap();
    assert!(free, "an idle connection holds the lock");
    sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut world.other).await.unwrap();
    // A pruner that is dropped during its work leaves no lock behind.
    old_claims(&mut world, 20_000, 8).await;
    let _ = tokio::time::timeout(Duration::from_millis(20), world.store.prune()).await;
    while world.claims().await > 0 {
        world.store.prune().await.unwrap();
    }
}

/// Its statements read rows that were not read for days.
#[tokio::test]
async fn a_step_may_take_longer_than_other_statements() {
    let Some(mut world) = world().await else { return };
    old_claims(&mut world, 1, 8).await;
    let text = "CREATE TABLE seen (statement_timeout text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             EXECUTE format('INSERT INTO %I.seen VALUES ($1)', TG_TABLE_SCHEMA)
             USING current_setting('statement_timeout'); RETURN NULL; END $$;
         CREATE TRIGGER see AFTER DELETE ON processed_messages FOR EACH ROW EXECUTE FUNCTION see()";
    sqlx::raw_sql(text).execute(&mut world.other).await.unwrap();
    assert_eq!(world.store.prune().await.unwrap(), 1);
    assert_eq!(world.number("SELECT count(*) FROM seen WHERE statement_timeout = '30s'").await, 1);
}

/// Its share is half of the table, because a fortieth of the retention has passed.
#[tokio::test]
async fn a_large_table_is_walked_in_shares_and_then_from_the_beginning_again() {
    let Some(mut world) = world().await else { return };
    old_claims(&mut world, 7, 8).await;
    old_claims(&mut world, 400_000, 1).await;
    old_claims(&mut world, 5, 9).await;
    let blocks = world.number("SELECT pg_relation_size('processed_messages') / 8192").await;
    let walk = async |world: &mut World, block: i64| {
        let place = "INSERT INTO pruner VALUES (1, $1, now() - interval '7 days' / 40)
                     ON CONFLICT (id) DO UPDATE SET block = $1, caught_up_to = excluded.caught_up_to";
        sqlx::query(place).bind(block).execute(&mut world.other).await.unwrap();
        let pruned = world.store.prune().await.unwrap();
        (pruned, world.number("SELECT block FROM pruner").await)
    };
    let (claims, middle) = walk(&mut world, 100).await;
    assert_eq!(claims, 0, "those at both ends are not reached");
    assert!((blocks * 4 / 10..blocks * 7 / 10).contains(&middle), "{middle} of {blocks}");
    let (claims, begin) = walk(&mut world, middle).await;
    assert_eq!(claims, 12, "at the end, and then at the beginning");
    assert!(begin < blocks / 4, "{begin} of {blocks}");
    assert_eq!(world.claims().await, 400_000);

    // A walk that is dropped leaves what it has not walked to the next one.
    let behind = "SELECT extract(epoch FROM now() - caught_up_to)::bigint FROM pruner";
    assert!(world.number(behind).await < 60, "it has caught up");
    sqlx::query("UPDATE pruner SET caught_up_to = now() - interval '7 days' / 40")
        .execute(&mut world.other)
        .await
        .unwrap();
    // A walk of 30 steps or more pauses for five milliseconds behind each.
    tokio::time::timeout(Duration::from_millis(40), world.store.prune()).await.unwrap_err();
    assert!(world.number(behind).await > 7 * 86_400 / 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_forgets_faster_than_four_lanes_claim() {
    let Some(mut world) = world().await else { return };
    old_claims(&mut world, 100_000, 8).await;
    let world = Arc::new(tokio::sync::Mutex::new(world));
    let (stop, claimed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let slowest = Arc::new(AtomicU64::new(0));
    let (store, handler) = {
        let world = world.lock().await;
        (world.store.clone(), world.handler)
    };
    let mut lanes = Vec::new();
    for lane in 0..4 {
        let (store, stop, claimed, slowest) = (store.clone(), stop.clone(), claimed.clone(), slowest.clone());
        lanes.push(tokio::spawn(async move {
            for n in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                let key = idem_core::Key::of(&format!("{lane}-{n}")).unwrap();
                let identity = idem_core::store::Identity { handler, key, fingerprint: idem_core::Fingerprint::none() };
                let begun = Instant::now();
                let mut txn = store.begin(DEADLINE).await.unwrap();
                store.claim(&mut txn, &[&identity], idem_core::store::ClaimState::Processed).await.unwrap();
                assert!(matches!(store.commit(txn).await, CommitResult::Done));
                slowest.fetch_max(begun.elapsed().as_millis() as u64, SeqCst);
                claimed.fetch_add(1, SeqCst);
            }
        }));
    }
    let begun = Instant::now();
    let pruned = store.prune().await.unwrap();
    let took = begun.elapsed();
    stop.store(true, SeqCst);
    for lane in lanes {
        lane.await.unwrap();
    }
    let rate = pruned as f64 / took.as_secs_f64();
    let beside = claimed.load(SeqCst) as f64 / took.as_secs_f64();
    println!(
        "pruned {pruned} claims in {took:?}: {rate:.0}/s, beside {beside:.0} claims/s, the slowest of which took {} ms",
        slowest.load(SeqCst)
    );
    assert_eq!(pruned, 100_000);
    // Alone on the machine, both rates are about three times as high as beside a build.
    assert!(rate > 3.0 * beside, "{rate:.0} claims/s, beside {beside:.0}");
    assert!(claimed.load(SeqCst) > 0);
}

/// The clock is a function of the same name in front of the server's own, for this store only.
#[tokio::test]
async fn a_server_clock_that_jumps_forward_prunes_no_claim_before_its_time() {
    let Some(mut world) = world().await else { return };
    let jumps = "CREATE TABLE jump AS SELECT interval '0' AS by;
         CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql STABLE AS $$
             SELECT pg_catalog.now() + by FROM jump $$;
         ALTER FUNCTION now() SET search_path FROM CURRENT";
    sqlx::raw_sql(jumps).execute(&mut world.other).await.unwrap();
    let url = world.url_with("search_path", &format!("{},pg_catalog", world.schema));
    let store = Postgres::options(url).schema(&world.schema).connect().await.unwrap();
    old_claims(&mut world, 5, 6).await;
    let jump = "UPDATE jump SET by = interval '8 days'";
    sqlx::raw_sql(jump).execute(&mut world.other).await.unwrap();
    assert_eq!(store.prune().await.unwrap(), 0, "their age is six days");
    old_claims(&mut world, 7, 8).await;
    assert_eq!(store.prune().await.unwrap(), 7, "their age is eight days");
    sqlx::raw_sql("UPDATE jump SET by = interval '0'").execute(&mut world.other).await.unwrap();
    assert_eq!((store.prune().await.unwrap(), world.claims().await), (0, 5));
    drop(store);
}
