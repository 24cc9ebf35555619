//! Reads while transactions commit late, reads fail, lanes are lost, and the broker refuses messages or does not answer.

use super::super::super::room::Room;
use super::model::{KEYS, Model};

impl Model {
    /// Transactions begin, write and commit. Some that write messages of one key are open at the same time.
    fn write(&mut self) {
        for _ in 0..self.random(4) {
            if self.is_in_order {
                // There is one writer at a time.
                let (transaction, key, messages) = (self.number(), self.random(KEYS.len()), 1 + self.random(4));
                self.stage(transaction, key, messages);
                self.commit(transaction);
                continue;
            }
            let open: Vec<i64> = self.open.keys().copied().collect();
            let some = self.random(open.len().max(1));
            match (self.random(4), open.get(some)) {
                // The oldest ones stay open for long.
                (0, Some(transaction)) if some > 2 || self.random(20) == 0 => self.commit(*transaction),
                (1 | 2, Some(transaction)) => {
                    let (key, messages) = (self.random(KEYS.len()), 1 + self.random(8));
                    self.stage(*transaction, key, messages);
                }
                _ => {
                    let transaction = self.number();
                    self.open.insert(transaction, Vec::new());
                }
            }
        }
    }

    /// The broker confirms a message, or does not answer, or refuses it.
    fn answer(&mut self, is_sure: bool) {
        if self.publishing.is_empty() {
            return;
        }
        let some = self.random(self.publishing.len());
        let entry = self.publishing.swap_remove(some);
        match if is_sure { 9 } else { self.random(10) } {
            1 => self.refuse(entry),
            0 => self.late(entry),
            _ if self.hangs(&entry) => self.late(entry),
            _ => self.confirm(entry),
        }
    }

    /// Some of all that can happen; or only what goes well.
    fn step(&mut self, limit: u32, is_sure: bool) {
        if !is_sure {
            self.write();
        }
        let changes = self.random(20) == 0;
        self.is_down = !is_sure && self.is_down != changes;
        if self.is_down && changes {
            self.hang();
        }
        self.is_tried = is_sure || self.random(4) == 0;
        if self.read.is_none() {
            self.wake();
            self.is_few = !is_sure && self.random(4) == 0;
            let is_paused = self.random(4) == 0;
            self.begin(limit, is_paused);
        }
        self.publish();
        let answers = if is_sure { self.publishing.len() } else { self.random(8) };
        for _ in 0..answers {
            self.answer(is_sure);
            self.publish();
        }
        self.record_refused();
        if is_sure || self.random(3) == 0 {
            self.delete_confirmed();
        }
        if is_sure || self.random(2) == 0 {
            self.end(is_sure);
        }
    }
}

/// Of each key, messages are published in the order in which they were committed, and all of them, although no lane is read
/// from its start.
#[tokio::test]
async fn no_message_is_skipped_or_overtaken_whatever_fails() {
    let (mut for_keys, mut set_aside, mut answered) = (0, 0, 0);
    for seed in 0..40 {
        let (mut model, limit) = (Model::new(seed, seed % 3 > 0), if seed % 2 == 0 { 3 } else { 100 });
        // Few messages of a key are kept, so that others are unread.
        model.queue.room = Room(4);
        model.is_in_order = seed % 7 == 6;
        let mut at = 0.0;
        while at < 20.0 {
            at += model.random(150) as f64 / 1000.0;
            model.at(at);
            model.step(limit, false);
        }
        for transaction in model.open.keys().copied().collect::<Vec<_>>() {
            model.commit(transaction);
        }
        while at < 40.0 {
            at += 0.02;
            model.at(at);
            model.step(100, true);
        }
        let skipped: Vec<_> = model.rows.iter().filter(|(_, row)| !row.is_done).collect();
        assert!(skipped.is_empty(), "{skipped:?}, seed {seed}");
        for_keys += model.for_keys;
        set_aside += model.set_aside;
        answered += model.answered;
    }
    assert!(for_keys > 1000, "hardly any lane was read for a key: {for_keys}");
    assert!(set_aside > 100, "hardly any message was set aside: {set_aside}");
    assert!(answered > 10, "hardly ever has the destination answered again: {answered}");
}
