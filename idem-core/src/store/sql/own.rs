//! Claims and staged messages of an application, in transactions of its own.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::outbox::{Ids, Outgoing, StagedMessage, StoreOutbox, Unread};
use crate::store::{OutboxId, OwnClaim};
use crate::{Error, Store, telemetry};

impl OwnClaim {
    /// The result if there is a claim: whether it has the same fingerprint, and whether the same transaction has made it.
    pub(crate) fn found(same: bool, is_own: bool) -> Self {
        match (same, is_own) {
            (false, _) => Self::Conflict,
            (true, true) => Self::New,
            (true, false) => Self::Duplicate,
        }
    }
}

/// Refuses a connection in which sqlx counts no transaction: whatever is written there is committed at once.
pub(crate) fn check_transaction(is_open: bool) -> Result<(), Error> {
    if is_open {
        return Ok(());
    }
    Err(Error::Config(
        "the connection is in no transaction, so that each statement would be committed at once: begin one by sqlx, with \
         `begin()` or `begin_with(..)`. If one was begun, sqlx has rolled it back, because `begin()` of a nested \
         transaction failed or was dropped before its end: begin again"
            .to_owned(),
    ))
}

/// How often a process that stages checks whether a relay reads its messages.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The outboxes to which this process stages outside of workers, with the time at which it last checked their relays.
static CHECKED: Mutex<Vec<(OutboxId, Instant)>> = Mutex::new(Vec::new());

/// Returns whether it is time to look for a relay of this outbox.
fn is_check_due(outbox: OutboxId) -> bool {
    let (mut checked, now) = (CHECKED.lock(), Instant::now());
    match checked.iter_mut().find(|(of, _)| *of == outbox) {
        Some((_, last)) if now < *last + CHECK_INTERVAL => return false,
        Some((_, last)) => *last = now,
        None => checked.push((outbox, now)),
    }
    true
}

impl<S: Store> StoreOutbox<S> {
    /// Checks once a minute, concurrently with the caller, whether a relay reads what this process stages, and logs and counts it
    /// if none does.
    pub(crate) fn check_for_relay(&self, outbox: OutboxId) {
        if is_check_due(outbox)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (store, name) = (self.store.clone(), self.name.clone());
            runtime.spawn(async move { Unread::default().check(&store, Some(&name)).await });
        }
    }
}

/// Checks messages that an application stages, and gives them ids and the context of its trace. `limit` is the size of the
/// largest one, if it is known.
pub(crate) fn checked(
    messages: impl IntoIterator<Item = Outgoing>,
    limit: Option<usize>,
) -> Result<Vec<StagedMessage>, Error> {
    let mut ids = Ids::default();
    let checked = |(place, mut message): (usize, Outgoing)| {
        if message.is_local {
            return Err(Error::Config(format!(
                "message {place} is for the handler {:?} of a worker, and only a handler of that worker can stage it: \
                 `Outbox::local`",
                message.to
            )));
        }
        // First, because these headers count as well for the size.
        telemetry::carry_on(&mut message.headers);
        message
            .check()
            .and_then(|()| message.check_size(limit))
            .and_then(|()| ids.check(&message))
            .map_err(|why| Error::Config(format!("message {place} cannot be sent: {why}")))?;
        Ok(StagedMessage::new(message.id.unwrap_or_else(Uuid::now_v7), message))
    };
    messages.into_iter().enumerate().map(checked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_over_the_limit_of_a_relay_is_refused() {
        let sized = |size: usize| Outgoing::new("orders", vec![b'x'; size]);
        assert_eq!(checked([sized(7)], Some(7)).unwrap().len(), 1);
        let error = checked([sized(7), sized(8)], Some(7)).unwrap_err().to_string();
        assert!(error.contains("message 1") && error.contains("takes 7"), "{error}");
    }

    #[test]
    fn two_messages_with_one_id_are_refused() {
        let message = |id: u128| Outgoing::new("orders", "").id(Uuid::from_u128(id));
        assert_eq!(checked([message(1), message(2)], None).unwrap().len(), 2);
        let error = checked([message(1), message(2), message(1)], None).unwrap_err().to_string();
        assert!(error.contains("message 2") && error.contains("an id of its own"), "{error}");
    }

    #[test]
    fn a_local_message_cannot_be_staged_outside_of_a_handler() {
        let message = || Outgoing::new("send_receipt", "payload");
        assert_eq!(checked([message()], None).unwrap().len(), 1);
        let local = Outgoing { is_local: true, ..message() };
        let error = checked([message(), local], None).unwrap_err().to_string();
        assert!(error.contains("message 1") && error.contains("\"send_receipt\""), "{error}");
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn a_message_of_an_application_goes_on_with_its_trace() {
        let stage = || checked([Outgoing::new("orders", "payload")], None).unwrap().remove(0);
        let staged = crate::log_of_tests::with_traces(|| tracing::info_span!("request").in_scope(stage));
        assert!(staged.headers().get_str("traceparent").is_some(), "{staged:?}");
        assert!(stage().headers().is_empty(), "there is no trace");
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn the_context_of_the_trace_counts_for_the_size_of_a_message() {
        let stage = || checked([Outgoing::new("orders", "payload")], Some(7));
        let refused = crate::log_of_tests::with_traces(|| tracing::info_span!("request").in_scope(stage));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("73 bytes") && error.contains("takes 7"), "{error}");
        assert_eq!(stage().unwrap().len(), 1, "there is no trace");
    }
}
