//! The outcome of each message.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};

use super::handlers::Paid;
use crate::tables::Progress;

/// The state of tables and broker after a run.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) staged: Vec<Paid>,
    pub(super) taken: Vec<Paid>,
    /// The payloads of all messages that have arrived at the broker, in their order.
    pub(super) recorded: Vec<Vec<u8>>,
    pub(super) progress: Progress,
    /// Messages that a consumer has not settled.
    pub(super) left: u64,
}

/// The totals, and all deviations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) events: u64,
    pub(super) staged: u64,
    /// Messages that have arrived at the broker, without copies.
    pub(super) relayed: u64,
    /// Events without an effect, and staged messages that were not taken.
    pub(super) lost: u64,
    /// Effects beyond the first one of each message.
    pub(super) doubled: u64,
    /// Messages that arrived, for the first time, behind a later one of their key.
    pub(super) disordered: u64,
    pub(super) dead: u64,
    /// All other deviations.
    pub(super) wrong: Vec<String>,
}

impl Verdict {
    /// Judges a run with this many events.
    ///
    /// # Errors
    /// The broker has a message that is none of the demo.
    pub(super) fn new(events: u64, found: &Found) -> Result<Self> {
        let (staged, taken) = (by_id(&found.staged), by_id(&found.taken));
        let recorded: Vec<Paid> = found
            .recorded
            .iter()
            .map(|payload| serde_json::from_slice(payload))
            .collect::<Result<_, _>>()
            .context("a message that nobody has staged")?;
        let arrivals = first(&recorded);
        let times = |messages: &HashMap<u64, Vec<Paid>>, id| messages.get(&id).map_or(0, |found| found.len() as u64);
        let mut verdict = Self {
            events,
            staged: found.staged.len() as u64,
            relayed: arrivals.len() as u64,
            disordered: disordered(&arrivals),
            dead: found.progress.dead,
            ..Self::default()
        };
        for id in 0..events {
            let (staged, taken) = (times(&staged, id), times(&taken, id));
            verdict.lost += u64::from(staged == 0 || taken == 0);
            verdict.doubled += staged.saturating_sub(1) + taken.saturating_sub(1);
        }
        let mut must = |holds: bool, text: String| verdict.wrong.extend((!holds).then_some(text));
        for (what, messages) in [("relayed", &arrivals), ("taken", &found.taken)] {
            let astray = |paid: &&Paid| staged.get(&paid.id).is_none_or(|staged| !staged.contains(paid));
            let astray = messages.iter().filter(astray).count();
            must(astray == 0, format!("{astray} messages were {what} that were not staged"));
        }
        let waiting = found.progress.waiting;
        must(waiting == 0, format!("{waiting} messages are still in the outbox or in an inbox"));
        must(found.left == 0, format!("{} messages are still with the broker", found.left));
        Ok(verdict)
    }

    /// Returns all deviations, one per line.
    pub(super) fn deviations(&self) -> Vec<String> {
        let Self { lost, doubled, disordered, dead, .. } = self;
        let counts = [(lost, "lost"), (doubled, "doubled"), (disordered, "out of order within a key"), (dead, "dead")];
        let counts = counts.into_iter().filter(|(count, _)| **count > 0);
        let counts = counts.map(|(count, what)| format!("{count} messages are {what}"));
        self.wrong.iter().cloned().chain(counts).collect()
    }
}

fn by_id(messages: &[Paid]) -> HashMap<u64, Vec<Paid>> {
    let mut found = HashMap::<_, Vec<_>>::new();
    messages.iter().for_each(|paid| found.entry(paid.id).or_default().push(*paid));
    found
}

/// Returns each message where it arrived for the first time.
fn first(recorded: &[Paid]) -> Vec<Paid> {
    let mut seen = HashSet::new();
    recorded.iter().filter(|paid| seen.insert(paid.id)).copied().collect()
}

/// Returns how many messages arrived behind a later one of their key.
fn disordered(arrivals: &[Paid]) -> u64 {
    let mut last = HashMap::new();
    let mut disordered = 0;
    for Paid { account, place, .. } in arrivals {
        let last = last.entry(account).or_insert(0);
        disordered += u64::from(*place < *last);
        *last = (*last).max(*place);
    }
    disordered
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [Paid; 3] = [paid(0, 1), paid(1, 2), paid(2, 3)];

    const fn paid(id: u64, place: i64) -> Paid {
        Paid { id, account: 7, place }
    }

    fn judged(staged: &[Paid], recorded: &[Paid], taken: &[Paid]) -> Verdict {
        let recorded = recorded.iter().map(|paid| serde_json::to_vec(paid).unwrap()).collect();
        let found = Found { staged: staged.to_vec(), taken: taken.to_vec(), recorded, ..Found::default() };
        Verdict::new(3, &found).unwrap()
    }

    #[test]
    fn a_copy_may_arrive_behind_a_later_message() {
        let verdict = judged(&A, &[A[0], A[1], A[0], A[2]], &A);
        assert_eq!(verdict, Verdict { events: 3, staged: 3, relayed: 3, ..Verdict::default() });
        assert!(verdict.deviations().is_empty());
    }

    #[test]
    fn the_first_arrival_may_not() {
        let verdict = judged(&A, &[A[1], A[0], A[2]], &A);
        assert_eq!((verdict.disordered, verdict.lost, verdict.doubled), (1, 0, 0));
        assert_eq!(verdict.deviations().len(), 1);
    }

    #[test]
    fn a_message_is_lost_in_front_of_the_outbox_and_behind_it() {
        assert_eq!(judged(&A[..2], &A[..2], &A[..2]).lost, 1);
        assert_eq!(judged(&A, &A[..2], &A[..2]).lost, 1);
    }

    #[test]
    fn a_message_is_doubled_by_either_consumer() {
        assert_eq!(judged(&A, &A, &[A[0], A[1], A[2], A[2]]).doubled, 1);
        assert_eq!(judged(&[A[0], A[0], A[1], A[2]], &A, &A).doubled, 1);
    }

    #[test]
    fn a_message_of_a_transaction_that_was_rolled_back_must_not_arrive() {
        let verdict = judged(&A, &[A[0], A[1], paid(1, 3), paid(9, 4), A[2]], &A);
        assert_eq!(verdict.wrong, ["1 messages were relayed that were not staged"]);
    }
}
