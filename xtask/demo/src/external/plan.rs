//! Which requests fail, and which rows are held beyond the life of their key.

use std::collections::BTreeSet;

use idem_test::provider::{Fault, Provider};

/// Returns a provider, and the messages that are held: no answer to them ever comes, and their keys are too old when they are
/// called for again. One request of a hundred loses its answer, as many are answered by an error that is stored, or by "busy".
pub(super) fn requests(messages: u64, random: &mut fastrand::Rng) -> (Provider, BTreeSet<u64>) {
    let (provider, mut held) = (Provider::new(), BTreeSet::new());
    for id in 0..messages {
        // At least one is held: it is unresolved, and the naive handler charges it at each attempt.
        let drawn = if id == 0 { 0 } else { random.u32(..1000) };
        let faults: &[Fault] = match drawn {
            0 => &[Fault::LoseAnswer; 100],
            1..=10 => &[Fault::LoseAnswer],
            11..=20 => &[Fault::Error],
            21..=30 => &[Fault::Busy],
            31..=35 => &[Fault::LoseRequest],
            _ => &[],
        };
        held.extend((drawn == 0).then_some(id));
        provider.fail(&id.to_string(), faults.iter().copied());
    }
    (provider, held)
}
