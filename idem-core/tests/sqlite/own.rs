//! Claims and staged messages in transactions of the application's own.

use futures_util::FutureExt as _;
use idem_core::store::{OutboxRead, OutboxRows, OwnClaim, Transactions};
use idem_core::{Error, Fingerprint, Key, Outgoing, Sqlite, StoreOutbox};
use sqlx::{Connection, SqliteConnection};

use crate::world::World;

const STAGED: &str = "idem_outbox_messages";

#[tokio::test]
async fn an_application_claims_and_stages_in_its_own_transaction() {
    let world = World::new().await;
    let (store, mut own) = (&world.store, world.outsider().await);
    let outbox: StoreOutbox<Sqlite> = store.outbox("billing");
    for (commits, expected) in [(false, 0), (true, 2)] {
        let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let claim = store.claim_key(&mut tx, "importer", "row", Key::of("a").unwrap(), Fingerprint::of(b"1"));
        assert!(claim.await.unwrap().is_new());
        outbox.stage(&mut tx, [Outgoing::new("a", "1").key(1), Outgoing::new("a", "2").key(1)]).await.unwrap();
        match commits {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
        assert_eq!(world.count(STAGED).await, expected);
    }
    let rung = store.facts().notifier.listen();
    outbox.wake();
    assert!(rung.has_changed().unwrap(), "relays of this process are woken");
    for (text, expected) in [("1", OwnClaim::Duplicate), ("2", OwnClaim::Conflict)] {
        let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let fingerprint = Fingerprint::of(text.as_bytes());
        let claim = store.claim_key(&mut tx, "importer", "row", Key::of("a").unwrap(), fingerprint);
        assert_eq!(claim.await.unwrap(), expected);
    }
    let empty = store.claim_key(&mut own, "importer", "row", Key::stored(b"").unwrap(), Fingerprint::none()).await;
    assert!(matches!(empty, Err(Error::Config(_))), "{empty:?}");
}

/// A request may claim again what a call that was cancelled has claimed, or another layer of it.
#[tokio::test]
async fn a_claim_of_its_own_transaction_is_new_again() {
    let world = World::new().await;
    let (store, mut own) = (&world.store, world.outsider().await);
    let claim = async |tx: &mut SqliteConnection, text: &str| {
        let (key, fingerprint) = (Key::of("a").unwrap(), Fingerprint::of(text.as_bytes()));
        store.claim_key(tx, "importer", "row", key, fingerprint).await.unwrap()
    };
    let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let mut nested = tx.begin().await.unwrap();
    assert_eq!(claim(&mut nested, "1").await, OwnClaim::New);
    assert_eq!(claim(&mut nested, "1").await, OwnClaim::New);
    nested.rollback().await.unwrap();
    let mut nested = tx.begin().await.unwrap();
    assert_eq!(claim(&mut nested, "1").await, OwnClaim::New);
    nested.commit().await.unwrap();
    assert_eq!(claim(&mut tx, "1").await, OwnClaim::New, "its savepoint has made it");
    assert_eq!(claim(&mut tx, "2").await, OwnClaim::Conflict);
    tx.commit().await.unwrap();
    let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(claim(&mut tx, "1").await, OwnClaim::Duplicate);
    drop(tx);
}

/// Whatever is written in no transaction is committed at once, also where sqlx has rolled it back.
#[tokio::test]
async fn a_connection_in_no_transaction_is_refused() {
    let world = World::new().await;
    let (store, mut own) = (&world.store, world.outsider().await);
    let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
    // One that has begun by its first poll is an ordinary drop.
    while tx.begin().now_or_never().is_some() {}
    let claim = store.claim_key(&mut tx, "importer", "row", Key::of("a").unwrap(), Fingerprint::none()).await;
    let staged = store.outbox("billing").stage(&mut tx, [Outgoing::new("orders", "")]).await;
    for refused in [claim.map(drop), staged] {
        assert!(matches!(&refused, Err(Error::Config(why)) if why.contains("in no transaction")), "{refused:?}");
    }
    drop(tx);
    assert_eq!(world.count(STAGED).await, 0);
}

/// The file has one connection for reading. Workers wait for it to look for due rows, and to ping.
#[tokio::test]
async fn a_relay_reads_few_large_payloads_at_once() {
    let world = World::new().await;
    let (store, mut own) = (&world.store, world.outsider().await);
    let large = |n: i32| Outgoing::new("a", vec![b'x'; 1_000_000]).key(n);
    let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
    store.outbox("billing").stage(&mut tx, (0..12).map(large)).await.unwrap();
    tx.commit().await.unwrap();
    let outbox = store.register_outbox("billing").await.unwrap();
    let (mut known, mut reads) = (Vec::new(), Vec::new());
    while known.len() < 12 {
        let read = OutboxRead { known: known.clone(), limit: 100, bytes: 64 * 1024 * 1024, ..OutboxRead::ALL };
        let found = store.read_outbox(outbox, &read).await.unwrap();
        known.extend(found.rows.iter().map(|row| row.id));
        assert_eq!(found.mark.map(|mark| mark.highest), Some(12), "that of the last one, whatever is read");
        reads.push((found.rows.len(), found.is_cut));
    }
    assert_eq!(reads, [(8, true), (4, false)]);
}
