//! The key of a request: the header `Idempotency-Key`, and the scope in which it counts.

use http::HeaderMap;
use http::header::HeaderName;
use idem_core::{Key, KeyError};
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// The name of the header.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The maximum length of a key.
const LONGEST: usize = 255;

/// Returns the key in these headers. Quoted as a string of a structured field (RFC 9651), as the draft of the header wants it, and
/// bare, as most clients send it, it is the same key.
pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::SeveralKeys);
    }
    let value = value.as_bytes().trim_ascii();
    let key = match value.strip_prefix(b"\"") {
        Some(rest) => quoted(rest)?,
        // Where a proxy joins two headers, a comma separates them.
        None if value.contains(&b',') => return Err(Problem::SeveralKeys),
        None if value.contains(&b'"') => return Err(Problem::BadKey),
        None => value.to_vec(),
    };
    let is_fit = (1..=LONGEST).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    if is_fit { Ok(Some(key)) } else { Err(Problem::BadKey) }
}

/// Returns a string behind its first quote. Parameters behind its last one are ignored, as RFC 9651 wants it.
fn quoted(rest: &[u8]) -> Result<Vec<u8>, Problem> {
    let (mut key, mut bytes) = (Vec::new(), rest.iter().copied());
    loop {
        match bytes.next().ok_or(Problem::BadKey)? {
            b'"' => break,
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return Err(Problem::BadKey),
            },
            byte => key.push(byte),
        }
    }
    let behind: Vec<u8> = bytes.collect();
    match behind.trim_ascii_start().first() {
        None | Some(b';') => Ok(key),
        Some(b',') => Err(Problem::SeveralKeys),
        Some(_) => Err(Problem::BadKey),
    }
}

/// Returns the key of the claim. Without a scope it is the key itself, which an operator then sees as it was sent.
pub(crate) fn of_claim(scope: Option<&str>, key: &[u8]) -> Result<Key, KeyError> {
    let Some(scope) = scope else { return Key::of(key) };
    match Key::composite(&[&scope, &key]) {
        Err(KeyError::TooLong { .. }) => {
            // A composite key begins with the length of a part, which is not zero.
            let hash = Sha256::new().chain_update((scope.len() as u64).to_be_bytes()).chain_update(scope);
            let mut short = vec![0];
            short.extend_from_slice(&hash.chain_update(key).finalize()[..]);
            Key::of(&short[..])
        }
        composite => composite,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read_all(values: &[&'static str]) -> Result<Option<String>, Problem> {
        let headers: HeaderMap =
            values.iter().map(|value| (IDEMPOTENCY_KEY, HeaderValue::from_static(value))).collect();
        read(&headers).map(|key| key.map(|key| String::from_utf8_lossy(&key).into_owned()))
    }

    #[test]
    fn a_quoted_key_and_a_bare_one_are_one() {
        for value in ["k-1", "\"k-1\"", "  k-1 ", "\"k-1\";v=1", " \"k-1\" "] {
            assert_eq!(read_all(&[value]), Ok(Some("k-1".to_owned())), "{value}");
        }
        assert_eq!(read_all(&["\"a\\\"b\\\\,\""]), Ok(Some("a\"b\\,".to_owned())));
        assert_eq!(read_all(&[]), Ok(None));
    }

    #[test]
    fn a_bad_key_and_several_keys_are_refused() {
        for value in ["", "\"\"", "a b", "a\"b", "\"a", "\"a\"b", "\"a\\b\"", "\"a b\"", "a\tb"] {
            assert_eq!(read_all(&[value]), Err(Problem::BadKey), "{value}");
        }
        for values in [&["a", "a"][..], &["a, b"], &["a,b"], &["\"a\", \"b\""]] {
            assert_eq!(read_all(values), Err(Problem::SeveralKeys), "{values:?}");
        }
        let is_read = |bytes: &[u8]| {
            let value = HeaderValue::from_bytes(bytes).unwrap_or(HeaderValue::from_static(""));
            read(&[(IDEMPOTENCY_KEY, value)].into_iter().collect()).is_ok()
        };
        assert!(is_read(&[b'x'; 255]) && !is_read(&[b'x'; 256]));
        assert!(!is_read(b"k\xe9") && !is_read(b"\"k\xc3\xa9\""));
    }

    #[test]
    fn the_same_key_in_two_scopes_is_two_keys_however_long_they_are() {
        let long = "x".repeat(250);
        for (key, scopes) in [("k", ["a", "b"]), (&long[..], ["tenant-a", "tenant-b"]), ("bc", ["a", "ab"])] {
            let [one, other] = scopes.map(|scope| of_claim(Some(scope), key.as_bytes()));
            assert!(one.is_ok() && one != other, "{key}");
        }
        assert_ne!(of_claim(Some(&long), b"ab"), of_claim(Some(&format!("{long}a")), b"b"));
        assert_eq!(of_claim(None, b"k-1").map(|key| key.to_string()), Ok("k-1".to_owned()));
    }
}
