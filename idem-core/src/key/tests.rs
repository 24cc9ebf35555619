//! Two messages must never share a key because of its encoding, and no key may be too long for an index.

use proptest::collection::vec;
use proptest::prelude::*;

use super::text::keys;
use super::{Key, KeyError, KeyPart, MAX_KEY};

fn composite(parts: &[Vec<u8>]) -> Result<Key, KeyError> {
    let parts = parts.iter().map(|part| part as &dyn KeyPart).collect::<Vec<_>>();
    Key::composite(&parts)
}

/// Splits the bytes at the positions of the mask.
fn cut(bytes: &[u8], mask: &[bool]) -> Vec<Vec<u8>> {
    let mut parts = vec![vec![]];
    for (byte, cut_behind) in bytes.iter().zip(mask) {
        parts.last_mut().unwrap().push(*byte);
        if *cut_behind {
            parts.push(vec![]);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Bytes that look like lengths and separators, to provoke collisions.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), Just(2), Just(3), Just(b':'), Just(0xff)]
}

proptest! {
    #[test]
    fn composite_keys_are_equal_only_if_all_parts_are(
        one in vec(vec(byte(), 1..4), 1..5),
        other in vec(vec(byte(), 1..4), 1..5),
    ) {
        prop_assert_eq!(composite(&one)? == composite(&other)?, one == other);
    }

    #[test]
    fn the_same_bytes_cut_at_other_places_are_another_key(
        bytes in vec(byte(), 1..8),
        masks in (vec(any::<bool>(), 8), vec(any::<bool>(), 8)),
    ) {
        let (one, other) = (cut(&bytes, &masks.0), cut(&bytes, &masks.1));
        prop_assert_eq!(composite(&one)? == composite(&other)?, one == other);
    }

    #[test]
    fn no_key_is_empty_or_longer_than_an_index_takes(bytes in vec(vec(any::<u8>(), 0..300), 0..4)) {
        if let Ok(key) = composite(&bytes) {
            prop_assert!((1..=MAX_KEY).contains(&key.as_bytes().len()));
        }
        for part in &bytes {
            match Key::of(part) {
                Ok(key) => prop_assert_eq!(key.as_bytes(), &part[..]),
                Err(_) => prop_assert!(part.is_empty() || part.len() > MAX_KEY),
            }
        }
    }

    #[test]
    fn a_key_is_read_back_as_it_was_stored(bytes in vec(any::<u8>(), 0..=MAX_KEY)) {
        let key = Key::stored(&bytes)?;
        prop_assert_eq!(key.as_bytes(), &bytes[..]);
    }

    #[test]
    fn a_key_as_text_cannot_break_a_log_line_and_finds_the_key(bytes in vec(any::<u8>(), 1..=MAX_KEY)) {
        let key = Key::of(&bytes)?;
        prop_assert!(!key.to_string().contains(char::is_control), "{}", key);
        prop_assert!(keys(&key.to_string()).contains(&key), "{}", key);
    }

    #[test]
    fn a_composite_key_as_text_finds_the_key(parts in vec("[a-c,() 0-9:]{1,8}", 2..4)) {
        let parts: Vec<&dyn KeyPart> = parts.iter().map(|part| part as &dyn KeyPart).collect();
        let key = Key::composite(&parts)?;
        prop_assert!(keys(&key.to_string()).contains(&key), "{}", key);
    }
}

#[test]
fn an_empty_key_is_none() {
    assert_eq!(Key::of(""), Err(KeyError::Empty));
    assert_eq!(Key::of(&Vec::<u8>::new()), Err(KeyError::Empty));
    assert_eq!(Key::composite(&[]), Err(KeyError::Empty));
    assert_eq!(Key::composite(&[&"a", &""]), Err(KeyError::Empty));
}

#[test]
fn a_part_that_writes_nothing_makes_no_key() {
    struct Silent;
    impl KeyPart for Silent {
        fn write(&self, _: &mut Key) -> Result<(), KeyError> {
            Ok(())
        }
    }
    assert_eq!(Key::of(&Silent), Err(KeyError::Empty));
    assert_eq!(Key::composite(&[&"a", &Silent]), Err(KeyError::Empty));
}

#[test]
fn a_key_of_255_bytes_is_the_longest() {
    assert_eq!(Key::of(&[7; 255]).unwrap().as_bytes(), [7; 255]);
    assert_eq!(Key::of(&[7; 256]), Err(KeyError::TooLong { len: 256 }));
    assert_eq!(Key::of(&"é".repeat(128)), Err(KeyError::TooLong { len: 256 }));
}

#[test]
fn a_composite_key_has_255_bytes_with_the_lengths_of_its_parts() {
    assert_eq!(composite(&[vec![7; 253], vec![7]]), Err(KeyError::TooLong { len: 256 }));
    assert_eq!(composite(&[vec![7; 252], vec![7]]).unwrap().as_bytes().len(), 255);
    assert_eq!(composite(&[vec![7; 254]]).unwrap().as_bytes().len(), 255);
    assert_eq!(composite(&[vec![7; 255]]), Err(KeyError::TooLong { len: 256 }));
}

#[test]
fn a_key_may_hold_any_bytes() {
    for bytes in [&b"a\0b"[..], b"\0", b"\xff\xfe", "ключ".as_bytes()] {
        assert_eq!(Key::of(bytes).unwrap().as_bytes(), bytes);
    }
    assert_ne!(Key::of("a"), Key::of("a\0"));
}

#[test]
fn keys_are_compared_byte_by_byte() {
    assert_ne!(Key::of("a"), Key::of("A"));
    assert_ne!(Key::of("a"), Key::of("a "));
    assert_ne!(Key::of("é"), Key::of("e\u{301}"));
}

#[test]
fn an_integer_keeps_its_key_when_its_type_grows() {
    assert_eq!(Key::of(&-7_i8), Key::of(&-7_i128));
    assert_eq!(Key::of(&7_u8), Key::of(&7_i64));
    assert_eq!(Key::of(&0_u64).unwrap().as_bytes(), b"0");
}

#[test]
fn a_uuid_is_written_as_its_bytes() {
    let id = uuid::Uuid::from_u128(0x0123);
    assert_eq!(Key::of(&id).unwrap().as_bytes(), id.as_bytes());
}

/// So a field may become a `Uuid` or a `Ulid` later.
#[test]
fn equal_texts_give_equal_keys_whatever_their_type() {
    let id = uuid::Uuid::from_u128(0x9513_c1b4_5c2d_4d3c_8a55_4be7_d8a0_b1a2);
    let key = Key::of(&id).unwrap();
    for text in [id.to_string(), id.to_string().to_uppercase(), id.simple().to_string(), id.urn().to_string()] {
        assert_eq!(Key::of(&text).unwrap(), key, "{text}");
        assert_eq!(Key::of(text.as_bytes()).unwrap(), key, "{text}");
        assert_eq!(Key::composite(&[&"a", &text]), Key::composite(&[&"a", &id]), "{text}");
        // A key for a broker, and one of a row, are what they are.
        assert_eq!(Key::written(&text).unwrap().as_bytes(), text.as_bytes());
        assert_eq!(Key::stored(text.as_bytes()).unwrap().as_bytes(), text.as_bytes());
    }
    assert_eq!(Key::of("7"), Key::of(&7_i64));
    assert_ne!(Key::of("order-A"), Key::of("order-a"));
    #[cfg(feature = "ulid")]
    assert_eq!(Key::of(&ulid::Ulid(7)), Key::of("00000000000000000000000007"));
}

#[test]
fn a_reference_has_the_key_of_what_it_refers_to() {
    assert_eq!(Key::of(&&"a"), Key::of("a"));
    assert_eq!(Key::of(&"a".to_owned()), Key::of("a"));
    assert_eq!(Key::of(&bytes::Bytes::from("a")), Key::of(&vec![b'a']));
}

#[test]
fn a_key_is_shown_as_text_or_else_in_hex() {
    assert_eq!(Key::of("order-7\n").unwrap().to_string(), "0x6f726465722d370a");
    assert_eq!(Key::of(&[0xff, 0x01]).unwrap().to_string(), "0xff01");
    assert_eq!(format!("{:?}", Key::of("a").unwrap()), "Key(a)");
}

#[test]
fn errors_say_what_to_do() {
    let too_long = KeyError::TooLong { len: 300 }.to_string();
    assert_eq!(too_long, "the key has 300 bytes, and at most 255 are possible: use a shorter id, or a hash of it");
    let missing = KeyError::Missing { what: "header `ce-id`".to_owned() }.to_string();
    assert_eq!(missing, "the delivery has no header `ce-id`");
}
