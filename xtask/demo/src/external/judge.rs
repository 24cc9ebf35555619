//! The verdict on a run and its naive counterpart.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, bail};
use idem_test::provider::Provider;

/// What became of the messages.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) paid: u64,
    pub(super) paid_twice: u64,
    /// The messages that are unresolved.
    pub(super) unresolved: BTreeSet<u64>,
    /// Other rows that are left.
    pub(super) others: u64,
}

/// How many messages the provider charged otherwise than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) twice: usize,
    pub(super) never: usize,
}

impl Charged {
    /// Counts the charges for this many messages, whose requests have their numbers as bodies.
    pub(super) fn new(provider: &Provider, messages: u64) -> Self {
        let mut charges: HashMap<String, usize> = HashMap::new();
        provider.ledger().into_iter().for_each(|charge| *charges.entry(charge.body).or_default() += 1);
        let charged = |id: u64| charges.get(&id.to_string()).copied().unwrap_or_default();
        let count = |which: fn(usize) -> bool| (0..messages).filter(|id| which(charged(*id))).count();
        Self { twice: count(|times| times > 1), never: count(|times| times == 0) }
    }
}

/// Fails if a message is charged twice or not at all, if other messages are unresolved than those that were held, or if
/// the naive handler charges each once.
pub(super) fn judge(
    messages: u64,
    held: &BTreeSet<u64>,
    outcome: &Outcome,
    charged: Charged,
    naive: Charged,
) -> Result<()> {
    let odd: Vec<&u64> = outcome.unresolved.symmetric_difference(held).collect();
    let Charged { twice, never } = charged;
    if (twice, never, outcome.paid_twice, outcome.others) != (0, 0, 0, 0) || !odd.is_empty() {
        bail!("not all is as it must be; messages that were held or are unresolved, and not both: {odd:?}");
    }
    if outcome.paid + outcome.unresolved.len() as u64 != messages || naive.twice == 0 {
        bail!("{} of {messages} are paid, and the naive handler has charged {} twice", outcome.paid, naive.twice);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: Charged = Charged { twice: 0, never: 0 };
    const NAIVE: Charged = Charged { twice: 1, never: 0 };

    /// The outcome of three messages, of which one was held.
    fn outcome() -> Outcome {
        Outcome { paid: 2, paid_twice: 0, unresolved: [0].into(), others: 0 }
    }

    /// Whether this is the outcome of three messages, of which these were held, as it must be.
    fn is_right(held: &[u64], outcome: &Outcome, charged: Charged, naive: Charged) -> bool {
        judge(3, &held.iter().copied().collect(), outcome, charged, naive).is_ok()
    }

    #[tokio::test]
    async fn a_message_is_charged_once_twice_or_never() {
        let provider = Provider::new();
        for id in ["0", "2", "2", "2"] {
            provider.charge(None, id).await.unwrap();
        }
        assert_eq!(Charged::new(&provider, 3), Charged { twice: 1, never: 1 });
        assert_eq!(Charged::new(&provider, 1), ONCE);
    }

    #[test]
    fn each_message_is_paid_or_held_and_unresolved() {
        assert!(is_right(&[0], &outcome(), ONCE, NAIVE));
        assert!(!is_right(&[0], &Outcome { paid: 1, ..outcome() }, ONCE, NAIVE), "one is not paid");
        assert!(!is_right(&[0, 1], &outcome(), ONCE, NAIVE), "one was held, and is not unresolved");
        assert!(!is_right(&[], &outcome(), ONCE, NAIVE), "one is unresolved, and was not held");
        assert!(!is_right(&[1], &outcome(), ONCE, NAIVE), "another one");
    }

    #[test]
    fn no_message_is_left_or_charged_twice_or_never() {
        assert!(!is_right(&[0], &outcome(), Charged { twice: 1, ..ONCE }, NAIVE));
        assert!(!is_right(&[0], &outcome(), Charged { never: 1, ..ONCE }, NAIVE));
        assert!(!is_right(&[0], &Outcome { paid_twice: 1, ..outcome() }, ONCE, NAIVE));
        assert!(!is_right(&[0], &Outcome { others: 1, ..outcome() }, ONCE, NAIVE));
    }

    #[test]
    fn a_naive_handler_that_charges_each_once_shows_nothing() {
        assert!(!is_right(&[0], &outcome(), ONCE, ONCE));
    }
}
