//! Each kind of key.

use idem::handler::KeyError;
use idem::prelude::*;
use idem::{Fingerprint, KeyPart};
use sqlx::SqliteConnection;
use uuid::Uuid;

struct Order {
    id: i64,
    r#type: String,
}

struct OrderPaid {
    event_id: Uuid,
    message_id: String,
    position: u8,
    partition_key: u8,
    order: Order,
    version: (u32, Wrapped),
}

#[derive(KeyPart)]
struct Wrapped(String);

fn order_paid() -> OrderPaid {
    OrderPaid {
        event_id: Uuid::from_u128(7),
        message_id: "field".to_owned(),
        position: 3,
        partition_key: 4,
        order: Order { id: 42, r#type: "rush".to_owned() },
        version: (5, Wrapped("w".to_owned())),
    }
}

fn delivery() -> Delivery {
    Delivery::new("orders", "{}")
        .with_headers([("ce-id", "from the header"), ("tenant", "acme")].into_iter().collect())
        .with_message_id(Some("from the broker".to_owned()))
        .with_position(Some("orders/0/17".to_owned()))
        .with_partition_key(Some(vec![0xff, b'k'].into()))
}

fn key_of<H: Handler<Message = OrderPaid>>() -> Result<Key, KeyError> {
    H::key(&order_paid(), &delivery())
}

/// Declares a handler with this key.
macro_rules! keyed {
    ($name:ident, $($key:tt)*) => {
        #[idempotent(key = $($key)*)]
        async fn $name(_: OrderPaid, _: &mut SqliteConnection) -> Result<(), BoxError> {
            Ok(())
        }
    };
}

keyed!(string, "event_id");
keyed!(bare, event_id);
keyed!(nested_string, "order.id");
keyed!(nested_bare, order.id);
keyed!(tuple_string, "version.0");
keyed!(tuple_bare, version.0);
keyed!(newtype, "version.1");
keyed!(keyword, "order.type");
keyed!(raw_keyword, order.r#type);
keyed!(header_value, header("ce-id"));
keyed!(absent_header, header("ce-source"));
keyed!(broker_message_id, message_id);
keyed!(field_message_id, "message_id");
keyed!(broker_position, position);
keyed!(field_position, "position");
keyed!(broker_partition_key, partition_key);
keyed!(field_partition_key, "partition_key");
keyed!(event_identity, cloud_event_id);
keyed!(composite_with_event_identity, (cloud_event_id, order.id));
keyed!(composite_with_partition_key, (partition_key, version.0));
keyed!(composite, (order.id, "version.0"));
keyed!(composite_of_integers, ("position", order.id));
keyed!(composite_of_headers, (header("tenant"), header("ce-id")));
keyed!(composite_of_facts, (header("tenant"), message_id, position, event_id,));

#[test]
fn a_field_is_the_key() -> Result<(), KeyError> {
    assert_eq!(key_of::<string>()?, Key::of(&Uuid::from_u128(7))?);
    assert_eq!(key_of::<bare>()?, Key::of(&Uuid::from_u128(7))?);
    Ok(())
}

#[test]
fn a_field_of_a_field_is_the_key() -> Result<(), KeyError> {
    assert_eq!(key_of::<nested_string>()?.as_bytes(), b"42");
    assert_eq!(key_of::<nested_bare>()?.as_bytes(), b"42");
    assert_eq!(key_of::<tuple_string>()?.as_bytes(), b"5");
    assert_eq!(key_of::<tuple_bare>()?.as_bytes(), b"5");
    assert_eq!(key_of::<newtype>()?.as_bytes(), b"w");
    Ok(())
}

#[test]
fn a_field_named_like_a_keyword_is_the_key() -> Result<(), KeyError> {
    assert_eq!(key_of::<keyword>()?.as_bytes(), b"rush");
    assert_eq!(key_of::<raw_keyword>()?.as_bytes(), b"rush");
    Ok(())
}

#[test]
fn a_header_is_the_key() -> Result<(), KeyError> {
    assert_eq!(key_of::<header_value>()?.as_bytes(), b"from the header");
    Ok(())
}

#[test]
fn a_header_with_two_values_makes_no_key() -> Result<(), KeyError> {
    let twice = |values: [&'static str; 2]| {
        let headers = values.map(|value| ("ce-id", value)).into_iter().collect();
        header_value::key(&order_paid(), &Delivery::new("orders", "{}").with_headers(headers))
    };
    assert_eq!(twice(["7", "7"])?.as_bytes(), b"7");
    let error = twice(["7", "8"]).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("header `ce-id`") && error.contains("different"), "{error}");
    Ok(())
}

#[test]
fn a_missing_header_makes_no_key() {
    assert_eq!(key_of::<absent_header>(), Err(KeyError::Missing { what: "header `ce-source`".to_owned() }));
}

#[test]
fn a_fact_that_the_broker_does_not_give_makes_no_key() {
    let bare = Delivery::new("orders", "{}");
    let missing = |what: &str| Err(KeyError::Missing { what: what.to_owned() });
    assert_eq!(broker_message_id::key(&order_paid(), &bare), missing("message id, or several different ones"));
    assert_eq!(broker_position::key(&order_paid(), &bare), missing("position"));
    assert_eq!(broker_partition_key::key(&order_paid(), &bare), missing("partition key"));
    let empty = bare.clone().with_partition_key(Some(Vec::new().into()));
    assert_eq!(broker_partition_key::key(&order_paid(), &empty), Err(KeyError::Empty));
    assert_eq!(composite_of_facts::key(&order_paid(), &bare), missing("header `tenant`"));
    let none = event_identity::key(&order_paid(), &bare);
    assert!(none.is_err_and(|error| error.to_string().contains("does not say that it is a CloudEvent")));
    let needs = [event_identity::NEEDS_CLOUD_EVENT, composite_with_event_identity::NEEDS_CLOUD_EVENT];
    assert_eq!((needs, string::NEEDS_CLOUD_EVENT), ([true, true], false));
}

#[test]
fn bare_words_of_the_broker_are_the_brokers_and_strings_are_fields() -> Result<(), KeyError> {
    assert_eq!(key_of::<broker_message_id>()?.as_bytes(), b"from the broker");
    assert_eq!(key_of::<field_message_id>()?.as_bytes(), b"field");
    assert_eq!(key_of::<broker_position>()?.as_bytes(), b"orders/0/17");
    let needs = [broker_position::NEEDS_POSITION, composite_of_facts::NEEDS_POSITION, field_position::NEEDS_POSITION];
    assert_eq!(needs, [true, true, false]);
    assert_eq!(key_of::<field_position>()?.as_bytes(), b"3");
    assert_eq!(key_of::<broker_partition_key>()?.as_bytes(), b"\xffk");
    assert_eq!(key_of::<field_partition_key>()?.as_bytes(), b"4");
    let needs = [
        broker_partition_key::NEEDS_PARTITION_KEY,
        composite_with_partition_key::NEEDS_PARTITION_KEY,
        field_partition_key::NEEDS_PARTITION_KEY,
        broker_position::NEEDS_PARTITION_KEY,
    ];
    assert_eq!(needs, [true, true, false, false]);
    Ok(())
}

#[test]
fn a_composite_key_has_its_parts_in_the_order_written() -> Result<(), KeyError> {
    assert_eq!(key_of::<composite>()?, Key::composite(&[&42_i64, &5_u32])?);
    let facts: [&dyn KeyPart; 4] = [&"acme", &"from the broker", &"orders/0/17", &Uuid::from_u128(7)];
    assert_eq!(key_of::<composite_of_facts>()?, Key::composite(&facts)?);
    Ok(())
}

fn by_type(delivery: &Delivery) -> Fingerprint {
    Fingerprint::of(delivery.event_type().unwrap_or_default().as_bytes())
}

mod fingerprints {
    pub(super) fn off(_: &idem::Delivery) -> idem::Fingerprint {
        idem::Fingerprint::none()
    }
}

#[idempotent(key = event_id, fingerprint = by_type)]
async fn replaced(_: OrderPaid, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = event_id, fingerprint = fingerprints::off)]
async fn switched_off(_: OrderPaid, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[test]
fn the_fingerprint_is_that_of_the_payload_unless_it_is_replaced() {
    let delivery = delivery().with_event_type(Some("paid".to_owned()));
    assert_eq!(string::fingerprint(&delivery), Fingerprint::of(b"{}"));
    assert_eq!(replaced::fingerprint(&delivery), Fingerprint::of(b"paid"));
    assert_eq!((string::RECIPE, replaced::RECIPE, switched_off::RECIPE), ("", "by_type", "off"));
    assert_eq!(switched_off::fingerprint(&delivery), Fingerprint::none());
}

fn header_key<H: Handler<Message = OrderPaid>>(value: &str) -> Result<Key, KeyError> {
    let headers = [("ce-id", value.to_owned()), ("tenant", "acme".to_owned())].into_iter().collect();
    H::key(&order_paid(), &Delivery::new("orders", "{}").with_headers(headers))
}

#[test]
fn an_absent_value_of_a_header_is_no_key_and_no_part_of_one() {
    // A broker's adapter shows a header that is no text as JSON.
    for value in ["null", "true", "false", "{}", "[]", r#"{"id":7}"#, "nil"] {
        let why = header_key::<header_value>(value).map_err(|error| error.to_string());
        assert!(why.as_ref().is_err_and(|why| why.contains("absent")), "{value:?}: {why:?}");
        assert!(header_key::<composite_of_headers>(value).is_err(), "{value:?}");
    }
    for value in ["0", " ", "\u{a0}", "NULL", "undefined", "None", "00000000-0000-0000-0000-000000000000"] {
        assert!(header_key::<header_value>(value).is_err(), "{value:?}");
    }
    for value in ["7", "nullable", "{7}", "a b", "00000000-0000-0000-0000-000000000001"] {
        assert_eq!(header_key::<header_value>(value), Key::of(value), "{value:?}");
    }
}

#[idempotent(key = (message_id, "position"), zero_key)]
async fn zero_parts(_: OrderPaid, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = event_id, zero_key)]
async fn zero(_: OrderPaid, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = header("ce-id"), zero_key)]
async fn zero_header(_: OrderPaid, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[test]
fn a_part_may_be_zero_unless_all_are_and_zero_key_allows_both() {
    let zero_id = || Order { id: 0, ..order_paid().order };
    assert!(composite_of_integers::key(&OrderPaid { position: 0, ..order_paid() }, &delivery()).is_ok());
    assert!(composite_of_integers::key(&OrderPaid { order: zero_id(), ..order_paid() }, &delivery()).is_ok());
    let nothing = OrderPaid { event_id: Uuid::nil(), position: 0, order: zero_id(), ..order_paid() };
    assert!(composite_of_integers::key(&nothing, &delivery()).is_err());
    assert_eq!(zero::key(&nothing, &delivery()), Key::of(&Uuid::nil()));
    assert_eq!(header_key::<zero_header>("0"), Key::of("0"));
    assert!(header_key::<zero_header>("null").is_err());
    let blank = Delivery::new("orders", "{}").with_message_id(Some(" ".to_owned()));
    assert_eq!(zero_parts::key(&nothing, &blank), Key::composite(&[&" ", &0_u8]));
}

#[test]
fn the_default_of_a_decoder_is_no_key() {
    let nothing = || OrderPaid { event_id: Uuid::nil(), message_id: " ".to_owned(), position: 0, ..order_paid() };
    let keys = [
        string::key(&nothing(), &delivery()),
        field_message_id::key(&nothing(), &delivery()),
        field_position::key(&nothing(), &delivery()),
        composite_of_facts::key(&nothing(), &delivery()),
    ];
    for key in keys {
        assert!(key.as_ref().is_err_and(|error| error.to_string().contains("zero_key")), "{key:?}");
    }
}
