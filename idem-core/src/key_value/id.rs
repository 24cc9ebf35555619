//! The name of a record.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::{Fingerprint, Key};

/// What separates the parts of a name, and so is escaped in them.
const SEPARATORS: &AsciiSet = &CONTROLS.add(b'/').add(b'!').add(b'%');

/// The identity of a message in a key-value store.
// Exhaustive: a store that did not read a new part of it would take two messages for one, so it must not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    /// The consumer.
    pub consumer: Arc<str>,
    /// The name of the handler; empty if none takes the message.
    pub handler: Cow<'static, str>,
    /// The key; empty if the message has none.
    pub key: Key,
    /// Set for a message that does not own its key, because it has none or another message has it. It can only be a dead letter.
    pub apart: Option<Fingerprint>,
}

impl Id {
    /// Returns the name of the record: `consumer/handler/key`, or for a message apart `consumer/handler!fingerprint/key`. No two
    /// ids have the same name. The key is written as it is, so a name may have any bytes.
    pub fn name(&self) -> Vec<u8> {
        let escaped = |text: &str| percent_encode(text.as_bytes(), SEPARATORS).to_string();
        let apart = self.apart.map_or_else(String::new, |print| format!("!{}", hex::encode(print.as_bytes())));
        let mut name = format!("{}/{}{apart}/", escaped(&self.consumer), escaped(&self.handler)).into_bytes();
        name.extend_from_slice(self.key.as_bytes());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(consumer: &str, handler: &'static str, key: &str, apart: Option<&[u8]>) -> String {
        let id = Id {
            consumer: consumer.into(),
            handler: handler.into(),
            key: Key::of(key).unwrap(),
            apart: apart.map(Fingerprint::of),
        };
        String::from_utf8(id.name()).unwrap()
    }

    #[test]
    fn names_are_readable_and_no_two_ids_share_one() {
        assert_eq!(name("billing", "paid", "e 7/1", None), "billing/paid/e 7/1");
        assert_eq!(name("a/b", "c", "k", None), "a%2Fb/c/k");
        assert_ne!(name("a", "b/c", "k", None), name("a", "b", "c/k", None));
        assert_ne!(name("a", "b%2Fc", "k", None), name("a", "b/c", "k", None));
        let print = hex::encode(Fingerprint::of(b"{}").as_bytes());
        assert_eq!(name("a", "b", "k", Some(b"{}")), format!("a/b!{print}/k"));
        assert_ne!(
            name("a", "b", "k", Some(b"{}")),
            name("a", Box::leak(format!("b!{print}").into_boxed_str()), "k", None)
        );
    }
}
