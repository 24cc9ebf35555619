//! The effects of a message outside of the database: charges at the provider of a trial, and messages at its sink.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::provider::Charge;

use super::subject::Subject;

/// How many charges and published messages there were.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    charges: usize,
    published: usize,
}

/// The effects of a message outside of the database.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    charges: Vec<Charge>,
    /// The ids of the messages that were published. A relay may publish a message again under its id.
    published: BTreeSet<Uuid>,
}

impl Subject {
    /// Returns how much there is by now.
    pub(super) fn mark(&self) -> Mark {
        let charges = self.provider.as_ref().map_or(0, |provider| provider.ledger().len());
        let published = self.sink.as_ref().map_or(0, |sink| sink.published().len());
        Mark { charges, published }
    }

    /// Returns what was added since.
    pub(super) fn since(&self, mark: Mark) -> Elsewhere {
        let charges = self.provider.iter().flat_map(|provider| provider.ledger().into_iter().skip(mark.charges));
        let published = self.sink.iter().flat_map(|sink| sink.published().into_iter().skip(mark.published));
        Elsewhere { charges: charges.collect(), published: published.map(|message| message.id()).collect() }
    }

    /// Checks that a message without a crash has an effect in each system of the trial.
    pub(super) fn has_effects(&self, one: &Elsewhere) -> Result<(), String> {
        if self.provider.is_some() && one.charges.is_empty() {
            let why = "a message that was delivered once was not charged: does its handler call the provider that was \
                       given to `.provider(..)`, or a clone of it?";
            return Err(why.to_owned());
        }
        if self.sink.is_some() && one.published.is_empty() {
            let why = "a message that was delivered once published nothing: does its handler publish by its `Outbox`?";
            return Err(why.to_owned());
        }
        Ok(())
    }
}

impl Elsewhere {
    /// Whether there was a charge.
    pub(super) fn is_charged(&self) -> bool {
        !self.charges.is_empty()
    }

    /// Checks that it is as much as by one message. Otherwise, returns what was seen.
    pub(super) fn check(&self, one: &Self) -> Result<(), String> {
        let (charges, each) = (self.charges.len(), times(one.charges.len()));
        if charges > one.charges.len() {
            let keys: Vec<String> = self.charges.iter().map(shown).collect();
            return Err(format!(
                "it was charged {}, and one message is charged {each}: {}. A call is repeated after a crash, so it has \
                 to send its `OutboundKey`, and `reconcile` has to see each charge",
                times(charges),
                keys.join(", ")
            ));
        }
        if charges < one.charges.len() {
            return Err(format!("it was charged {}, and one message is charged {each}", times(charges)));
        }
        let (ids, each) = (self.published.len(), one.published.len());
        if ids < each {
            return Err(format!(
                "it published {ids} messages, and one message publishes {each}: a message was deleted from the outbox \
                 before the broker had it"
            ));
        }
        if ids > each {
            return Err(format!("it published {ids} messages, by their ids, and one message publishes {each}"));
        }
        Ok(())
    }
}

fn times(number: usize) -> String {
    match number {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        number => format!("{number} times"),
    }
}

fn shown(charge: &Charge) -> String {
    let key = charge.key.as_ref().map_or_else(|| "no key".to_owned(), |key| format!("the key {key}"));
    format!("charge {} under {key}", charge.number)
}
