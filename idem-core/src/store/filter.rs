//! Which inbox rows an operator means.

use uuid::Uuid;

use crate::{Key, Reason};

/// Which rows to list or to replay. By default all dead rows; each field that is set leaves fewer.
///
/// ```
/// # use idem_core::{Reason, store::Filter};
/// let filter = Filter::new().handler("order_paid").reason(Reason::Exhausted);
/// let one = Filter::new().key("9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2");
/// assert_eq!(one.keys().map(|keys| keys.len()), Some(2), "the text, and the UUID");
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Filter {
    /// Lists scheduled rows instead of dead ones.
    pub scheduled: bool,
    /// Lists only rows of this handler.
    pub handler: Option<String>,
    /// Lists only rows that died for this reason.
    pub reason: Option<Reason>,
    /// Lists only rows with this key, written as in the log: its text, a UUID, or `0x` and its bytes in hexadecimal.
    pub key: Option<String>,
}

impl Filter {
    /// All dead rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scheduled rows instead of dead ones.
    pub fn scheduled(self) -> Self {
        Self { scheduled: true, ..self }
    }

    /// Only rows of this handler.
    pub fn handler(self, name: impl Into<String>) -> Self {
        Self { handler: Some(name.into()), ..self }
    }

    /// Only rows that died for this reason.
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Only rows with this key, as the log writes it.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The keys that the text of [`key`](Self::key) may stand for, for a store; `None` if any key will do.
    pub fn keys(&self) -> Option<Vec<Key>> {
        let text = self.key.as_deref()?;
        let uuid = Uuid::try_parse(text).ok().map(|uuid| uuid.into_bytes().to_vec());
        let bytes = text.strip_prefix("0x").and_then(|digits| hex::decode(digits).ok());
        let keys = [Some(text.as_bytes().to_vec()), uuid, bytes, ulid(text)];
        Some(keys.into_iter().flatten().filter_map(|bytes| Key::of(&bytes).ok()).collect())
    }
}

#[cfg(feature = "ulid")]
fn ulid(text: &str) -> Option<Vec<u8>> {
    ulid::Ulid::from_string(text).ok().map(|ulid| ulid.to_bytes().to_vec())
}

#[cfg(not(feature = "ulid"))]
fn ulid(_: &str) -> Option<Vec<u8>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Key> {
        Filter::new().key(text).keys().unwrap()
    }

    #[test]
    fn the_text_of_a_key_finds_the_key() {
        let uuid = Uuid::from_u128(0x9513_c1b4_5c2d_4d3c_8a55_4be7_d8a0_b1a2);
        for key in [
            Key::of("order 7").unwrap(),
            Key::of(&7_i64).unwrap(),
            Key::of(&uuid).unwrap(),
            Key::of(&uuid.to_string()).unwrap(),
            Key::of(&[0xff_u8, 0x00]).unwrap(),
        ] {
            assert!(keys(&key.to_string()).contains(&key), "{key}");
        }
        assert!(Filter::default().keys().is_none());
    }
}
