//! Messages that the server may refuse.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use idem_core::StagedMessage;

/// How many messages are remembered. Further ones replace all: each is found again when the server refuses it again.
const MOST: usize = 10_000;

/// The messages that were unconfirmed when the server closed a channel because of one of them, and did not say which.
/// Each is published by itself, until it is answered.
#[derive(Default)]
pub(crate) struct Suspects(Mutex<HashSet<u128>>);

impl Suspects {
    pub(crate) fn add(&self, message: &StagedMessage) {
        let mut ids = self.lock();
        if ids.len() >= MOST {
            ids.clear();
        }
        ids.insert(message.id().as_u128());
    }

    pub(crate) fn has(&self, message: &StagedMessage) -> bool {
        self.lock().contains(&message.id().as_u128())
    }

    pub(crate) fn remove(&self, message: &StagedMessage) {
        self.lock().remove(&message.id().as_u128());
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
