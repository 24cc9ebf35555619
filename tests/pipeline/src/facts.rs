//! The properties of a message: the same directly, from the inbox, for an operator, and on replay.

use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use idem_core::store::Replayed;
use idem_core::{BoxError, Delivery, Handler, Headers, Key, KeyError, State, permanent};

use idem_conformance::store::World;
use idem_test::Publication;

use super::desk::Desk;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// A handler that logs the properties of each delivery. Until `go` it fails at its first attempt, and gives up at its
/// second.
struct Witness<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Witness<W> {
    const NAME: &'static str = "witness";
    const TOMBSTONES: bool = true;

    type Message = Option<Order>;
    type Input = Option<Order>;
    type Params = (State<Desk>, Delivery);
    type Connection = W::Connection;

    fn key(_: &Option<Order>, delivery: &Delivery) -> Result<Key, KeyError> {
        Key::of(delivery.message_id().unwrap_or_default())
    }

    async fn handle(
        _: Option<Order>,
        (State(desk), delivery): Self::Params,
        _: &mut W::Connection,
    ) -> Result<(), BoxError> {
        desk.run(&all(&delivery));
        match delivery.attempt() {
            _ if *desk.go.borrow() => Ok(()),
            1 => Err("once".into()),
            _ => Err(permanent("twice")),
        }
    }
}

/// All properties of a delivery.
fn all(delivery: &Delivery) -> String {
    let headers: Vec<_> = delivery.headers().iter().collect();
    let properties: Vec<_> = delivery.properties().iter().collect();
    let texts = [
        Some(delivery.source()),
        delivery.message_id(),
        delivery.event_type(),
        delivery.subject(),
        delivery.content_type(),
        delivery.correlation_id(),
        delivery.reply_to(),
        delivery.position(),
    ];
    let times = (delivery.published_at(), delivery.produced_at());
    let (payload, key) = (delivery.payload(), delivery.partition_key());
    format!("{payload:?} {key:?} {texts:?} {times:?} {} {properties:?} {headers:?}", delivery.is_tombstone())
}

fn full(id: &str) -> Publication {
    let at = |nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    let mut headers = Headers::new();
    headers.push("trace", "00-ab");
    headers.push("bytes", vec![0xff, 0x00]);
    Publication::from(Order::ok("a"))
        .headers(headers)
        .message_id(id)
        .event_type("paid")
        .subject("orders.42.paid")
        .content_type("application/json; charset=utf-8")
        .correlation_id("c\0\u{e9}")
        .reply_to("answers")
        .partition_key(vec![0xfe, b'k'])
        .published_at(SystemTime::now())
        .produced_at(at(1_600_000_000_123_456_789))
        .property("exchange", "shop")
        .property("priority", "9")
}

/// A handler sees the same properties directly, from the inbox and on replay; so does an operator.
pub async fn the_facts_of_a_message_are_the_same_wherever_it_runs<W: World>(world: W) {
    let line = Line::new(world).await;
    let tombstone = Publication::tombstone().message_id("b").partition_key("the key that was deleted");
    for message in [full("a"), tombstone] {
        let (before, seen) = (line.outcomes(0).await.len(), line.desk.log().len());
        line.desk.go.send_replace(false);
        line.publish_raw(message);
        run(&line, before + 2).await;
        assert_eq!(line.outcomes(0).await[before..], ["scheduled 1", "dead: permanent"]);
        let dead = line.one_dead().await;
        let known = all(&dead.delivery);
        line.desk.go.send_replace(true);
        assert_eq!(line.operator().replay(dead.id).await.unwrap(), Replayed::Due);
        run(&line, before + 3).await;
        assert_eq!(line.outcomes(0).await[before + 2], "processed");

        let log = line.desk.log().split_off(seen);
        assert!(log.len() >= 3, "{log:?}");
        assert!(log.iter().all(|seen| *seen == known), "{log:#?} and in the row {known}");
        if dead.delivery.is_tombstone() {
            assert_eq!(dead.delivery.partition_key(), Some(&b"the key that was deleted"[..]));
            continue;
        }
        let facts = ["orders.42.paid", "charset=utf-8", "answers", "[254, 107]", "123456", "exchange", "shop", "trace"];
        for fact in facts {
            assert!(known.contains(fact), "{fact} is not in {known}");
        }
    }
}

async fn run<W: World>(line: &Line<W>, outcomes: usize) {
    let worker = line.run_until_stopped(line.worker().handler::<Witness<W>>(), Settings::default());
    line.outcomes(outcomes).await;
    worker.stop_once_idle(&line.queue).await;
}
