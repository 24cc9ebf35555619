//! Deliveries that are CloudEvents, and those that only say so.

use super::*;
use crate::Key;

fn with_headers(headers: &[(&str, &str)]) -> Delivery {
    let headers: Headers = headers.iter().map(|(name, value)| (*name, value.to_string())).collect();
    Delivery::new("orders", "payload").with_headers(headers)
}

fn binary(prefix: &str, attributes: &[(&str, &str)]) -> Delivery {
    let headers: Vec<_> = attributes.iter().map(|(name, value)| (format!("{prefix}{name}"), *value)).collect();
    with_headers(&headers.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>())
}

const WHOLE: [(&str, &str); 5] = [
    ("specversion", "1.0"),
    ("id", "7"),
    ("source", "/shop"),
    ("type", "order.paid"),
    ("time", "2026-11-22T10:00:00Z"),
];

fn structured(content_type: &str, payload: &str) -> Delivery {
    Delivery::new("orders", payload.to_owned()).with_content_type(Some(content_type.to_owned()))
}

/// An event in JSON with these members beside those that it must have.
fn json(members: &str) -> Delivery {
    let event = format!(r#"{{"specversion":"1.0","id":"7","source":"/shop","type":"order.paid"{members}}}"#);
    structured("application/cloudevents+json; charset=utf-8", &event)
}

fn event(delivery: &Delivery) -> CloudEvent {
    read(delivery).expect("it is an event").expect("it is a whole one")
}

fn data(delivery: &Delivery) -> Option<String> {
    let event = event(delivery);
    event.data(delivery.payload()).map(|data| String::from_utf8(data.to_vec()).expect("text"))
}

fn why(delivery: &Delivery) -> String {
    read(delivery).expect("it says that it is an event").expect_err("it is none").to_string()
}

#[test]
fn the_headers_of_each_binding_are_known_in_any_case() {
    for prefix in ["ce-", "ce_", "cloudEvents:", "cloudEvents_", "Ce-", "CE_", "cloudevents:"] {
        let delivery = binary(prefix, &WHOLE);
        let event = event(&delivery);
        assert_eq!((event.id(), event.source(), event.event_type()), ("7", "/shop", "order.paid"), "{prefix}");
        assert_eq!((event.attribute("time"), event.attribute("type")), (Some("2026-11-22T10:00:00Z"), None));
        assert_eq!(event.data(delivery.payload()), Some(delivery.payload()));
    }
}

#[test]
fn a_delivery_that_does_not_claim_to_be_an_event_is_none() {
    for delivery in [
        Delivery::new("orders", "{}"),
        with_headers(&[("ce-time", "now"), ("id", "7"), ("source", "x"), ("ce-", "x"), ("c", "x")]),
        structured("application/json", r#"{"specversion":"1.0"}"#),
    ] {
        assert!(read(&delivery).is_none(), "{delivery:?}");
    }
}

#[test]
fn an_error_names_the_missing_attribute() {
    for missing in REQUIRED {
        let some: Vec<_> = WHOLE.into_iter().filter(|(name, _)| *name != missing).collect();
        assert!(why(&binary("ce_", &some)).ends_with(&format!("it has no `{missing}`")));
        let empty = WHOLE.map(|(name, value)| (name, if name == missing { "" } else { value }));
        assert!(why(&binary("ce_", &empty)).ends_with(&format!("its `{missing}` is empty")));
    }
    let old = WHOLE.map(|(name, value)| (name, if name == "specversion" { "0.3" } else { value }));
    assert!(why(&binary("ce-", &old)).contains("\"0.3\""));
}

#[test]
fn a_name_that_is_there_twice_must_say_the_same() {
    let with = |name, value| {
        let mut headers = binary("ce-", &WHOLE).headers().clone();
        headers.push(name, value);
        Delivery::new("orders", "").with_headers(headers)
    };
    assert_eq!(event(&with("ce_id", "7")).id(), "7");
    assert!(why(&with("ce_id", "8")).ends_with("it has two `id`"));
}

#[test]
fn only_the_headers_of_nats_and_http_are_percent_encoded() {
    let of =
        |prefix, id| event(&binary(prefix, &WHOLE.map(|(n, v)| (n, if n == "id" { id } else { v })))).id().to_owned();
    assert_eq!(of("ce-", "%E2%82%AC%2025%"), "\u{20ac} 25%");
    assert_eq!((of("ce-", "%zz%4"), of("ce-", "a%2bb")), ("%zz%4".to_owned(), "a+b".to_owned()));
    assert_eq!(of("ce_", "%41"), "%41");
    let odd = WHOLE.map(|(name, value)| (name, if name == "source" { "%FF" } else { value }));
    assert!(why(&binary("ce-", &odd)).ends_with("its `source` is not UTF-8"));
}

#[test]
fn data_in_json_is_as_it_was_written() {
    for (members, expected) in [
        (r#","data":{"n": 12345678901234567890.10}"#, Some(r#"{"n": 12345678901234567890.10}"#)),
        (r#","data":"text","datacontenttype":"application/json""#, Some(r#""text""#)),
        (r#","data":"<a b=\"c\"/>","datacontenttype":"application/xml""#, Some(r#"<a b="c"/>"#)),
        (r#","data":{"n":1},"datacontenttype":"application/vnd.shop+JSON; v=1""#, Some(r#"{"n":1}"#)),
        (r#","data":{"n":1},"datacontenttype":"application/xml""#, Some(r#"{"n":1}"#)),
        (r#","data":null"#, Some("null")),
        (r#","data":1,"data":2"#, Some("2")),
        (r#","data_base64":"aGVsbG8=""#, Some("hello")),
        (r#","data_base64":"","data":5"#, None),
        (r#","data":5,"data_base64":null"#, Some("5")),
        (r#","subject":null"#, None),
    ] {
        let delivery = json(members);
        match read(&delivery) {
            Some(Ok(_)) => assert_eq!(data(&delivery).as_deref(), expected, "{members}"),
            _ => assert!(why(&delivery).ends_with("it has both `data` and `data_base64`"), "{members}"),
        }
    }
}

#[test]
fn attributes_in_json_are_text() {
    let members = r#","subject":"a\"b","time":null,"sequence":12345678901234567890,"test":true,"odd":{"a": 1}"#;
    let event = event(&json(members));
    assert_eq!((event.id(), event.source(), event.event_type()), ("7", "/shop", "order.paid"));
    let expected =
        [("odd", r#"{"a": 1}"#), ("sequence", "12345678901234567890"), ("subject", "a\"b"), ("test", "true")];
    assert_eq!(expected.map(|(name, _)| event.attribute(name)), expected.map(|(_, value)| Some(value)));
    assert_eq!((event.attribute("id"), event.attribute("time")), (None, None));
}

/// In whichever way its name is written. The key is one key, since each delivery has the same last one.
#[test]
fn of_two_members_with_one_name_the_last_counts() {
    let event = event(&json(r#","subject":"a","\u0069d":"8","subject":"b""#));
    assert_eq!((event.id(), event.attribute("subject")), ("8", Some("b")));
    assert!(why(&json(r#","id":null"#)).contains("it has no `id`"));
}

#[test]
fn an_error_says_why_json_is_not_an_event() {
    let deep = format!(r#","data":{}{}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(read(&json(&deep)).is_some_and(|event| event.is_ok()), "what it holds is for the codec to judge");
    for (delivery, expected) in [
        (structured("application/cloudevents+json", ""), "no JSON object"),
        (structured("application/cloudevents+json", "[]"), "no JSON object"),
        (structured("Application/CloudEvents", "{}"), "it has no `specversion`"),
        (structured("application/cloudevents+json", "{\"id\":"), "no JSON object"),
        (structured("application/cloudevents-batch+json", "[]"), "it is a batch"),
        (structured("application/cloudevents+avro", "x"), "`application/cloudevents+avro`"),
        (json(r#","data_base64":"?""#), "not Base64"),
        (json(r#","data_base64":"aGVsbG8""#), "not Base64"),
        (json(r#","data_base64":5"#), "`data_base64` is no string"),
        (structured("application/cloudevents+json", r#"{"specversion":"1.0","id":7}"#), "its `id` is no string"),
    ] {
        assert!(why(&delivery).contains(expected), "{expected:?} is not in {:?}", why(&delivery));
    }
}

#[test]
fn source_and_id_together_are_the_key() {
    let key = |source: &str, id: &str| {
        let of = |name| if name == "id" { id } else { source };
        let attributes =
            WHOLE.map(|(name, value)| (name, if name == "id" || name == "source" { of(name) } else { value }));
        event(&binary("ce_", &attributes)).key().expect("a key")
    };
    assert_eq!(key("/shop", "7"), Key::composite(&[&"/shop", &"7"]).expect("a key"));
    assert_ne!(key("/shop", "17"), key("/shop1", "7"));
    assert_eq!(key("/shop", "7"), event(&json("")).key().expect("a key"), "in either mode");
    let long = "x".repeat(300);
    let (one, other) = (key(&long, "7"), key(&long, "8"));
    assert_eq!((one.as_bytes().len(), one == other, one == key(&long, "7")), (33, false, true));
    assert_ne!(key(&format!("{long}y"), "7"), key(&long, "y7"));
}
