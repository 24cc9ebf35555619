//! The key of a message, and the types that can be one.

pub(crate) mod absent;
pub(crate) mod text;

use std::fmt;

use smallvec::SmallVec;

/// The maximum length of a key, in bytes.
pub const MAX_KEY: usize = 255;

/// The length up to which a key is not on the heap: keys are moved often, and most are a UUID or two.
const INLINE: usize = 39;

/// The key of a message: 1 to 255 bytes, compared byte by byte, without case folding or trimming.
///
/// A single part is written as is: a string as UTF-8, an integer in decimal, a ULID as its text. A UUID is its 16 bytes, also
/// where it is a string in any of its notations, so that a field may become a `Uuid` later. In a composite key each part is preceded by its length, so that `("a:b", "c")` and `("a", "b:c")` differ. A key of up to 39 bytes is stored
/// inline, without a heap allocation.
///
/// ```
/// # use idem_core::Key;
/// let key = Key::of("order-7")?;
/// assert_eq!((key.as_bytes(), key.to_string()), (&b"order-7"[..], "order-7".to_owned()));
/// assert_ne!(Key::composite(&[&"a:b", &"c"])?, Key::composite(&[&"a", &"b:c"])?);
/// assert!(Key::of("").is_err());
/// # Ok::<_, idem_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(SmallVec<[u8; INLINE]>);

impl Key {
    /// Creates a key from one part.
    ///
    /// # Errors
    /// The part is empty, or longer than 255 bytes.
    pub fn of<P: KeyPart + ?Sized>(part: &P) -> Result<Self, KeyError> {
        let mut key = Self::written(part)?;
        if let Ok(uuid) = uuid::Uuid::try_parse_ascii(&key.0) {
            key.0 = SmallVec::from_slice(uuid.as_bytes());
        }
        Ok(key)
    }

    /// Creates a key from one part, with a UUID in the notation that it has: for consumers outside idem.
    pub(crate) fn written<P: KeyPart + ?Sized>(part: &P) -> Result<Self, KeyError> {
        let mut key = Self::empty();
        part.write(&mut key)?;
        if key.0.is_empty() { Err(KeyError::Empty) } else { Ok(key) }
    }

    /// Creates a key from several parts, each preceded by its length.
    ///
    /// # Errors
    /// There are no parts, a part is empty, or all parts and their lengths are longer than 255 bytes.
    pub fn composite(parts: &[&dyn KeyPart]) -> Result<Self, KeyError> {
        if parts.is_empty() {
            return Err(KeyError::Empty);
        }
        let mut key = Self::empty();
        for part in parts {
            let part = Self::of(*part)?;
            let len = u8::try_from(part.0.len()).map_err(|_| KeyError::TooLong { len: part.0.len() })?;
            key.append(&[len])?;
            key.append(part.as_bytes())?;
        }
        Ok(key)
    }

    /// The key as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the bytes of a part. A [`KeyPart`] calls this, usually once.
    ///
    /// # Errors
    /// `bytes` is empty, or the key would be longer than 255 bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        let len = self.0.len() + bytes.len();
        if len > MAX_KEY {
            return Err(KeyError::TooLong { len });
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// The empty key. Rows of messages for which no key could be created have it, since no message can.
    #[doc(hidden)]
    pub const fn empty() -> Self {
        Self(SmallVec::new_const())
    }

    /// Returns a key as read from a store, including the empty key of rows without one.
    ///
    /// # Errors
    /// It is longer than 255 bytes.
    pub fn stored(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.is_empty() { Ok(Self::empty()) } else { Self::written(bytes) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// A type that can be the key of a message, or a part of it: strings, integers, UUIDs, ULIDs and bytes.
///
/// A key must be the same on every delivery of one message. For a newtype, derive this trait: its key is that of its
/// field.
///
/// ```standalone_crate
/// # extern crate idem_core as idem;
/// # use idem_macros::KeyPart;
/// use idem::{Key, KeyPart};
///
/// #[derive(KeyPart)]
/// struct OrderId(i64);
///
/// # fn main() {
/// assert_eq!(Key::of(&OrderId(7)), Key::of(&7));
/// # }
/// ```
///
/// For any other type, implement it:
///
/// ```
/// # use idem_core::{Key, KeyError, KeyPart};
/// enum Region {
///     Europe,
///     America,
/// }
///
/// impl KeyPart for Region {
///     fn write(&self, key: &mut Key) -> Result<(), KeyError> {
///         match self {
///             Self::Europe => "eu".write(key),
///             Self::America => "us".write(key),
///         }
///     }
/// }
///
/// assert_eq!(Key::of(&Region::Europe), Key::of("eu"));
/// # let _ = Region::America;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a message",
    label = "this field is the key",
    note = "a key is a string, an integer, a `Uuid`, a `Ulid` or bytes",
    note = "floats and times may differ between deliveries of one message, and an `Option` must be decided, not guessed",
    note = "for a newtype of one of these, `#[derive(KeyPart)]`"
)]
pub trait KeyPart {
    /// Writes the part.
    ///
    /// # Errors
    /// It is empty, or too long.
    fn write(&self, key: &mut Key) -> Result<(), KeyError>;
}

impl<P: KeyPart + ?Sized> KeyPart for &P {
    fn write(&self, key: &mut Key) -> Result<(), KeyError> {
        (**self).write(key)
    }
}

/// Text and bytes are written as they are.
macro_rules! text_or_bytes {
    ($($part:ty)*) => {$(
        impl KeyPart for $part {
            fn write(&self, key: &mut Key) -> Result<(), KeyError> {
                key.append(self.as_ref())
            }
        }
    )*};
}
text_or_bytes!(str String [u8] Vec<u8> bytes::Bytes);

impl<const N: usize> KeyPart for [u8; N] {
    fn write(&self, key: &mut Key) -> Result<(), KeyError> {
        key.append(self)
    }
}

impl KeyPart for uuid::Uuid {
    fn write(&self, key: &mut Key) -> Result<(), KeyError> {
        key.append(self.as_bytes())
    }
}

#[cfg(feature = "ulid")]
impl KeyPart for ulid::Ulid {
    fn write(&self, key: &mut Key) -> Result<(), KeyError> {
        key.append(self.to_string().as_bytes())
    }
}

/// Written in decimal, so that a field which is widened from `i32` to `i64` keeps its keys.
macro_rules! integer {
    ($($integer:ty)*) => {$(
        impl KeyPart for $integer {
            fn write(&self, key: &mut Key) -> Result<(), KeyError> {
                key.append(itoa::Buffer::new().format(*self).as_bytes())
            }
        }
    )*};
}
integer!(i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize);

/// Why no key could be created for a message. The delivery becomes a dead letter with reason `no key`, kept whole.
///
/// ```
/// # use idem_core::{Key, KeyError};
/// assert_eq!(Key::of(""), Err(KeyError::Empty));
/// assert_eq!(Key::of(&"x".repeat(300)), Err(KeyError::TooLong { len: 300 }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key, or a part of a composite key, is empty.
    #[error("the key is empty")]
    Empty,
    /// Longer than 255 bytes, the length that can be indexed on every database.
    #[error("the key has {len} bytes, and at most {MAX_KEY} are possible: use a shorter id, or a hash of it")]
    TooLong {
        /// The length in bytes.
        len: usize,
    },
    /// The delivery has no such header or property.
    #[error("the delivery has no {what}")]
    Missing {
        /// The missing part.
        what: String,
    },
    /// The value stands for no value, such as 0, a nil UUID, a blank text or `null`. Two messages without an id would
    /// have the same key, and the second would be lost.
    #[error("the id is absent: {0}")]
    Absent(String),
}

#[cfg(test)]
mod tests;
