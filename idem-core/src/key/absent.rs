//! Values that stand for no value: two messages whose id is absent must not share a key.

use serde::de::IgnoredAny;
use uuid::Uuid;

/// The texts that languages print for no value.
const NOTHING: [&str; 5] = ["null", "undefined", "none", "nil", "<nil>"];

/// Describes a part of a key that stands for no value: the default of a decoder, or the text of one.
pub(crate) fn absent(part: &[u8]) -> Option<&'static str> {
    // Most keys are numbers, and no text of nothing begins like one.
    if let Some(b'1'..=b'9') = part.first() {
        return None;
    }
    if part.iter().all(|byte| *byte == 0) {
        return Some("nil");
    }
    let text = std::str::from_utf8(part).ok()?.trim();
    match text {
        "" => Some("blank"),
        "true" | "false" => Some("a boolean"),
        "{}" | "[]" => Some("an empty container"),
        _ if text.bytes().all(|byte| byte == b'0') => Some("0"),
        _ if Uuid::try_parse(text).is_ok_and(|uuid| uuid.is_nil()) => Some("nil"),
        _ => NOTHING.iter().find(|nothing| text.eq_ignore_ascii_case(nothing)).copied(),
    }
}

/// Describes a header that is no id: it has no text, or that of a JSON value which cannot be one. An adapter shows a header
/// of another type as JSON.
pub(crate) fn no_id(header: &[u8]) -> Option<&'static str> {
    match header.trim_ascii() {
        b"null" => Some("null"),
        b"true" | b"false" => Some("a boolean"),
        json @ [b'{', .., b'}'] if serde_json::from_slice::<IgnoredAny>(json).is_ok() => Some("a table"),
        json @ [b'[', .., b']'] if serde_json::from_slice::<IgnoredAny>(json).is_ok() => Some("a list"),
        _ => None,
    }
}

/// Describes a composite key that is no id: a part is a nil UUID, or all parts are absent. Other parts may be 0, since versions
/// and line numbers begin there, or a word such as `none`.
pub(crate) fn absent_in(mut composite: &[u8]) -> Option<&'static str> {
    let mut all = true;
    while let Some((length, rest)) = composite.split_first() {
        let (part, rest) = rest.split_at_checked(usize::from(*length))?;
        match absent(part) {
            Some("nil") => return Some("nil"),
            found => all &= found.is_some(),
        }
        composite = rest;
    }
    all.then_some("0 or nothing")
}
