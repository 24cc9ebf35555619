//! Deliveries for which no handler can be called: dead at once, and kept in full.

use idem_core::{Headers, Reason};

use idem_conformance::store::World;
use idem_test::Publication;

use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// Publishes it twice. It becomes one dead letter with this reason and two deliveries, kept unchanged.
async fn dead_and_whole<W: World>(line: &Line<W>, publication: Publication, settings: Settings, reason: Reason) {
    let (before, known) = (line.dead().await.len(), line.outcomes(0).await.len());
    let mut headers = Headers::new();
    headers.push("trace", "00-ab\0\u{7f}");
    headers.push("bytes", vec![0xff, 0x00]);
    let publication = publication.headers(headers.clone()).message_id("id-7");
    for copy in [1, 2] {
        line.publish_raw(publication.clone());
        let outcomes = line.run_with(settings.clone(), known + copy).await;
        assert_eq!(outcomes[known + copy - 1], format!("dead: {reason}"));
    }
    let rows = line.dead().await;
    assert_eq!(rows.len(), before + 1);
    let row = &rows[0];
    assert_eq!((row.reason, row.deliveries, row.attempts), (Some(reason), 2, 0));
    assert_eq!(row.delivery.payload(), publication.payload());
    assert_eq!(*row.delivery.headers(), headers);
    assert_eq!((row.delivery.message_id(), row.delivery.event_type()), (Some("id-7"), publication.get_event_type()));
    assert_eq!(row.delivery.source(), "orders");
    assert!(!row.error.is_empty(), "it says why");
}

/// Invalid JSON, other JSON, nothing, a missing field, bytes that are not text.
pub async fn an_undecodable_payload_is_dead_and_kept_whole<W: World>(world: W) {
    let line = Line::new(world).await;
    let payloads = [&b"no JSON"[..], b"[1, 2]", b"", br#"{"acts": []}"#, &[0xff, 0xfe, 0x00]];
    for payload in payloads {
        let publication = Publication::new(payload.to_vec()).event_type("Order");
        dead_and_whole(&line, publication, Settings::default(), Reason::Undecodable).await;
    }
    assert_eq!(line.reports(), ["orders no key: dead: undecodable"; 10]);
}

/// They have no key; their other properties distinguish them. Redeliveries create no further row.
pub async fn messages_without_a_key_are_distinguished_by_all_that_makes_them<W: World>(world: W) {
    let line = Line::new(world).await;
    let unknown = ["Invoice", "Receipt", "Reminder"].map(|event| Publication::new("{}").event_type(event));
    let tombstones = ["k1", "k2", "k3"].map(|key| Publication::tombstone().event_type("Order").partition_key(key));
    let all: Vec<Publication> = unknown.into_iter().chain(tombstones).collect();
    all.iter().for_each(|publication| line.publish_raw(publication.clone()));
    line.run(6).await;
    let dead = line.dead().await;
    assert_eq!(dead.iter().map(|row| row.deliveries).collect::<Vec<_>>(), [1; 6], "{dead:?}");
    let mut facts: Vec<_> = dead.iter().map(|row| (row.delivery.event_type(), row.delivery.partition_key())).collect();
    facts.sort();
    facts.dedup();
    assert_eq!(facts.len(), 6, "each is kept with what tells it from the others");

    line.publish_raw_redelivered(all[0].clone()).await;
    line.publish_raw_redelivered(all[3].clone()).await;
    line.run(8).await;
    let mut deliveries: Vec<_> = line.dead().await.iter().map(|row| row.deliveries).collect();
    deliveries.sort_unstable();
    assert_eq!(deliveries, [1, 1, 1, 1, 2, 2]);
}

/// If the subject identifies the message, an unroutable message is not a copy of an earlier one with another subject.
pub async fn messages_without_a_key_are_distinguished_by_their_subject_and_properties<W: World>(world: W) {
    let line = Line::new(world).await;
    let unknown = || Publication::new("{}").event_type("Invoice");
    let all = [
        unknown().subject("orders.1.cancelled"),
        unknown().subject("orders.2.cancelled"),
        unknown().correlation_id("1"),
        unknown().reply_to("1"),
        unknown().content_type("1"),
        unknown().property("exchange", "shop"),
        unknown().property("exchange", "bank"),
    ];
    for copy in 1..=2 {
        all.iter().for_each(|publication| line.publish_raw(publication.clone()));
        line.run(all.len() * copy).await;
    }
    let deliveries: Vec<_> = line.dead().await.iter().map(|row| row.deliveries).collect();
    assert_eq!(deliveries, [2; 7], "each is kept, and its copy is no further row");
}

/// It never runs, whatever else of it is readable; other messages do.
pub async fn an_unrepresentable_message_is_dead_and_kept<W: World>(world: W) {
    let line = Line::new(world).await;
    let publication = Publication::from(Order::ok("odd")).event_type("Order");
    let undeliverable = publication.clone().unrepresentable("the header 0 has the name fe6f, which is not UTF-8");
    dead_and_whole(&line, undeliverable, Settings::default(), Reason::Unrepresentable).await;
    assert_eq!(line.dead().await[0].error, "the header 0 has the name fe6f, which is not UTF-8");
    line.publish(publication.clone());
    line.publish(publication.unrepresentable("the header 0 has the name fe6e, which is not UTF-8"));
    line.run(4).await;
    assert_eq!(
        (line.dead().await.len(), line.desk.runs("odd")),
        (2, 1),
        "another one of the same payload is kept, too"
    );
}

/// The key is empty.
pub async fn a_message_without_a_key_is_dead_and_kept_whole<W: World>(world: W) {
    let line = Line::new(world).await;
    let publication = Publication::from(Order::ok("")).event_type("Order");
    dead_and_whole(&line, publication, Settings::default(), Reason::NoKey).await;
    assert_eq!(line.desk.runs(""), 0);
}

/// Every database can index 255 bytes.
pub async fn a_key_of_256_bytes_is_dead_and_one_of_255_is_not<W: World>(world: W) {
    let line = Line::new(world).await;
    let publication = Publication::from(Order::ok(&"k".repeat(256))).event_type("Order");
    dead_and_whole(&line, publication, Settings::default(), Reason::NoKey).await;
    line.publish(Order::ok(&"k".repeat(255)));
    assert_eq!(line.run(3).await[2], "processed");
    assert_eq!(line.effects(&"k".repeat(255)).await, 1);
}

/// Just over the default limit, and far over it.
pub async fn a_payload_over_the_limit_is_dead_and_kept_whole<W: World>(world: W) {
    let line = Line::new(world).await;
    for size in [1024 * 1024 + 1, 5 * 1024 * 1024] {
        let publication = Publication::new(vec![b' '; size]).event_type("Order");
        dead_and_whole(&line, publication, Settings::default(), Reason::TooLarge).await;
    }
}

/// A payload of exactly the limit is processed.
pub async fn a_payload_at_the_limit_is_processed<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut payload = Publication::from(Order::ok("a")).payload().to_vec();
    payload.resize(1024 * 1024, b' ');
    line.publish(Publication::new(payload));
    assert_eq!(line.run(1).await, ["processed"]);
    assert_eq!(line.effects("a").await, 1);
}

/// 10,000 brackets do not crash the process.
pub async fn nesting_without_end_is_undecodable<W: World>(world: W) {
    let line = Line::new(world).await;
    let deep = format!(r#"{{"id": "a", "acts": {}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    dead_and_whole(&line, Publication::new(deep).event_type("Order"), Settings::default(), Reason::Undecodable).await;
}

/// Nothing in headers, ids or keys can prevent a message from being stored or from running from the inbox.
pub async fn odd_headers_and_ids_never_block<W: World>(world: W) {
    let line = Line::new(world).await;
    let odd = Publication::from(Order::ok("k\0\u{7f}\u{1f4e6}\"\\"))
        .header("nul\0", vec![0x00, 0xff])
        .header("surrogate", vec![0xed, 0xa0, 0x80])
        .message_id("id\0");
    // The suite's handler writes its id into the table, where a database may reject a NUL: that is the handler's
    // failure, and its text is kept as well.
    line.publish_redelivered(odd).await;
    let stored = usize::from(!line.world.inbox());
    let outcomes = line.run(1 + stored).await;
    assert!(line.world.inbox() || outcomes[0] == "scheduled 0", "{outcomes:?}");
    assert!(["processed", "scheduled 1"].contains(&outcomes[stored].as_str()), "{outcomes:?}");
}
