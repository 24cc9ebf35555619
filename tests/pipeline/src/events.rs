//! Deliveries that are CloudEvents, and invalid ones that claim to be.

use std::marker::PhantomData;

use idem_core::store::Replayed;
use idem_core::{BoxError, CloudEvent, Delivery, Handler, Key, KeyError, Reason, State, permanent};
use serde_json::json;

use idem_conformance::store::World;
use idem_test::Publication;

use super::desk::Desk;
use super::line::{Line, sorted};
use super::orders::Order;
use super::running::Running;
use super::settings::Settings;

/// Takes events of the type `order.paid`, or with `SENT` those of `order.sent`, keyed by their CloudEvent identity.
struct Events<W, const SENT: bool>(PhantomData<fn() -> W>);

impl<W: World, const SENT: bool> Handler for Events<W, SENT> {
    const NAME: &'static str = if SENT { "sent" } else { "paid" };
    const EVENT: Option<&'static str> = if SENT { Some("order.sent") } else { Some("order.paid") };
    const TOMBSTONES: bool = true;
    const NEEDS_CLOUD_EVENT: bool = true;

    type Message = Option<Order>;
    type Input = Option<Order>;
    type Params = (State<Desk>, CloudEvent, Delivery);
    type Connection = W::Connection;

    fn key(_: &Option<Order>, delivery: &Delivery) -> Result<Key, KeyError> {
        let missing = || KeyError::Missing { what: "event".to_owned() };
        delivery.cloud_event().ok_or_else(missing)?.key()
    }

    async fn handle(
        order: Option<Order>,
        (State(desk), event, delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let order = order.map_or("nothing".to_owned(), |order| order.id);
        let name = format!("{} {order} of {} {}", Self::NAME, event.source(), event.id());
        desk.write::<W>(&[&name], tx).await?;
        match (event.attribute("does"), delivery.attempt()) {
            (Some("fail"), 1) => Err("once".into()),
            (Some("die"), _) if !*desk.go.borrow() => Err(permanent("not yet")),
            _ => Ok(()),
        }
    }
}

fn start<W: World>(line: &Line<W>) -> Running {
    let worker = line.worker().handler::<Events<W, false>>().handler::<Events<W, true>>().cloud_events();
    line.run_until_stopped(worker, Settings::default())
}

/// Runs until there are `new` more outcomes, and returns those, sorted.
async fn run<W: World>(line: &Line<W>, new: usize) -> Vec<String> {
    let known = line.outcomes(0).await.len();
    let worker = start(line);
    line.outcomes(known + new).await;
    worker.stop_once_idle(&line.queue).await;
    sorted(line.outcomes(known + new).await.split_off(known))
}

/// An event whose attributes are headers.
fn binary(prefix: &str, id: &str, kind: &str) -> Publication {
    Publication::from(Order::ok("a"))
        .header(format!("{prefix}specversion"), "1.0")
        .header(format!("{prefix}id"), id.to_owned())
        .header(format!("{prefix}source"), "/shop")
        .header(format!("{prefix}type"), kind.to_owned())
        .event_type("of the broker")
}

/// An event in JSON; the members of `more` are added.
fn structured(id: &str, kind: &str, more: &serde_json::Value) -> Publication {
    let mut event = json!({"specversion": "1.0", "id": id, "source": "/shop", "type": kind});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Publication::json(&event).unwrap().content_type("application/cloudevents+json; charset=utf-8")
}

/// Source and id identify it in either encoding, and its type selects the handler.
pub async fn a_cloud_event_is_one_message_whichever_way_it_comes<W: World>(world: W) {
    let line = Line::new(world).await;
    let data = String::from_utf8(Publication::from(Order::ok("a")).payload().to_vec()).unwrap();
    let text = json!({"data": data, "datacontenttype": "text/plain"});
    for message in [binary("ce_", "1", "order.paid"), structured("2", "order.sent", &text)] {
        line.publish_raw(message);
    }
    assert_eq!(run(&line, 2).await, ["processed", "processed"]);
    for prefix in ["ce-", "ce_", "cloudEvents:", "cloudEvents_"] {
        line.publish_raw(binary(prefix, "1", "order.paid"));
        line.publish_raw(binary(prefix, "2", "order.sent"));
    }
    line.publish_raw(structured("1", "order.paid", &text));
    assert_eq!(run(&line, 9).await, ["duplicate"; 9]);
    // The same id from another source is another event.
    let elsewhere = json!({"source": "/bank", "data": data, "datacontenttype": "text/plain"});
    line.publish_raw(structured("1", "order.paid", &elsewhere));
    assert_eq!(run(&line, 1).await, ["processed"]);
    for name in ["paid a of /shop 1", "sent a of /shop 2", "paid a of /bank 1"] {
        assert_eq!(line.effects(name).await, 1, "{name}");
    }
}

/// Its row stores it unchanged, and it runs from there with its data, also when it is replayed.
pub async fn a_cloud_event_runs_from_the_inbox_with_its_data<W: World>(world: W) {
    let line = Line::new(world).await;
    let of = |does: &str| json!({"data": serde_json::to_value(Order::ok("b")).unwrap(), "does": does});
    line.publish_raw(structured("1", "order.paid", &of("fail")));
    line.publish_raw(binary("ce_", "2", "order.paid").header("ce_does", "fail"));
    line.publish_raw(structured("3", "order.sent", &json!({"does": "fail"})));
    let outcomes = run(&line, 6).await;
    assert_eq!(outcomes, ["processed", "processed", "processed", "scheduled 1", "scheduled 1", "scheduled 1"]);
    for name in ["paid b of /shop 1", "paid a of /shop 2", "sent nothing of /shop 3"] {
        assert_eq!(line.effects(name).await, 1, "{name}");
    }
    let dies = structured("4", "order.paid", &of("die"));
    line.publish_raw(dies.clone());
    assert_eq!(run(&line, 1).await, ["dead: permanent"]);
    let dead = line.one_dead().await;
    assert_eq!(dead.delivery.payload(), dies.payload(), "it is kept as it came");
    line.desk.go.send_replace(true);
    assert_eq!(line.operator().replay(dead.id).await.unwrap(), Replayed::Due);
    assert_eq!(run(&line, 1).await, ["processed"]);
    assert_eq!(line.effects("paid b of /shop 4").await, 1);
}

/// It is never lost, never misread, and affects no other message.
pub async fn an_invalid_cloud_event_is_dead_and_says_why<W: World>(world: W) {
    let line = Line::new(world).await;
    let no_source = Publication::new("{}").header("ce_specversion", "1.0").header("ce_id", "1").header("ce_type", "x");
    let of = |media: &str, payload: &'static str| Publication::new(payload).content_type(media.to_owned());
    let odd = [
        (no_source, "it has no `source`"),
        (binary("ce-", "1", "order.paid").header("ce-id", "2"), "it has two `id`"),
        (binary("ce-", "1", "order.paid").header("ce-subject", vec![0xff]), "its `subject` is not UTF-8"),
        (of("application/cloudevents+json", "{\"id\":"), "its payload is no JSON object"),
        (of("application/cloudevents+avro", "x"), "`application/cloudevents+avro`"),
        (of("application/cloudevents-batch+json", "[]"), "it is a batch of events"),
        (structured("1", "order.paid", &json!({"data": 1, "data_base64": "MQ=="})), "both `data` and `data_base64`"),
    ];
    for (number, (message, why)) in odd.into_iter().enumerate() {
        line.publish_raw(message.clone());
        assert_eq!(run(&line, 1).await, ["dead: undecodable"], "{why}");
        line.publish_raw(message.clone());
        assert_eq!(run(&line, 1).await, ["dead: undecodable"], "{why}");
        let dead = line.dead().await;
        assert_eq!((dead.len(), dead[0].deliveries, dead[0].reason), (number + 1, 2, Some(Reason::Undecodable)));
        assert!(dead[0].error.starts_with("the delivery claims to be a CloudEvent"), "{}", dead[0].error);
        assert!(dead[0].error.contains(why), "{why} is not in {}", dead[0].error);
        assert_eq!(
            (dead[0].delivery.payload(), dead[0].delivery.headers()),
            (message.payload(), message.get_headers())
        );
    }
    line.publish_raw(binary("ce_", "1", "order.paid"));
    // A message that does not claim to be a CloudEvent is routed as usual; no handler takes it here.
    line.publish_raw(Publication::from(Order::ok("a")).event_type("order.refunded"));
    // It has no identity.
    line.publish_raw(Publication::from(Order::ok("a")).event_type("order.paid"));
    assert_eq!(run(&line, 3).await, ["dead: no key", "dead: unknown type", "processed"]);
}

/// All of its messages would be dead letters. A worker that reads no CloudEvents takes an event as any other message.
pub async fn a_key_by_cloud_event_refuses_a_worker_that_reads_none<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.worker().handler::<Events<W, true>>();
    let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
    assert!(refused.contains("\"sent\"") && refused.contains(".cloud_events()"), "{refused}");

    let order = Publication::from(Order::ok("plain")).event_type("Order").header("ce_id", "1");
    line.publish_raw(order.content_type("application/cloudevents+json"));
    assert_eq!(line.run(1).await, ["processed"]);
    assert_eq!(line.effects("plain").await, 1);
}
