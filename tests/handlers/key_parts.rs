//! Newtypes as keys.

use std::marker::PhantomData;

use ::idem::handler::KeyError;
use ::idem::{Key, KeyPart};
use uuid::Uuid;

#[derive(KeyPart)]
struct Id(Uuid);

#[derive(KeyPart)]
struct Number(i64);

#[derive(KeyPart)]
struct Text {
    text: String,
}

#[derive(KeyPart)]
struct Bytes<'a>(&'a [u8]);

#[derive(KeyPart)]
struct Of<T>(Uuid, PhantomData<T>);

#[derive(KeyPart)]
struct Any<T: ?Sized> {
    of: PhantomData<u8>,
    r#type: T,
}

#[derive(KeyPart)]
struct Nested<const N: usize>(Any<Array<N>>);

#[derive(KeyPart)]
struct Array<const N: usize>([u8; N]);

#[derive(KeyPart)]
#[key_part(crate = renamed::again)]
struct Renamed(u8);

mod renamed {
    pub(super) use ::idem as again;
}

/// A type that is no key part, as a parameter that is not written.
struct Order;

#[test]
fn a_newtype_has_the_key_of_its_field() {
    for id in [Uuid::nil(), Uuid::from_u128(7), Uuid::max()] {
        assert_eq!(Key::of(&Id(id)), Key::of(&id));
        assert_eq!(Key::of(&Of::<Order>(id, PhantomData)), Key::of(&id));
    }
    for number in [i64::MIN, -7, 0, 42, i64::MAX] {
        assert_eq!(Key::of(&Number(number)), Key::of(&number));
        assert_eq!(Key::of(&Any { of: PhantomData, r#type: number }), Key::of(&number));
        assert_eq!(Key::composite(&[&Number(number), &"line"]), Key::composite(&[&number, &"line"]));
    }
    for text in ["", "order-7", "a\0b", &"é".repeat(127), &"é".repeat(128)] {
        assert_eq!(Key::of(&Text { text: text.to_owned() }), Key::of(text));
        assert_eq!(Key::of(&Bytes(text.as_bytes())), Key::of(text));
        assert_eq!(Key::composite(&[&Text { text: text.to_owned() }, &7]), Key::composite(&[&text, &7]));
    }
}

#[test]
fn generics_and_renamed_crates_work() {
    assert_eq!(Key::of(&Nested(Any { of: PhantomData, r#type: Array([7, 8]) })), Key::of(&[7, 8]));
    assert_eq!(Key::of(&Renamed(7)), Key::of("7"));
    assert_eq!(Key::of(&Text { text: String::new() }), Err(KeyError::Empty));
}
