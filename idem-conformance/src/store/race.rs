//! Two workers claim one key at the same time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_core::store::{ClaimState, Identity, StoreError, Transactions};
use idem_core::{Fingerprint, HasConnection, Key};
use tokio::sync::{Barrier, watch};

use super::stage::{Stage, committed};
use super::world::{Setup, World};

const ROUNDS: usize = 1000;

/// The result of one worker's claim in one round.
struct Claim {
    new: bool,
    sent: Instant,
    answered: Instant,
    /// When the commit of a new claim was sent.
    commit: Instant,
}

/// The synchronization between two workers.
struct Meeting {
    barrier: Barrier,
    /// How many claims were sent.
    sent: watch::Sender<usize>,
}

impl Meeting {
    /// Waits for the other worker; the claim is then sent.
    async fn go(&self) -> Instant {
        self.barrier.wait().await;
        self.sent.send_modify(|sent| *sent += 1);
        Instant::now()
    }

    /// Waits until the other worker has also sent its claim of this round, so that scheduling cannot keep them apart.
    async fn both_sent(&self, round: usize) {
        self.sent.subscribe().wait_for(|sent| *sent >= 2 * (round + 1)).await.unwrap();
    }
}

/// Two processes claim one key at the same moment, a thousand times: there is one effect each time. Prints how many
/// claims really waited for the other's commit.
pub async fn two_claims_at_once_have_one_effect_a_thousand_times<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = stage.world.store(Setup::default()).await.unwrap();
    let meeting = Arc::new(Meeting { barrier: Barrier::new(2), sent: watch::Sender::new(0) });
    let worker = |store: W::Store| {
        let (meeting, handler, effects) = (meeting.clone(), stage.handler, stage.world.name("effects"));
        tokio::spawn(async move {
            let mut claims = Vec::with_capacity(ROUNDS);
            for round in 0..ROUNDS {
                let name = format!("round-{round}");
                let (key, fingerprint) = (Key::of(name.as_str()).unwrap(), Fingerprint::of(b"same"));
                let effect = format!("INSERT INTO {effects} (name) VALUES ('{name}')");
                claims
                    .push(claim::<W>(&store, &meeting, round, &Identity { handler, key, fingerprint }, &effect).await);
            }
            claims
        })
    };
    let (one, two) = (worker(stage.store.clone()), worker(other));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());

    let (mut waited, mut claims, mut waits) = (0, Vec::new(), Vec::new());
    for (one, two) in one.iter().zip(&two) {
        let (new, found) = if one.new { (one, two) } else { (two, one) };
        assert!(new.new && !found.new, "of two claims one is new");
        // Sent before the other's commit and answered after it.
        waited += usize::from(found.sent < new.commit && found.answered > new.commit);
        claims.push(new.answered - new.sent);
        waits.push(found.answered - found.sent);
    }
    let effects = stage.world.name("effects");
    let number = async |what: &str| stage.world.number(&format!("SELECT {what} FROM {effects}")).await;
    assert_eq!(number("count(*)").await, ROUNDS as i64);
    assert_eq!(number("count(DISTINCT name)").await, ROUNDS as i64);
    println!(
        "{ROUNDS} rounds, {ROUNDS} effects, {waited} claims waited for the other's commit; medians: new claim {:?}, found \
         claim {:?}",
        median(claims),
        median(waits),
    );
    if W::FEATURES.concurrent {
        assert!(waited >= ROUNDS * 9 / 10, "only {waited} of {ROUNDS} claims met another one");
    }
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort();
    durations[durations.len() / 2]
}

/// Where several transactions can be open, both have begun when the barrier opens; otherwise it opens before they
/// begin.
async fn claim<W: World>(
    store: &W::Store,
    meeting: &Meeting,
    round: usize,
    identity: &Identity,
    effect: &str,
) -> Claim {
    let begin = async || store.begin(Duration::from_secs(30)).await.unwrap();
    let (mut txn, sent) = if W::FEATURES.concurrent {
        let txn = begin().await;
        (txn, meeting.go().await)
    } else {
        let sent = meeting.go().await;
        (begin().await, sent)
    };
    let claimed = loop {
        match store.claim(&mut txn, &[identity], ClaimState::Processed).await {
            Ok(claimed) => break claimed[0],
            Err(StoreError::LockTimeout) => {
                store.rollback(txn).await.unwrap();
                txn = begin().await;
            }
            Err(fault) => panic!("{fault:?}"),
        }
    };
    let answered = Instant::now();
    if claimed.is_new() {
        meeting.both_sent(round).await;
        W::execute(<W::Store as HasConnection<W::Connection>>::connection(&mut txn), effect).await.unwrap();
        let commit = Instant::now();
        committed(store.commit(txn).await);
        Claim { new: true, sent, answered, commit }
    } else {
        store.rollback(txn).await.unwrap();
        Claim { new: false, sent, answered, commit: answered }
    }
}
