//! Telling a copy of a message from another message under the same key.

use std::fmt;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::Delivery;

/// What a message looked like: kept beside its claim, so that a second delivery under the same key is known as a copy
/// (equal) or as a conflict (not equal).
///
/// By default it is the first 16 bytes of the SHA-256 of the raw payload, which an operator can compute in SQL too; of the
/// data alone of a CloudEvent in JSON, so that it is the same whichever way the event comes. A
/// producer that serialises anew when it publishes again, with another order of fields or a fresh timestamp, would make
/// conflicts of its copies: give such a handler a fingerprint of its own, or [`Fingerprint::none`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    // Zero behind its length, so that equal ones are equal as a whole.
    bytes: [u8; LENGTH],
    len: u8,
}

/// The longest fingerprint, in bytes.
const LENGTH: usize = 16;

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::short(&Sha256::digest(bytes)[..LENGTH])
    }

    /// The fingerprint of this delivery's payload. No payload at all is not the same as an empty one, and its word, being
    /// shorter than a hash, is that of no payload.
    pub(crate) fn of_delivery(delivery: &Delivery) -> Self {
        if delivery.has_no_data() { Self::short(b"tombstone") } else { Self::of(delivery.data()) }
    }

    /// What tells one delivery without a key from another. A payload alone does not: an event that nobody takes and a
    /// tombstone are told apart by what is beside it. What the broker changes from one delivery to the next is left out, so
    /// that a redelivery is the same message.
    pub(crate) fn of_keyless(delivery: &Delivery) -> Self {
        let mut whole = Whole(Sha256::new());
        let texts = [
            delivery.event_type.as_deref(),
            delivery.message_id(),
            delivery.subject(),
            delivery.content_type(),
            delivery.correlation_id(),
            delivery.reply_to(),
        ];
        for text in texts {
            whole.optional(text.map(str::as_bytes));
        }
        whole.optional(delivery.partition_key());
        let produced = delivery.produced_at().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        whole.optional(produced.map(|at| at.as_micros().to_be_bytes()).as_ref().map(|at| &at[..]));
        whole.number(delivery.properties().len());
        for (name, value) in delivery.properties().iter() {
            whole.part(name.as_bytes());
            whole.part(value.as_bytes());
        }
        // The unreadable part is missing from the rest, so its description and the message's place stand in for it.
        let unreadable = delivery.unrepresentable();
        whole.optional(unreadable.map(str::as_bytes));
        whole.optional(unreadable.and(delivery.position()).map(str::as_bytes));
        whole.optional((!delivery.is_tombstone()).then_some(delivery.payload()));
        // Last, since their number is not written.
        for (name, value) in delivery.headers().iter().filter(|(name, _)| !delivery.is_volatile(name)) {
            whole.part(name.as_bytes());
            whole.part(value);
        }
        Self::short(&whole.0.finalize()[..LENGTH])
    }

    /// Equal for all messages: every delivery under a known key is a copy. A key that is used for two different
    /// messages then loses the second one silently.
    pub fn none() -> Self {
        Self::short(&[])
    }

    /// A fingerprint as a store has kept it, or one of a user's own. What is longer than 16 bytes is hashed.
    pub fn stored(bytes: &[u8]) -> Self {
        if bytes.len() > LENGTH { Self::of(bytes) } else { Self::short(bytes) }
    }

    /// Of at most so many bytes.
    fn short(text: &[u8]) -> Self {
        let mut bytes = [0; LENGTH];
        let len = text.len().min(LENGTH);
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len: len as u8 }
    }

    /// The fingerprint as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A hash over several parts, each with its length before it, so that no byte can move from one part to the next.
struct Whole(Sha256);

impl Whole {
    fn number(&mut self, number: usize) {
        self.0.update((number as u64).to_be_bytes());
    }

    fn part(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    /// What is not there is not the same as what is empty.
    fn optional(&mut self, part: Option<&[u8]>) {
        self.0.update([u8::from(part.is_some())]);
        self.part(part.unwrap_or_default());
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", hex::encode(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_read() {
        let (tombstone, hash) = (Fingerprint::short(b"tombstone"), Fingerprint::of(b"{}"));
        for fingerprint in [Fingerprint::none(), tombstone, hash] {
            assert_eq!(Fingerprint::stored(fingerprint.as_bytes()), fingerprint);
        }
        assert_eq!(hash.as_bytes().len(), 16);
        assert_ne!(Fingerprint::stored(&[0]), Fingerprint::none());
    }

    #[test]
    fn whatever_makes_a_message_makes_another_message_without_a_key() {
        let plain = || Delivery::new("orders", "{}");
        let header =
            |name: &str, value: &str| plain().with_headers([(name.to_owned(), value.to_owned())].into_iter().collect());
        let different = [
            plain(),
            Delivery::new("orders", "[]"),
            Delivery::new("orders", ""),
            Delivery::new("orders", "").with_tombstone(true),
            Delivery::new("orders", "").with_tombstone(true).with_partition_key(Some("k1".into())),
            Delivery::new("orders", "").with_tombstone(true).with_partition_key(Some("k2".into())),
            plain().with_event_type(Some("paid".to_owned())),
            plain().with_message_id(Some("paid".to_owned())),
            plain().with_partition_key(Some("paid".into())),
            plain().with_partition_key(Some("".into())),
            plain().with_subject(Some("paid".to_owned())),
            plain().with_content_type(Some("paid".to_owned())),
            plain().with_correlation_id(Some("paid".to_owned())),
            plain().with_reply_to(Some("paid".to_owned())),
            plain().with_produced_at(Some(UNIX_EPOCH)),
            plain().with_produced_at(Some(UNIX_EPOCH + std::time::Duration::from_micros(1))),
            plain().with_properties([("a", "bc")].into_iter().collect()),
            plain().with_properties([("ab", "c")].into_iter().collect()),
            plain().with_properties([("a", "b"), ("c", "d")].into_iter().collect()),
            header("a", "bc"),
            header("ab", "c"),
            header("x-delivery-count", "1"),
        ];
        let hashes: std::collections::HashSet<_> = different.iter().map(Fingerprint::of_keyless).collect();
        assert_eq!(hashes.len(), different.len());
    }

    #[test]
    fn what_the_broker_changes_at_each_delivery_is_no_part_of_the_message() {
        let delivered = |count: Option<&str>| {
            let counts = count.map(|count| ("x-count".to_owned(), count.to_owned()));
            let headers = [("trace".to_owned(), "t".to_owned())].into_iter().chain(counts).collect();
            let delivery = Delivery::new("orders", "{}").with_headers(headers).with_redelivered(count.is_some());
            Fingerprint::of_keyless(&delivery.with_volatile_headers(&["x-count"]))
        };
        assert_eq!(delivered(None), delivered(Some("1")));
        assert_eq!(delivered(Some("1")), delivered(Some("2")));
    }

    #[test]
    fn a_long_one_differs_from_another_that_begins_alike() {
        assert_ne!(Fingerprint::stored(&[[1; 16], [2; 16]].concat()), Fingerprint::stored(&[1; 32]));
    }
}
