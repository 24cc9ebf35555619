//! Which requests fail, and which rows are held beyond the life of their key.

use std::collections::BTreeSet;

use idem_test::provider::{Fault, Provider};

/// The requests that fail.
pub(super) struct Plan {
    /// Messages of which no answer ever comes, and whose keys are too old when they are called for again.
    pub(super) held: BTreeSet<u64>,
    faults: Vec<(u64, Fault)>,
}

impl Plan {
    /// One request of a hundred loses its answer, as many are answered by an error that is stored, or by "busy".
    pub(super) fn new(messages: u64, random: &mut fastrand::Rng) -> Self {
        let mut plan = Self { held: BTreeSet::new(), faults: Vec::new() };
        for id in 0..messages {
            // At least one is held: it is unresolved, and the naive handler charges it at each attempt.
            let drawn = if id == 0 { 0 } else { random.u32(..1000) };
            match drawn {
                0 => drop(plan.held.insert(id)),
                1..=10 => plan.faults.push((id, Fault::LoseAnswer)),
                11..=20 => plan.faults.push((id, Fault::Error)),
                21..=30 => plan.faults.push((id, Fault::Busy)),
                31..=35 => plan.faults.push((id, Fault::LoseRequest)),
                _ => {}
            }
        }
        plan
    }

    /// Returns a provider that does this.
    pub(super) fn provider(&self) -> Provider {
        let provider = Provider::new();
        for (id, fault) in &self.faults {
            provider.fail(&id.to_string(), [*fault]);
        }
        for id in &self.held {
            provider.fail(&id.to_string(), [Fault::LoseAnswer; 100]);
        }
        provider
    }
}
