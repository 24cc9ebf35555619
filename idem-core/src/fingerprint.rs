//! Tells a copy of a message from another message with the same key.

use std::fmt;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::Delivery;

/// A fingerprint of a message. It is stored with the claim, so that a second delivery with the same key is recognized
/// as a copy (equal) or as a conflict (not equal).
///
/// By default it is the first 16 bytes of the SHA-256 of the raw payload, which an operator can also compute in SQL.
/// For a CloudEvent in JSON it covers only the data, so that it does not depend on how the event is transported. A
/// producer that serializes the message again when it republishes, with another field order or a new timestamp, turns
/// its copies into conflicts: implement a fingerprint for such a handler, or use [`Fingerprint::none`].
///
/// ```
/// # use idem_core::{Delivery, Fingerprint};
/// #[derive(serde::Deserialize)]
/// struct Order { order_id: i64, cents: i64 }
///
/// /// For `#[idempotent(fingerprint = by_content)]`: leaves out the time of sending, which differs between copies.
/// fn by_content(delivery: &Delivery) -> Fingerprint {
///     match serde_json::from_slice::<Order>(delivery.data()) {
///         Ok(order) => Fingerprint::of(format!("{} {}", order.order_id, order.cents).as_bytes()),
///         Err(_) => Fingerprint::of(delivery.data()),
///     }
/// }
///
/// let sent = |json: &str| by_content(&Delivery::new("orders", json.to_owned()));
/// let first = sent(r#"{"order_id": 7, "cents": 2500, "sent_at": 1}"#);
/// assert_eq!(first, sent(r#"{"order_id": 7, "cents": 2500, "sent_at": 2}"#), "a copy");
/// assert_ne!(first, sent(r#"{"order_id": 7, "cents": 9900, "sent_at": 2}"#), "a conflict");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    // Zero beyond `len`, so that the derived comparison works.
    bytes: [u8; TAGGED],
    len: u8,
}

/// The maximum length of a fingerprint, in bytes.
const LENGTH: usize = 16;

/// The length of a fingerprint whose recipe is known: filled up with zeros, and behind it two bytes for the function that made it.
const TAGGED: usize = LENGTH + 2;

impl Fingerprint {
    /// Returns the fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::short(&Sha256::digest(bytes)[..LENGTH])
    }

    /// Returns the fingerprint of this delivery's payload. A missing payload differs from an empty one: a tombstone's
    /// fingerprint is the literal `tombstone`; at 9 bytes it cannot equal a 16-byte hash.
    pub(crate) fn of_delivery(delivery: &Delivery) -> Self {
        if delivery.has_no_data() { Self::short(b"tombstone") } else { Self::of(delivery.data()) }
    }

    /// Returns the identity of a delivery without a key. The payload alone is not enough: events that no handler takes,
    /// and tombstones, may differ only in their metadata. Values that the broker changes from one delivery to the next
    /// are left out, so that a redelivery is the same message.
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
        // The unreadable part is missing from the rest, so its description and the message's position stand in for it.
        let unreadable = delivery.unrepresentable();
        whole.optional(unreadable.map(str::as_bytes));
        whole.optional(unreadable.and(delivery.position()).map(str::as_bytes));
        whole.optional((!delivery.is_tombstone()).then_some(delivery.payload()));
        // Last, because their number is not hashed.
        for (name, value) in delivery.headers().iter().filter(|(name, _)| !delivery.volatile.contains(name)) {
            whole.part(name.as_bytes());
            whole.part(value);
        }
        Self::short(&whole.0.finalize()[..LENGTH])
    }

    /// A fingerprint that is equal for all messages: every delivery with a known key is a copy. If one key is used for
    /// two different messages, the second is then lost silently, and with it its external call. So a fingerprint has to cover
    /// everything on which the request of that call depends, such as an amount.
    pub fn none() -> Self {
        Self::short(&[])
    }

    /// Returns a fingerprint as read from a store, or a custom one. More than 16 bytes are hashed, except the 18 of one whose
    /// recipe is known.
    pub fn stored(bytes: &[u8]) -> Self {
        if bytes.len() > LENGTH && bytes.len() != TAGGED { Self::of(bytes) } else { Self::short(bytes) }
    }

    /// Returns the same fingerprint with a hash (FNV-1a) of its recipe, unless that is the default.
    pub(crate) fn by(self, recipe: &str) -> Self {
        if recipe.is_empty() {
            return self;
        }
        let mut tagged = if self.len() > LENGTH { Self::of(self.as_bytes()) } else { self };
        let hash =
            recipe.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let [a, b, c, d] = hash.to_be_bytes();
        tagged.bytes[LENGTH..].copy_from_slice(&[a ^ c, b ^ d]);
        Self { len: TAGGED as u8, ..tagged }
    }

    /// Whether a message with this fingerprint is a copy of a message with the other one, if their keys are equal. Fingerprints by
    /// different recipes cannot be compared: with a recipe that was added, removed or replaced, copies would otherwise be
    /// conflicts.
    pub(crate) fn is_copy_of(self, other: Self) -> bool {
        self == other || self.recipe() != other.recipe()
    }

    /// The hash of the recipe. Empty for the default, and for a fingerprint whose recipe is unknown.
    fn recipe(&self) -> &[u8] {
        self.as_bytes().get(LENGTH..).unwrap_or_default()
    }

    /// Whether it was made by a function of the handler that is known. One by a function before that was recorded looks like the
    /// default.
    pub(crate) fn has_recipe(&self) -> bool {
        !self.recipe().is_empty()
    }

    fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Keeps at most the first 18 bytes.
    fn short(text: &[u8]) -> Self {
        let mut bytes = [0; TAGGED];
        let len = text.len().min(TAGGED);
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len: len as u8 }
    }

    /// The fingerprint as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }
}

/// A hash over several parts. Each is preceded by its length, so that no byte can move from one part to the next.
struct Whole(Sha256);

impl Whole {
    fn number(&mut self, number: usize) {
        self.0.update((number as u64).to_be_bytes());
    }

    fn part(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    /// A missing part differs from an empty one.
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

    /// Claims and rows of earlier versions have them: never change them.
    #[test]
    fn a_fingerprint_is_the_same_for_ever() {
        let shown = |fingerprint: Fingerprint| hex::encode(fingerprint.as_bytes());
        assert_eq!(shown(Fingerprint::of(b"{}")), "44136fa355b3678a1146ad16f7e8649e");
        assert_eq!(shown(Fingerprint::of(b"{}").by("a")), "44136fa355b3678a1146ad16f7e8649ecd20");
        let headers = [("a".to_owned(), "b".to_owned())].into_iter().collect();
        let whole = Delivery::new("orders", "{}").with_event_type(Some("paid".to_owned())).with_headers(headers);
        assert_eq!(shown(Fingerprint::of_keyless(&whole)), "af9e4163adabcca39649778956371743");
    }

    #[test]
    fn a_stored_fingerprint_is_read_back_unchanged() {
        let (tombstone, hash) = (Fingerprint::short(b"tombstone"), Fingerprint::of(b"{}"));
        for fingerprint in [Fingerprint::none(), tombstone, hash] {
            assert_eq!(Fingerprint::stored(fingerprint.as_bytes()), fingerprint);
        }
        assert_eq!(hash.as_bytes().len(), 16);
        assert_ne!(Fingerprint::stored(&[0]), Fingerprint::none());
    }

    /// Also a fingerprint that is switched off, or a shorter one.
    #[test]
    fn only_fingerprints_by_one_recipe_tell_a_conflict() {
        let [plain, other] = [b"{}", b"[]"].map(|bytes| Fingerprint::of(bytes));
        assert!(!plain.is_copy_of(other) && !plain.by("a").is_copy_of(other.by("a")));
        assert!(plain.by("a").is_copy_of(other) && other.is_copy_of(plain.by("a")) && plain.by("") == plain);
        assert!(plain.by("a").is_copy_of(other.by("b")));
        for fingerprint in [plain, Fingerprint::none(), Fingerprint::short(b"tombstone"), Fingerprint::stored(&[1; 18])]
        {
            let tagged = fingerprint.by("a");
            assert_eq!(Fingerprint::stored(tagged.as_bytes()), tagged);
            assert!(tagged != fingerprint && tagged.is_copy_of(fingerprint));
        }
        let long = |last| Fingerprint::stored(&[&[1; 17][..], &[last]].concat()).by("a");
        assert!(!long(1).is_copy_of(long(2)), "all of it counts");
    }

    #[test]
    fn each_part_distinguishes_messages_without_a_key() {
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
    fn values_that_the_broker_changes_are_not_part_of_the_message() {
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
