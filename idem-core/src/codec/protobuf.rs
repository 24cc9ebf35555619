//! Protocol Buffers.

use std::any::type_name;

use prost::Message;

use super::found::found;
use super::{Codec, DecodeError};
use crate::Delivery;

/// Protocol Buffers, implemented with prost 0.14 (feature `protobuf`): the messages are types with prost's derive.
/// Unknown fields are skipped, missing ones have their defaults, and prost limits nesting to 100 levels.
///
/// The payload is the message and nothing else: no length prefix, and no schema id of a registry. An empty payload is a
/// message in which each field has its default. A handler that takes tombstones needs a custom codec for its `Option`,
/// which may delegate to this one.
///
/// ```
/// use idem_core::{Codec, DecodeError, Delivery, Protobuf};
/// use prost::Message;
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct OrderPaid {
///     #[prost(string, tag = "1")]
///     event_id: String,
///     #[prost(int64, tag = "2")]
///     amount: i64,
/// }
///
/// let paid = OrderPaid { event_id: "e-1".to_owned(), amount: 25 };
/// let decoded: OrderPaid = Protobuf.decode(&Delivery::new("orders", paid.encode_to_vec()))?;
/// assert_eq!(decoded, paid);
///
/// // Worker::new("billing", store, orders).codec(Protobuf).handler::<order_paid>()
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Protobuf;

#[diagnostic::do_not_recommend]
impl<M: Message + Default + 'static> Codec<M> for Protobuf {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        // Clones the handle: fields of type `Bytes` share the payload.
        let decoded = M::decode(delivery.data().clone());
        decoded.map_err(|error| {
            let found = found(delivery, "proto").map(|found| format!(": {found}")).unwrap_or_default();
            format!("the payload is not a `{}` in Protocol Buffers: {error}{found}", type_name::<M>()).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Paid {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(bytes = "bytes", tag = "2")]
        receipt: bytes::Bytes,
    }

    fn decode(payload: Vec<u8>) -> Result<Paid, String> {
        Protobuf.decode(&Delivery::new("orders", payload)).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn a_message_is_what_was_encoded() {
        let paid = Paid { id: "e-1".to_owned(), receipt: bytes::Bytes::from_static(b"thanks") };
        assert_eq!(decode(paid.encode_to_vec()), Ok(paid));
        assert_eq!(decode(Vec::new()), Ok(Paid::default()));
    }

    #[test]
    fn truncated_data_and_invalid_text_are_errors_that_name_the_message() {
        let mut cut = Paid { id: "e-1".to_owned(), ..Paid::default() }.encode_to_vec();
        cut.pop();
        for payload in [cut, b"\x0a\x02\xff\xfe".to_vec(), br#"{"id": "e-1"}"#.to_vec()] {
            let error = decode(payload).unwrap_err();
            assert!(error.contains("is not a `") && error.contains("Paid`"), "{error}");
        }
    }
}
