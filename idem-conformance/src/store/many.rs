//! Several messages in one transaction: claims made and read, rows inserted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use idem_core::store::{
    ClaimState, Claimed, Consumers, HandlerId, Identity, InboxRows, RowKind, StoreError, Transactions, TxnOutcome,
};
use idem_core::{Fingerprint, Key, Store};
use tokio::sync::Barrier;

use super::stage::{Stage, committed, register, settled};
use super::world::{Setup, World};

/// Identities, sorted as a caller must sort them.
fn sorted(mut identities: Vec<Identity>) -> Vec<Identity> {
    identities.sort_by(|a, b| (a.handler.0, a.key.as_bytes()).cmp(&(b.handler.0, b.key.as_bytes())));
    identities
}

/// References to all identities.
fn refs(identities: &[Identity]) -> Vec<&Identity> {
    identities.iter().collect()
}

/// Each of many claims has a separate answer, in the given order: new or found, whatever claim state is asked for and
/// whichever process holds it.
pub async fn of_many_claims_each_is_new_or_found<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let shipped = register(&stage.store, "billing", "order_shipped").await;
    stage.process("dated").await;
    stage.schedule("waiting").await;
    let mut all: Vec<_> = ["dated", "waiting", "a", "A", "a\0", "\u{ff}"].map(|key| stage.id(key)).into();
    // The same keys of another handler are other messages.
    all.extend(["dated", "waiting", "b"].map(|key| Identity { handler: shipped, ..stage.id(key) }));
    let all = sorted(all);
    let known = |id: &Identity| id.handler == stage.handler && [&b"dated"[..], b"waiting"].contains(&id.key.as_bytes());
    for claim_state in [ClaimState::Processed, ClaimState::Waiting] {
        let mut txn = stage.begin().await;
        let claimed = stage.store.claim(&mut txn, &refs(&all), claim_state).await.unwrap();
        let expected = all.iter().map(|id| !known(id));
        assert_eq!(
            claimed.iter().map(Claimed::is_new).collect::<Vec<_>>(),
            expected.collect::<Vec<_>>(),
            "{claim_state:?}"
        );
        stage.store.rollback(txn).await.unwrap();
    }
    let mut txn = stage.begin().await;
    let none = stage.store.claim(&mut txn, &[], ClaimState::Waiting).await.unwrap();
    assert!(none.is_empty());
    stage.store.claim(&mut txn, &refs(&all), ClaimState::Processed).await.unwrap();
    committed(stage.commit(txn).await);
    let mut txn = stage.begin().await;
    let again = stage.store.claim(&mut txn, &refs(&all), ClaimState::Processed).await.unwrap();
    assert_eq!((again.len(), again.iter().filter(|claimed| claimed.is_new()).count()), (all.len(), 0));
    committed(stage.commit(txn).await);
    assert!(stage.is_dated("a").await && stage.is_waiting("waiting").await);
}

/// Each of many claims that are read has a separate answer, in the given order.
pub async fn many_claims_are_read_at_once<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for key in ["a", "b"] {
        stage.process(key).await;
    }
    stage.claims_earlier(Duration::from_secs(3600)).await;
    stage.schedule("c").await;
    let asked = sorted(["missing", "c", "b", "a", "another"].map(|key| stage.message(key, "other")).into());
    let mut txn = stage.begin().await;
    let existing_claim = stage.store.existing_claims(&mut txn, &refs(&asked), true).await.unwrap();
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(existing_claim.len(), asked.len());
    for (asked, existing_claim) in asked.iter().zip(existing_claim) {
        let one = stage.existing_claim(&asked.key.to_string()).await;
        assert_eq!(
            existing_claim.as_ref().map(|one| &one.fingerprint),
            one.as_ref().map(|one| &one.fingerprint),
            "{asked:?}"
        );
        let age = |existing_claim: Option<idem_core::store::ExistingClaim>| {
            existing_claim.map(|one| one.age.map(|age| age.as_secs() / 60))
        };
        assert_eq!(age(existing_claim), age(one), "{asked:?}");
    }
}

/// Claims read together are kept until the end of the transaction: a prune finds nothing to delete.
pub async fn many_claims_that_are_read_are_kept<W: World>(world: W) {
    let stage = Stage::with(world, Setup { retention: Some(Duration::from_secs(60)), ..Setup::default() }).await;
    for key in ["a", "b", "free"] {
        stage.process(key).await;
    }
    stage.claims_earlier(Duration::from_secs(3600)).await;
    let mut txn = stage.begin().await;
    let read = [stage.id("a"), stage.id("b")];
    stage.store.existing_claims(&mut txn, &refs(&read), true).await.unwrap();
    if W::FEATURES.concurrent {
        assert_eq!(stage.store.prune().await.unwrap(), 1);
    }
    stage.store.rollback(txn).await.unwrap();
    stage.store.prune().await.unwrap();
    assert_eq!(stage.existing_claim("a").await, None);
}

/// One blocked claim fails all of them, within the lock timeout whatever its position, and leaves the others free.
pub async fn a_claim_that_is_held_up_fails_all_of_many<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    let all = [stage.id("a"), stage.id("b"), stage.id("c")];
    for held in ["a", "b", "c"] {
        let first = stage.claimed(&stage.id(held)).await;
        for claim_state in [ClaimState::Processed, ClaimState::Waiting] {
            let mut txn = stage.begin().await;
            let ids = refs(&all);
            let claimed = stage.store.claim(&mut txn, &ids, claim_state);
            let claimed = tokio::time::timeout(Duration::from_secs(5), claimed).await.expect("it waits without an end");
            assert!(matches!(claimed, Err(StoreError::LockTimeout)), "{held} {claim_state:?}: {claimed:?}");
            stage.store.rollback(txn).await.unwrap();
        }
        for free in ["a", "b", "c"].into_iter().filter(|key| *key != held) {
            assert!(stage.claim_now(&stage.id(free)).await.is_new());
        }
        stage.store.rollback(first).await.unwrap();
    }
}

/// The first of many waits for a claim that is then committed: it is found, and the others are new.
pub async fn many_claims_that_waited_find_what_was_committed<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let first = stage.claimed(&stage.id("b")).await;
    let all = [stage.id("a"), stage.id("b"), stage.id("c")];
    let second = async {
        loop {
            let mut txn = stage.begin().await;
            let claimed = stage.store.claim(&mut txn, &refs(&all), ClaimState::Processed).await;
            stage.store.rollback(txn).await.unwrap();
            match claimed {
                // The server reported the waiter late.
                Err(StoreError::LockTimeout) => {}
                claimed => break claimed.unwrap(),
            }
        }
    };
    let end = async {
        settled(async || stage.world.waiting().await.is_none_or(|waiting| waiting > 0).then_some(())).await;
        committed(stage.commit(first).await);
    };
    let (claimed, ()) = tokio::join!(second, end);
    assert_eq!(claimed.iter().map(Claimed::is_new).collect::<Vec<_>>(), [true, false, true]);
}

const ROUNDS: usize = 40;
/// So many that a statement with them takes longer than starting one: each round overlaps reliably.
const KEYS: usize = 400;

/// A batch that waits for its first key holds none of the others. In any other order, two batches could each hold a
/// claim that the other one waits for.
pub async fn many_claims_are_made_in_their_order<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    let all = sorted((0..KEYS).map(|n| one_of(stage.handler, 0, n)).collect());
    let first = stage.claimed(&all[0]).await;
    let is_done = AtomicBool::new(false);
    let waits = async {
        while !is_done.load(Relaxed) {
            let mut txn = stage.begin().await;
            let claimed = stage.store.claim(&mut txn, &refs(&all), ClaimState::Processed).await;
            assert!(matches!(claimed, Err(StoreError::LockTimeout)), "{claimed:?}");
            stage.store.rollback(txn).await.unwrap();
        }
    };
    let beside = async {
        // The batch may end before this has looked: once in several rounds on a busy machine.
        for _ in 0..40 {
            settled(async || stage.world.waiting().await.filter(|waiting| *waiting > 0)).await;
            // It waits for a shorter time than the batch, which would otherwise give up first.
            let mut txn = stage.store.begin(Duration::from_millis(100)).await.unwrap();
            let claimed = stage.store.claim(&mut txn, &refs(&all[1..11]), ClaimState::Processed).await;
            // On a busy machine, this transaction may end by its own limits instead.
            drop(stage.store.rollback(txn).await);
            assert!(!matches!(claimed, Err(StoreError::LockTimeout)), "the batch holds a claim behind its first");
        }
        is_done.store(true, Relaxed);
    };
    tokio::join!(waits, beside);
    stage.store.rollback(first).await.unwrap();
}

/// Two transactions claim overlapping sets at the same moment, again and again. For each key one claim is new. Almost
/// none waits longer than the other's commit takes, as it would in a deadlock.
pub async fn overlapping_claims_of_many_never_deadlock<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let barrier = Arc::new(Barrier::new(2));
    let worker = |store: W::Store, from: usize, to: usize| {
        let (barrier, handler) = (barrier.clone(), stage.handler);
        tokio::spawn(async move {
            let (mut new, mut held_up) = (0, 0);
            for round in 0..ROUNDS {
                let all = sorted((from..to).map(|n| one_of(handler, round, n)).collect());
                barrier.wait().await;
                let (txn, claimed) = claim_all(&store, &all, &mut held_up).await;
                new += claimed.iter().filter(|claimed| claimed.is_new()).count();
                committed(store.commit(txn).await);
            }
            (new, held_up)
        })
    };
    let other = stage.world.store(Setup::default()).await.unwrap();
    let (one, two) = (worker(stage.store.clone(), 0, KEYS - 4), worker(other, 4, KEYS));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert_eq!(one.0 + two.0, ROUNDS * KEYS);
    let held_up = one.1 + two.1;
    assert!(held_up < ROUNDS / 4, "{held_up} of {ROUNDS} rounds were held up");
}

/// Claims all, as often as it takes. Counts how often it was held up.
async fn claim_all<S: Store>(store: &S, all: &[Identity], held_up: &mut usize) -> (S::Txn, Vec<Claimed>) {
    loop {
        let mut txn = store.begin(Duration::from_secs(30)).await.unwrap();
        match store.claim(&mut txn, &refs(all), ClaimState::Processed).await {
            Ok(claimed) => return (txn, claimed),
            Err(StoreError::LockTimeout | StoreError::Serialization(_)) => *held_up += 1,
            Err(fault) => panic!("{fault:?}"),
        }
        store.rollback(txn).await.unwrap();
    }
}

/// A key whose position in sorted order is not that of its number.
fn one_of(handler: HandlerId, round: usize, n: usize) -> Identity {
    let key = Key::of(format!("{:03}, the {n}th of round {round}", n * 7 % KEYS).as_str()).unwrap();
    Identity { handler, key, fingerprint: Fingerprint::of(b"same") }
}

/// The guard detects the handler's abuse of a transaction with many claims as with one.
pub async fn the_guard_watches_over_many_claims<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("found").await;
    for (sql, expected) in [("ROLLBACK", "RolledBack"), ("SELECT 1", "Done")] {
        let keys = [format!("{sql} 1"), format!("{sql} 2"), "found".to_owned()];
        let all = sorted(keys.iter().map(|key| stage.id(key)).collect());
        let mut txn = stage.begin().await;
        stage.store.claim(&mut txn, &refs(&all), ClaimState::Processed).await.unwrap();
        stage.execute(&mut txn, sql).await.unwrap();
        let answer = stage.commit(txn).await;
        assert_eq!(format!("{answer:?}"), expected, "{sql}");
    }
}

/// Where claims share a transaction, only idem commits it. A COMMIT by the handler is an error, after which none of the
/// claims exists, however they were opened.
pub async fn a_commit_by_the_handler_of_one_of_many_is_refused<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("found").await;
    for (n, sql) in ["COMMIT", "END", "COMMIT; BEGIN"].into_iter().enumerate() {
        let keys = [format!("{n} 1"), format!("{n} 2"), "found".to_owned()];
        let all = sorted(keys.iter().map(|key| stage.id(key)).collect());
        let mut txn = stage.begin().await;
        stage.store.claim(&mut txn, &refs(&all), ClaimState::Processed).await.unwrap();
        stage.effect(&mut txn, "effect").await;
        stage.execute(&mut txn, sql).await.unwrap_err();
        let answer = format!("{:?}", stage.commit(txn).await);
        assert!(["RolledBack", "CommitRefused"].contains(&&*answer), "{sql}: {answer}");
        assert_eq!((stage.effects("effect").await, stage.existing_claim(&keys[0]).await), (0, None), "{sql}");
    }

    stage.schedule("a").await;
    stage.schedule("b").await;
    let rows = stage.fetch(RowKind::Ordinary).await;
    let mut txn = stage.begin().await;
    assert_eq!(
        stage.store.start(&mut txn, &rows.iter().collect::<Vec<_>>(), ClaimState::Processed).await.unwrap(),
        [true, true]
    );
    stage.execute(&mut txn, "COMMIT").await.unwrap_err();
    let undone = stage.store.rollback(txn).await.unwrap();
    assert_ne!(undone, TxnOutcome::CommittedEarly);
    assert_eq!(stage.scheduled().await.len(), 2);
    assert!(stage.is_waiting("a").await && stage.is_waiting("b").await);
}
