//! Claims: new, found, waited for.

use std::pin::pin;
use std::time::Duration;

use idem_core::store::{ClaimState, Claimed, Identity, StoreError, Transactions, TxnHandle};
use idem_core::{Fingerprint, Key, Reason};

use super::stage::{Stage, committed, register, settled};
use super::world::{Setup, World};

/// A committed claim is found by this process and by others, whatever claim state they ask for. The answer has the
/// fingerprint of its message, and the time since that was processed.
pub async fn a_committed_claim_is_found<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = stage.world.store(Setup::default()).await.unwrap();
    stage.process("dated").await;
    stage.schedule("waiting").await;
    let (dated, waiting) = (ClaimState::Processed, ClaimState::Waiting);
    for (key, claim_state) in [("dated", dated), ("dated", waiting), ("waiting", dated), ("waiting", waiting)] {
        for store in [&stage.store, &other] {
            let asks = stage.message(key, "another payload");
            let mut txn = store.begin(Duration::from_secs(30)).await.unwrap();
            let claimed = store.claim(&mut txn, &[&asks], claim_state).await.unwrap()[0];
            assert!(!claimed.is_new(), "{key} {claim_state:?}: {claimed:?}");
            let existing = store.existing_claims(&mut txn, &[&asks], true).await.unwrap()[0];
            store.rollback(txn).await.unwrap();
            let (txn, again) = store.begin_first(Duration::from_secs(30), Some(&asks)).await.unwrap();
            store.rollback(txn).await.unwrap();
            for claimed in [Claimed::Found(existing), again] {
                let Claimed::Found(Some(claim)) = claimed else { panic!("{key} {claim_state:?}: {claimed:?}") };
                assert_eq!(claim.fingerprint, stage.id(key).fingerprint, "{key} {claim_state:?}");
                assert_eq!(claim.age.is_some(), key == "dated", "{key} {claim_state:?}: {claim:?}");
                assert!(claim.age.unwrap_or_default() < Duration::from_secs(60), "{claim:?}");
            }
        }
    }
}

/// An uncommitted claim is neither new nor found: another claim waits for it and then fails with a lock timeout. In a
/// database with one writer, `begin` waits instead.
pub async fn an_uncommitted_claim_is_waited_for_then_busy<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let first = stage.claimed(&stage.id("a")).await;
    if W::FEATURES.concurrent {
        let mut second = stage.begin().await;
        let waited = std::time::Instant::now();
        let claimed = stage.store.claim(&mut second, &[&stage.id("a")], ClaimState::Processed).await;
        assert!(matches!(claimed, Err(StoreError::LockTimeout)), "{claimed:?}");
        // As long as that of many, since a message that waits alone begins with its claim.
        let waited = waited.elapsed();
        assert!(waited > Duration::from_millis(80) && waited < Duration::from_millis(800), "{waited:?}");
        stage.store.rollback(second).await.unwrap();
    } else {
        let mut begin = pin!(stage.store.begin(Duration::from_secs(30)));
        for _ in 0..100 {
            assert!(futures_util::poll!(begin.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    committed(stage.commit(first).await);
    assert!(!stage.claim_now(&stage.id("a")).await.is_new());
}

/// A claim that waited for another one finds it if that is committed, and is new if that is rolled back.
pub async fn a_claim_that_waited_finds_what_was_committed<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (key, commit, expected) in [("a", true, false), ("b", false, true)] {
        let first = stage.claimed(&stage.id(key)).await;
        let second = async {
            let id = stage.id(key);
            let begun = stage.store.begin_first(Duration::from_secs(30), Some(&id));
            let (txn, claimed) = begun.await.unwrap();
            stage.store.rollback(txn).await.unwrap();
            claimed
        };
        let end = async {
            // If the database cannot report waiters, the second one waits in `begin`, since it was polled first.
            settled(async || stage.world.waiting().await.is_none_or(|waiting| waiting > 0).then_some(())).await;
            match commit {
                true => committed(stage.commit(first).await),
                false => drop(stage.store.rollback(first).await.unwrap()),
            }
        };
        let (claimed, ()) = tokio::join!(second, end);
        assert_eq!(claimed.is_new(), expected);
    }
}

/// A claim that was rolled back leaves no trace, and to look for it makes none.
pub async fn a_rolled_back_claim_is_new_again<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let txn = stage.claimed(&stage.id("a")).await;
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(stage.existing_claim("a").await, None);
    assert!(stage.claim_now(&stage.id("a")).await.is_new());
}

/// One key under two consumers, or under two handlers of one consumer, means two messages.
pub async fn claims_of_other_consumers_and_handlers_do_not_meet<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let of_handler = register(&stage.store, "billing", "order_shipped").await;
    let of_consumer = register(&stage.store, "shipping", "order_paid").await;
    for handler in [of_handler, of_consumer] {
        let identity = Identity { handler, ..stage.id("a") };
        let txn = stage.claimed(&identity).await;
        committed(stage.commit(txn).await);
    }
    let claims = stage.world.own("processed_messages");
    assert_eq!(stage.world.number(&format!("SELECT count(*) FROM {claims}")).await, 3);
}

/// The existing claim returns the message's fingerprint, and how long ago it was processed, by the database's clock.
pub async fn an_existing_claim_has_fingerprint_and_age<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    stage.claims_earlier(Duration::from_secs(3600)).await;
    let existing_claim = stage.existing_claim("a").await.unwrap();
    assert_eq!(existing_claim.fingerprint, Fingerprint::of(b"a"));
    let age = existing_claim.age.unwrap();
    assert!((Duration::from_secs(3599)..Duration::from_secs(3700)).contains(&age), "{age:?}");

    stage.schedule("b").await;
    assert!(stage.is_waiting("b").await);
}

/// Reopens the claim `a` that the transaction with this handle has left. Returns whether it was reopened.
async fn reopened<W: World>(stage: &Stage<W>, txn_handle: &TxnHandle) -> bool {
    let mut txn = stage.begin().await;
    let reopened = stage.store.reopen(&mut txn, &stage.id("a"), txn_handle).await.unwrap();
    committed(stage.commit(txn).await);
    reopened
}

/// The answer to the first call may be lost, and an operator may then discard the message.
pub async fn a_claim_that_has_changed_is_not_reopened<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let txn_handle = stage.process("a").await;
    assert!(reopened(&stage, &txn_handle).await);
    assert!(!reopened(&stage, &txn_handle).await, "its row was written before");
    if W::FEATURES.refuses_commit {
        // No claim is left by a handler.
        return;
    }
    stage.row(&stage.id("a"), false, Err(Reason::Committed)).await;
    let id = stage.one_dead().await.id;
    assert!(stage.discard(id).await);
    assert!(!reopened(&stage, &txn_handle).await);
    assert!(stage.is_dated("a").await);
}

/// A reopened claim is waiting, and is the same claim.
pub async fn a_reopened_claim_waits_again<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let txn_handle = stage.process("a").await;
    stage.process("b").await;
    assert!(reopened(&stage, &txn_handle).await);
    assert!(stage.is_waiting("a").await);
    assert_eq!(stage.existing_claim("a").await.unwrap().fingerprint, Fingerprint::of(b"a"));
    assert!(stage.is_dated("b").await);
}

/// Keys of 1 byte, of 255 bytes, with NUL, and of bytes that are not text.
pub async fn odd_keys_make_the_round_trip<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let all: Vec<u8> = (0..=254).collect();
    let keys: [&[u8]; 7] = [b"x", b"\0", b"a\0b", &[0xff, 0xfe], &all, &[0xff; 255], "\u{fc}\u{1f600}'\"\\".as_bytes()];
    for key in keys {
        let identity = Identity { key: Key::of(key).unwrap(), ..stage.id("unused") };
        stage.row(&identity, true, Ok(Duration::ZERO)).await;
        assert!(!stage.claim_now(&identity).await.is_new(), "{key:?}");
        let row = stage.fetch_row(idem_core::store::RowKind::Ordinary).await;
        assert_eq!(row.identity.key.as_bytes(), key);
        committed(stage.commit(stage.started(&row).await).await);
    }
}

/// Keys are compared byte by byte: no case folding, trimming or normalization, and a NUL does not end a key.
pub async fn keys_that_look_alike_are_different<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let keys = ["a", "A", "a ", " a", "a\0", "a\0b", "\u{e4}", "a\u{308}", "1", "01", "1.0"];
    for key in keys {
        let txn = stage.claimed(&stage.id(key)).await;
        committed(stage.commit(txn).await);
    }
    let claims = stage.world.own("processed_messages");
    assert_eq!(stage.world.number(&format!("SELECT count(*) FROM {claims}")).await, keys.len() as i64);
}

/// A handler may disable the fingerprint; it is then empty.
pub async fn an_empty_fingerprint_is_a_fingerprint<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let identity = Identity { fingerprint: Fingerprint::none(), ..stage.id("a") };
    stage.row(&identity, true, Ok(Duration::ZERO)).await;
    assert_eq!(stage.existing_claim("a").await.unwrap().fingerprint, Fingerprint::none());
    assert_eq!(stage.one_scheduled().await.identity, identity);
}
