//! A key as text, and the keys that a text stands for: an operator finds a message by what the log shows of it.

use std::fmt;

use uuid::Uuid;

use super::{Key, KeyPart};

/// The key as it is shown: its text; a UUID; `(part, part)` for a composite key; `0x` and its bytes in hexadecimal for
/// all others, among them those with control characters, since keys come from outside and are written to logs.
/// [`Filter::key`](crate::operator::Filter::key) finds the key by this text.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.as_bytes();
        if let Some(text) = plain(bytes) {
            return f.write_str(&text);
        }
        match composite(bytes) {
            Some(text) => f.write_str(&text),
            None => write!(f, "0x{}", hex::encode(bytes)),
        }
    }
}

/// Returns the keys that a text may stand for, as the log shows them: it is the key itself, or its bytes in hexadecimal, or the
/// parts of a composite key. A UUID has one key in each of its notations, and in front of that of its text. No two are equal.
///
/// ```
/// # use idem_core::{Key, operator::keys};
/// assert_eq!(keys("m1,7"), [Key::of("m1,7")?, Key::composite(&[&"m1", &7_i64])?]);
/// # Ok::<_, idem_core::KeyError>(())
/// ```
pub fn keys(text: &str) -> Vec<Key> {
    let mut found: Vec<Key> = Vec::new();
    let mut add = |key: Option<Key>| {
        if let Some(key) = key.filter(|key| !found.contains(key)) {
            found.push(key);
        }
    };
    if Uuid::try_parse(text).is_ok() {
        add(Key::of(text).ok());
    }
    add(Key::written(text).ok());
    let bytes = text.strip_prefix("0x").and_then(|digits| hex::decode(digits).ok());
    add(bytes.and_then(|bytes| Key::written(&bytes).ok()));
    let composite = |parts: &[&str]| {
        let parts: Vec<&dyn KeyPart> = parts.iter().map(|part| part as &dyn KeyPart).collect();
        Key::composite(&parts).ok()
    };
    let within = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    if let Some(within) = within {
        add(composite(&within.split(BETWEEN).collect::<Vec<_>>()));
    }
    let parts: Vec<&str> = within.unwrap_or(text).split(',').map(str::trim).collect();
    if parts.len() > 1 {
        add(composite(&parts));
    }
    found
}

/// Returns the text of one part.
fn plain(bytes: &[u8]) -> Option<String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().all(is_shown).then(|| text.to_owned()),
        Err(_) => uuid(bytes).map(|uuid| uuid.to_string()),
    }
}

/// Whether a character may be written to a log as it is.
fn is_shown(character: char) -> bool {
    matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1
}

/// The UUID of RFC 9562 that these bytes are, as far as that can be told.
fn uuid(bytes: &[u8]) -> Option<Uuid> {
    let uuid = Uuid::from_slice(bytes).ok()?;
    let known = uuid.get_variant() == uuid::Variant::RFC4122 && (1..=8).contains(&uuid.get_version_num());
    known.then_some(uuid)
}

/// Between the parts of a composite key. A part that contains it makes the text ambiguous, and is not shown.
const BETWEEN: &str = ", ";

/// Returns the text of a key of at least two parts, each preceded by its length.
fn composite(mut bytes: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (part, rest) = rest.split_at_checked(usize::from(*length))?;
        parts.push(plain(part).filter(|part| !part.is_empty() && !part.contains(BETWEEN))?);
        bytes = rest;
    }
    (parts.len() > 1).then(|| format!("({})", parts.join(BETWEEN)))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ID: Uuid = Uuid::from_u128(0x9513_c1b4_5c2d_4d3c_8a55_4be7_d8a0_b1a2);

    #[test]
    fn the_text_of_a_key_finds_the_key() {
        let composite = |parts: &[&dyn crate::KeyPart]| Key::composite(parts).unwrap();
        for (key, text) in [
            (Key::of("order 7").unwrap(), Some("order 7")),
            (Key::of("it's \"7\"").unwrap(), Some("it's \"7\"")),
            (Key::of(&7_i64).unwrap(), Some("7")),
            (Key::of(&ID).unwrap(), Some("9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2")),
            (Key::of(&ID.to_string()).unwrap(), None),
            (Key::of(&[0xff_u8, 0x00]).unwrap(), Some("0xff00")),
            (Key::of("line\nbreak").unwrap(), Some("0x6c696e650a627265616b")),
            (Key::of(&"long".repeat(63)).unwrap(), None),
            (composite(&[&"m1", &1_i64]), Some("(m1, 1)")),
            (composite(&[&ID, &"line-7"]), Some("(9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2, line-7)")),
            (composite(&[&"a, b", &"c"]), Some("0x04612c20620163")),
        ] {
            let shown = key.to_string();
            assert!(text.is_none_or(|text| text == shown), "{shown}");
            assert!(keys(&shown).contains(&key), "{shown}");
        }
    }
}
