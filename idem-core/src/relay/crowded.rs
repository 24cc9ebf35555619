//! The keys of which more messages wait than are kept.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::Key;

/// How many messages of one key are kept at most behind the one that is under way. More of them would take the room of
/// all other keys: they are published one after the other, and the first one may get no answer for long.
pub(super) const MANY: usize = 100;

/// With so many bytes of payloads here, of all keys, one is kept: those of one key must not take the room of others either.
const LARGE: usize = 32 * 1024 * 1024;

/// After a read that has visited all messages of a crowded key and brought none, the next one waits for so many times as
/// long as it took.
const SELDOM: u32 = 10;

/// Returns how many messages of one key may be kept behind another one, with so many bytes of payloads here.
pub(super) fn most(bytes: usize) -> usize {
    if bytes > LARGE { 1 } else { MANY }
}

/// The keys of which more messages wait in the database than are kept here. Reads leave them out until half of those here
/// are published; then the lane is read from the first message that was not kept.
#[derive(Debug, Default)]
pub(super) struct Crowded {
    keys: HashMap<Key, Rest>,
    /// The lanes of those that are not left out any more, since the last read.
    thinned: BTreeSet<u8>,
    /// When the read that runs has begun, if it leaves out such keys.
    began: Option<Instant>,
    /// When the next one may begin.
    next: Option<Instant>,
}

/// The messages of a key that are not kept.
#[derive(Debug)]
struct Rest {
    lane: u8,
    /// The lowest id of them.
    first: i64,
    /// How many were kept in front of them.
    kept: usize,
}

impl Crowded {
    /// Records that a message was not kept, nor what is behind it; of its key so many are.
    pub(super) fn add(&mut self, key: Key, lane: u8, id: i64, kept: usize) {
        let rest = self.keys.entry(key).or_insert(Rest { lane, first: id, kept });
        rest.first = rest.first.min(id);
    }

    /// Returns whether a message is behind one that was not kept, or is that one.
    pub(super) fn leaves_out(&self, key: &Key, id: i64) -> bool {
        self.keys.get(key).is_some_and(|rest| rest.first <= id)
    }

    /// Forgets a key, because one of its messages waits for its next attempt: what is behind it is not kept either.
    pub(super) fn remove(&mut self, key: &Key) {
        self.keys.remove(key);
    }

    pub(super) fn remove_lanes(&mut self, lanes: &BTreeSet<u8>) {
        self.keys.retain(|_, rest| !lanes.contains(&rest.lane));
    }

    /// The keys, with their lanes.
    pub(super) fn keys(&self) -> impl Iterator<Item = (Key, u8)> {
        self.keys.iter().map(|(key, rest)| (key.clone(), rest.lane))
    }

    /// Forgets the keys of which half of the messages are left. Returns their lanes, and the ids from which on to read.
    pub(super) fn thin_out(&mut self, left: impl Fn(&Key) -> usize) -> Vec<(u8, i64)> {
        let mut thin = Vec::new();
        self.keys.retain(|key, rest| {
            let stays = left(key) > rest.kept / 2;
            if !stays {
                thin.push((rest.lane, rest.first));
            }
            stays
        });
        self.thinned.extend(thin.iter().map(|(lane, _)| *lane));
        thin
    }

    /// Returns whether a read may find more of one key than is kept, and should be short.
    pub(super) fn is_likely(&self) -> bool {
        !self.thinned.is_empty() || !self.keys.is_empty()
    }

    /// Leaves lanes out of the read that begins now. In the lane of a crowded key it visits all messages of that key to
    /// find those of others, so such a lane is read seldom, unless it has one of a key that is not crowded any more.
    pub(super) fn choose(&mut self, lanes: &mut Vec<u8>, now: Instant) {
        let lanes_of_keys = self.keys.values().map(|rest| rest.lane);
        let slow: BTreeSet<u8> = lanes_of_keys.filter(|lane| !self.thinned.contains(lane)).collect();
        if self.next.is_some_and(|next| now < next) {
            lanes.retain(|lane| !slow.contains(lane));
        } else if lanes.iter().any(|lane| slow.contains(lane)) {
            self.began = Some(now);
        }
    }

    /// Records that a read has ended, also if it has failed.
    pub(super) fn ended(&mut self, now: Instant) {
        if let Some(began) = self.began.take() {
            self.next = now.checked_add(SELDOM * now.duration_since(began));
        }
    }

    /// Records that what is not left out any more was read.
    pub(super) fn read(&mut self) {
        self.thinned.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_lane_of_a_crowded_key_is_read_seldom_and_at_once_when_few_are_left() {
        let (mut crowded, now) = (Crowded::default(), Instant::now());
        let chosen = |crowded: &mut Crowded, after: u64| {
            let mut lanes = vec![0, 1];
            crowded.choose(&mut lanes, now + Duration::from_millis(after));
            lanes
        };
        assert_eq!(chosen(&mut crowded, 0), [0, 1]);
        crowded.ended(now + Duration::from_secs(9));
        let key = Key::of("k").unwrap();
        crowded.add(key.clone(), 1, 8, 10);
        crowded.add(key.clone(), 1, 7, 10);
        assert!(crowded.leaves_out(&key, 7) && !crowded.leaves_out(&key, 6));
        assert_eq!(chosen(&mut crowded, 10), [0, 1], "no read has left it out yet");
        crowded.ended(now + Duration::from_millis(20));
        assert_eq!((chosen(&mut crowded, 119), chosen(&mut crowded, 120)), (vec![0], vec![0, 1]));
        crowded.ended(now + Duration::from_millis(220));
        assert!(crowded.thin_out(|_| 6).is_empty());
        assert_eq!((crowded.thin_out(|_| 5), chosen(&mut crowded, 221)), (vec![(1, 7)], vec![0, 1]));
        assert!(crowded.is_likely());
        crowded.read();
        assert!(!crowded.is_likely());
    }
}
