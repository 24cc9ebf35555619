//! The steps of a store.

use std::time::Duration;

use idem_core::Fingerprint;
use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValueStore, LetterFilter, Resolve};
use uuid::Uuid;

use super::World;
use super::world::{id, letter, unique};

const LEASE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(60);
const KEEP: Duration = Duration::from_secs(600);

fn print() -> Fingerprint {
    Fingerprint::of(b"{}")
}

async fn acquire(store: &impl KeyValueStore, id: &Id, token: Uuid, lease: Duration) -> Acquired {
    store.acquire(id, print(), token, lease, KEEP).await.unwrap()
}

/// Returns how often the message was started.
async fn starts(store: &impl KeyValueStore, id: &Id, token: Uuid, lease: Duration) -> u32 {
    match acquire(store, id, token, lease).await {
        Acquired::New { starts, .. } => starts,
        other => panic!("it is {other:?}"),
    }
}

/// Waits for the end of a lease, and takes it over.
async fn take_over(store: &impl KeyValueStore, id: &Id, token: Uuid, lease: Duration) -> u32 {
    let mut started = 0;
    crate::until(async || match acquire(store, id, token, lease).await {
        Acquired::New { starts, .. } => {
            started = starts;
            true
        }
        Acquired::Busy { .. } => false,
        other => panic!("it is {other:?}"),
    })
    .await;
    started
}

fn tokens() -> [Uuid; 2] {
    [Uuid::new_v4(), Uuid::new_v4()]
}

fn counting<W: World>(counter: &str) -> W::Writes {
    let mut writes = W::Writes::default();
    W::count(&mut writes, counter);
    writes
}

/// One token acquires, and others wait; only that token completes. Then copies are done, and no step under it changes anything.
pub async fn a_message_is_acquired_by_one_until_it_is_done<W: World>(world: W) {
    let (store, id, counter, [one, other]) = (world.store(), id(&unique("c"), "e-1"), unique("n"), tokens());
    assert_eq!(starts(&store, &id, one, LEASE).await, 1);
    match acquire(&store, &id, other, LEASE).await {
        Acquired::Busy { left } => assert!(left > LEASE / 2 && left <= LEASE, "{left:?}"),
        other => panic!("it is {other:?}"),
    }
    let writes = counting::<W>(&counter);
    assert_eq!(store.complete(&id, other, KEEP, &writes).await.unwrap(), Completed::Lost);
    assert_eq!(world.counted(&counter).await, 0, "the completion of another token writes nothing");
    assert_eq!(store.complete(&id, one, KEEP, &writes).await.unwrap(), Completed::Yes);
    assert_eq!(world.counted(&counter).await, 1);
    match acquire(&store, &id, other, LEASE).await {
        Acquired::Done { fingerprint, age } => {
            assert!(fingerprint == print() && age < LEASE, "{fingerprint:?} {age:?}")
        }
        other => panic!("it is {other:?}"),
    }
    assert_eq!(store.release(&id, one).await.unwrap(), Held::Lost, "what is done stays done");
    assert_eq!(store.renew(&id, one, LEASE).await.unwrap(), Held::Lost);
    assert!(matches!(acquire(&store, &id, one, LEASE).await, Acquired::Done { .. }));
}

/// Of many processes that acquire at once, one does.
pub async fn of_many_at_once_one_acquires<W: World>(world: W) {
    let (store, id) = (world.store(), id(&unique("c"), "e-1"));
    let all = (0..32).map(|_| acquire(&store, &id, Uuid::new_v4(), LEASE));
    let all = futures_util::future::join_all(all).await;
    let new = all.iter().filter(|acquired| matches!(acquired, Acquired::New { starts: 1, .. })).count();
    let busy = all.iter().filter(|acquired| matches!(acquired, Acquired::Busy { .. })).count();
    assert_eq!((new, busy), (1, 31));
}

/// A step whose answer was lost is sent again, and counts once.
pub async fn acquiring_again_under_the_same_token_counts_no_start<W: World>(world: W) {
    let (store, id, [one, other]) = (world.store(), id(&unique("c"), "e-1"), tokens());
    for _ in 0..3 {
        assert_eq!(starts(&store, &id, one, SHORT).await, 1);
    }
    assert_eq!(take_over(&store, &id, other, LEASE).await, 2);
    assert_eq!(starts(&store, &id, other, LEASE).await, 2);
}

/// A process that was thought dead can write nothing any more.
pub async fn a_lease_that_is_over_is_taken_over_and_fences_the_old_one<W: World>(world: W) {
    let (store, id, counter, [one, other]) = (world.store(), id(&unique("c"), "e-1"), unique("n"), tokens());
    starts(&store, &id, one, SHORT).await;
    take_over(&store, &id, other, LEASE).await;
    let writes = counting::<W>(&counter);
    assert_eq!(store.complete(&id, one, KEEP, &writes).await.unwrap(), Completed::Lost);
    assert_eq!(store.renew(&id, one, LEASE).await.unwrap(), Held::Lost);
    assert_eq!(store.release(&id, one).await.unwrap(), Held::Lost);
    assert_eq!(store.bury(&id, one, &letter(&id, "late")).await.unwrap(), Held::Lost);
    assert_eq!(world.counted(&counter).await, 0);
    assert_eq!(store.complete(&id, other, KEEP, &writes).await.unwrap(), Completed::Yes);
    assert_eq!(world.counted(&counter).await, 1);
}

/// A renewal counts from its own time, and only under the token.
pub async fn a_renewed_lease_lasts<W: World>(world: W) {
    let (store, id, [one, other]) = (world.store(), id(&unique("c"), "e-1"), tokens());
    starts(&store, &id, one, Duration::from_secs(2)).await;
    assert_eq!(store.renew(&id, one, LEASE).await.unwrap(), Held::Yes);
    match acquire(&store, &id, other, LEASE).await {
        Acquired::Busy { left } => assert!(left > LEASE / 2, "{left:?}"),
        other => panic!("it is {other:?}"),
    }
    assert_eq!(store.renew(&id, other, LEASE).await.unwrap(), Held::Lost);
}

/// What was given up was not started; the starts of other processes stay.
pub async fn a_release_takes_the_start_back<W: World>(world: W) {
    let (store, id, [one, other]) = (world.store(), id(&unique("c"), "e-1"), tokens());
    starts(&store, &id, one, LEASE).await;
    assert_eq!(store.release(&id, other).await.unwrap(), Held::Lost);
    assert_eq!(store.release(&id, one).await.unwrap(), Held::Yes);
    assert_eq!(starts(&store, &id, other, SHORT).await, 1, "the first start does not count");
    assert_eq!(take_over(&store, &id, one, LEASE).await, 2);
    assert_eq!(store.release(&id, one).await.unwrap(), Held::Yes);
    assert_eq!(starts(&store, &id, other, LEASE).await, 2, "the start of the process that ended counts");
}

/// A completion whose answer was lost is sent again, and writes once.
pub async fn a_completion_that_is_repeated_writes_once<W: World>(world: W) {
    let (store, id, counter, [one, _]) = (world.store(), id(&unique("c"), "e-1"), unique("n"), tokens());
    starts(&store, &id, one, LEASE).await;
    for _ in 0..3 {
        assert_eq!(store.complete(&id, one, KEEP, &counting::<W>(&counter)).await.unwrap(), Completed::Yes);
    }
    assert_eq!(world.counted(&counter).await, 1);
}

/// Writes are checked before the first of them is applied.
pub async fn refused_writes_write_nothing_and_the_lease_lasts<W: World>(world: W) {
    let (store, id, counter, [one, other]) = (world.store(), id(&unique("c"), "e-1"), unique("n"), tokens());
    starts(&store, &id, one, LEASE).await;
    let mut refused = counting::<W>(&counter);
    W::refuse(&mut refused, &counter);
    let completed = store.complete(&id, one, KEEP, &refused).await.unwrap();
    assert!(matches!(completed, Completed::Refused(_)), "{completed:?}");
    assert_eq!(world.counted(&counter).await, 0, "not even what comes before it");
    assert!(matches!(acquire(&store, &id, other, LEASE).await, Acquired::Busy { .. }));
    assert_eq!(store.complete(&id, one, KEEP, &counting::<W>(&counter)).await.unwrap(), Completed::Yes);
    assert_eq!(world.counted(&counter).await, 1);
}

/// Also if the process ends before it has buried the message.
pub async fn half_applied_writes_are_never_applied_again<W: World>(world: W) {
    if !W::HALF_APPLIES {
        return;
    }
    let (store, id, counter, [one, other]) = (world.store(), id(&unique("c"), "e-1"), unique("n"), tokens());
    starts(&store, &id, one, LEASE).await;
    let mut half = counting::<W>(&counter);
    W::fail(&mut half, &counter);
    for _ in 0..2 {
        let completed = store.complete(&id, one, KEEP, &half).await.unwrap();
        assert!(matches!(completed, Completed::HalfApplied(_)), "{completed:?}");
    }
    assert_eq!(world.counted(&counter).await, 1);
    // The process ends before it buries the message.
    let acquired = acquire(&store, &id, other, LEASE).await;
    assert!(matches!(&acquired, Acquired::HalfApplied(why) if !why.is_empty()), "{acquired:?}");
    assert_eq!(store.bury(&id, one, &letter(&id, "half")).await.unwrap(), Held::Lost);
    assert_eq!(store.bury(&id, other, &letter(&id, "half")).await.unwrap(), Held::Yes);
    assert!(matches!(acquire(&store, &id, one, LEASE).await, Acquired::Done { .. }));
    assert_eq!(world.counted(&counter).await, 1);
}

/// Otherwise the letter would have the other message, and this one would be a copy.
pub async fn half_applied_writes_are_buried_with_their_own_message<W: World>(world: W) {
    if !W::HALF_APPLIES {
        return;
    }
    let (store, id, counter, [one, other]) = (world.store(), id(&unique("c"), "e-1"), unique("n"), tokens());
    starts(&store, &id, one, LEASE).await;
    let mut half = counting::<W>(&counter);
    W::fail(&mut half, &counter);
    store.complete(&id, one, KEEP, &half).await.unwrap();
    let acquired = store.acquire(&id, Fingerprint::of(b"[]"), other, LEASE, KEEP).await.unwrap();
    assert!(matches!(acquired, Acquired::Busy { .. }), "{acquired:?}");
    assert_eq!(store.bury(&id, one, &letter(&id, "half")).await.unwrap(), Held::Yes);
}

/// A letter has the whole message, the first one wins, and it is found by its consumer and handler.
pub async fn a_dead_letter_is_kept_whole_and_fenced<W: World>(world: W) {
    let consumer = unique("c");
    let (store, id, [one, other]) = (world.store(), id(&consumer, b"e\0 \xff"), tokens());
    starts(&store, &id, one, LEASE).await;
    assert_eq!(store.bury(&id, other, &letter(&id, "not ours")).await.unwrap(), Held::Lost);
    for error in ["the first", "the repeat"] {
        assert_eq!(store.bury(&id, one, &letter(&id, error)).await.unwrap(), Held::Yes);
    }
    match acquire(&store, &id, other, LEASE).await {
        Acquired::Done { fingerprint, .. } => assert_eq!(fingerprint, print()),
        other => panic!("it is {other:?}"),
    }
    let dead = store.dead(&LetterFilter::new().consumer(&*consumer)).await.unwrap();
    let [dead] = &dead[..] else { panic!("{dead:?}") };
    assert_eq!((&dead.id, dead.error.as_str(), dead.attempts), (&id, "the first", 3));
    assert_eq!((&dead.delivery.payload()[..], dead.delivery.message_id()), (&b"\xff{}"[..], Some("m-1")));
    let of_another = store.dead(&LetterFilter::new().consumer(&*consumer).handler("other")).await.unwrap();
    assert!(of_another.is_empty());
}

/// A discarded message is done, and its letter is gone. Of two operators one has discarded it.
pub async fn a_dead_letter_is_discarded_once<W: World>(world: W) {
    let consumer = unique("c");
    let (store, id, [one, other]) = (world.store(), id(&consumer, "e-1"), tokens());
    starts(&store, &id, one, LEASE).await;
    assert!(!store.resolve(&id, Resolve::Discard, KEEP).await.unwrap(), "it is not dead");
    store.bury(&id, one, &letter(&id, "no")).await.unwrap();
    assert!(store.resolve(&id, Resolve::Discard, KEEP).await.unwrap());
    for how in [Resolve::Discard, Resolve::Replay] {
        assert!(!store.resolve(&id, how, KEEP).await.unwrap(), "somebody has resolved it");
    }
    assert!(matches!(acquire(&store, &id, other, LEASE).await, Acquired::Done { .. }));
    assert_eq!(letters(&store, &consumer).await, 0);
}

async fn letters(store: &impl KeyValueStore, consumer: &str) -> usize {
    store.dead(&LetterFilter::new().consumer(consumer)).await.unwrap().len()
}

/// Nothing is lost between the replay and the message that is published again, whatever happens to it before it is done.
pub async fn a_replayed_letter_stays_until_its_message_is_done<W: World>(world: W) {
    let (consumer, counter) = (unique("c"), unique("n"));
    let (store, [one, other]) = (world.store(), tokens());
    let [done, dead] = ["e-1", "e-2"].map(|key| id(&consumer, key));
    for id in [&done, &dead] {
        starts(&store, id, one, LEASE).await;
        assert!(!store.resolve(id, Resolve::Replay, KEEP).await.unwrap(), "it is not dead");
        store.bury(id, one, &letter(id, "no")).await.unwrap();
        for _ in 0..2 {
            assert!(store.resolve(id, Resolve::Replay, KEEP).await.unwrap(), "the first answer may have been lost");
        }
        assert_eq!(starts(&store, id, one, LEASE).await, 1, "its starts are counted anew");
        assert!(store.resolve(id, Resolve::Replay, KEEP).await.unwrap());
        assert_eq!(store.release(id, one).await.unwrap(), Held::Yes, "a lease that lasts is not taken from its run");
        assert_eq!(starts(&store, id, other, LEASE).await, 1);
    }
    assert_eq!(letters(&store, &consumer).await, 2);
    assert_eq!(store.bury(&dead, other, &letter(&dead, "again")).await.unwrap(), Held::Yes);
    let found = store.dead(&LetterFilter::new().consumer(&*consumer)).await.unwrap();
    assert!(found.len() == 2 && found.iter().any(|letter| letter.error == "again"), "{found:?}");
    assert_eq!(store.complete(&done, other, KEEP, &counting::<W>(&counter)).await.unwrap(), Completed::Yes);
    assert_eq!((letters(&store, &consumer).await, world.counted(&counter).await), (1, 1));
    assert!(!store.resolve(&done, Resolve::Replay, KEEP).await.unwrap());
}

/// The message may be published long after its replay, and the process that runs it may end.
pub async fn a_replayed_letter_outlives_the_retention<W: World>(world: W) {
    let consumer = unique("c");
    let (store, [one, other]) = (world.store(), tokens());
    let [ended, replayed] = ["e-1", "e-2"].map(|key| id(&consumer, key));
    store.acquire(&replayed, print(), one, SHORT, 2 * SHORT).await.unwrap();
    store.bury(&replayed, one, &letter(&replayed, "no")).await.unwrap();
    assert!(store.resolve(&replayed, Resolve::Replay, 2 * SHORT).await.unwrap());
    store.acquire(&replayed, print(), one, SHORT, 2 * SHORT).await.unwrap();
    store.renew(&replayed, one, SHORT).await.unwrap();
    // This one is acquired later, so the other one would have ended before it.
    store.acquire(&ended, print(), one, LEASE, 2 * SHORT).await.unwrap();
    crate::until(async || matches!(acquire(&store, &ended, other, LEASE).await, Acquired::New { .. })).await;
    assert_eq!(letters(&store, &consumer).await, 1);
    assert_eq!(take_over(&store, &replayed, other, LEASE).await, 2);
}

/// A replayed message that is not published after all.
pub async fn a_replayed_letter_can_be_discarded<W: World>(world: W) {
    let consumer = unique("c");
    let (store, id, [one, other]) = (world.store(), id(&consumer, "e-1"), tokens());
    starts(&store, &id, one, LEASE).await;
    store.bury(&id, one, &letter(&id, "no")).await.unwrap();
    assert!(store.resolve(&id, Resolve::Replay, KEEP).await.unwrap());
    assert!(store.resolve(&id, Resolve::Discard, KEEP).await.unwrap());
    assert_eq!(letters(&store, &consumer).await, 0);
    assert!(matches!(acquire(&store, &id, other, LEASE).await, Acquired::Done { .. }));
}

/// A dead letter waits for an operator for as long as it takes.
pub async fn a_record_ends_with_its_retention_and_a_dead_letter_does_not<W: World>(world: W) {
    let consumer = unique("c");
    let (store, [one, other]) = (world.store(), tokens());
    let [done, dead] = ["e-1", "e-2"].map(|key| id(&consumer, key));
    for id in [&done, &dead] {
        store.acquire(id, print(), one, SHORT, 2 * SHORT).await.unwrap();
    }
    store.bury(&dead, one, &letter(&dead, "no")).await.unwrap();
    store.complete(&done, one, 2 * SHORT, &W::Writes::default()).await.unwrap();
    crate::until(async || matches!(acquire(&store, &done, other, LEASE).await, Acquired::New { starts: 1, .. })).await;
    assert!(matches!(acquire(&store, &dead, other, LEASE).await, Acquired::Done { .. }));
    assert_eq!(store.dead(&LetterFilter::new().consumer(&*consumer)).await.unwrap().len(), 1);
}

/// No two consumers, handlers or keys share a record, whatever is in their names.
pub async fn keys_that_look_alike_do_not_meet<W: World>(world: W) {
    let (store, consumer) = (world.store(), unique("c"));
    let mut ids: Vec<Id> = [&b"a"[..], b"A", b"a ", b"a\0", b"\xff", b"a/b"].map(|key| id(&consumer, key)).into();
    ids.push(Id { handler: "other".into(), ..id(&consumer, "a") });
    ids.push(Id { handler: "reserve/a".into(), ..id(&consumer, "b") });
    ids.push(Id { apart: Some(print()), ..id(&consumer, "a") });
    ids.push(id(&format!("{consumer}/reserve"), "a"));
    for id in &ids {
        assert_eq!(starts(&store, id, Uuid::new_v4(), LEASE).await, 1, "{id:?}");
    }
}
