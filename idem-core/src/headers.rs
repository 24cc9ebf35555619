//! The headers of a delivery.

use bytes::Bytes;

/// The headers of a delivery, in the order in which they arrived.
///
/// Names and values are kept as the broker sent them: a value may hold any bytes, and a name may occur more than once. The
/// last value counts then, but a key or an event type is refused if the values differ.
/// As a handler's parameter, `Headers` is a copy, which costs one reference count per value.
///
/// ```
/// # use idem_core::Headers;
/// let mut headers: Headers = [("tenant", "acme")].into_iter().collect();
/// headers.push("signature", vec![0xff, 0x00]);
/// assert_eq!(headers.get_str("tenant"), Some("acme"));
/// assert_eq!(headers.get_str("Tenant"), None, "names are compared byte by byte");
/// assert_eq!((headers.get("signature"), headers.get_str("signature")), (Some(&[0xff, 0x00][..]), None));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Bytes)>);

impl Headers {
    /// Creates an empty list of headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a header; a header with the same name is not replaced.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// Returns the last value with this name, compared byte by byte.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_ref())
    }

    /// Returns whether there are several values with this name that differ.
    pub(crate) fn differ(&self, name: &str) -> bool {
        let last = self.get(name);
        self.iter().any(|(n, value)| n == name && last != Some(value))
    }

    /// Returns the last value with this name, if it is UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Iterates over all headers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_ref()))
    }

    /// Returns the number of headers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Shows names and sizes, never values: headers may contain tokens.
impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, format!("{} bytes", value.len())))).finish()
    }
}
