//! Several handlers for one event: each has its own claim, attempts and dead letter.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use idem_core::store::Replayed;
use idem_core::{BoxError, Delivery, DeliveryOrder, Handler, HandlerOptions, Key, KeyError, Reason, State, Worker};
use serde::Deserialize;
use tokio::sync::watch;

use idem_conformance::soon;
use idem_test::Publication;
use idem_test::tapped_store::{Over, TappedStore};

use super::desk::Desk;
use super::faulty::{Do, Faulty};
use super::line::Line;
use super::orders::{Act, Order, Orders};
use super::routes::Routed;
use super::schemas::{Answer, Registry};
use super::settings::Settings;
use idem_conformance::store::World;

/// An order as the second handler sees it.
#[derive(Deserialize)]
struct Mail {
    id: String,
    mail: String,
}

/// Takes the same events as [`Orders`]; it has its own runs and effects, named `mail ID`.
struct Mails<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Mails<W> {
    const NAME: &'static str = "mails";
    const EVENT: Option<&'static str> = Some("Order");

    type Message = Mail;
    type Input = Mail;
    type Params = State<Desk>;
    type Connection = W::Connection;

    fn key(mail: &Mail, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(if mail.mail == "no key" { "" } else { &mail.id })
    }

    async fn handle(mail: Mail, State(desk): State<Desk>, tx: &mut W::Connection) -> Result<(), BoxError> {
        let name = format!("mail {}", mail.id);
        desk.run(&name);
        desk.write::<W>(&[&name], tx).await?;
        if mail.mail == "fails" { Err("the mail has failed".into()) } else { Ok(()) }
    }
}

fn with_mail(order: &Order, mail: &str) -> Publication {
    let mut message = serde_json::to_value(order).unwrap();
    message["mail"] = mail.into();
    Publication::json(&message).unwrap()
}

fn start<W: World>(line: &Line<W>) -> super::running::Running {
    let worker = line.worker().handler::<Orders<W>>().handler::<Mails<W>>().fan_out();
    line.run_until_stopped(worker, Settings::default())
}

/// Waits for these outcomes, besides those of storing a message, and returns them sorted.
async fn outcomes<W: World>(line: &Line<W>, stored: usize, others: usize) -> Vec<String> {
    let expected = if line.world.inbox() { others } else { stored + others };
    let mut outcomes = line.outcomes(expected).await;
    outcomes.retain(|outcome| outcome != "scheduled 0");
    outcomes.sort();
    outcomes
}

async fn effects<W: World>(line: &Line<W>, id: &str) -> (i64, i64) {
    (line.effects(id).await, line.effects(&format!("mail {id}")).await)
}

/// A copy is a duplicate for each of them.
pub async fn each_of_several_handlers_runs_a_message_once<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = start(&line);
    line.publish(with_mail(&Order::ok("a"), "sent"));
    assert_eq!(outcomes(&line, 2, 2).await, ["processed", "processed"]);
    line.publish(with_mail(&Order::ok("a"), "sent"));
    let again = outcomes(&line, 2, 4).await;
    assert_eq!(again, ["duplicate", "duplicate", "processed", "processed"]);
    let reports: Vec<_> = line.reports().into_iter().filter(|report| !report.ends_with("scheduled 0")).collect();
    assert_eq!(reports, ["mails a: duplicate", "mails a: processed", "orders a: duplicate", "orders a: processed"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("mail a"), effects(&line, "a").await), (1, 1, (1, 1)));
}

/// Many messages, each published twice.
pub async fn several_handlers_run_many_messages_and_their_copies_once<W: World>(world: W) {
    let line = Line::new(world).await;
    for n in (0..20).chain(0..20) {
        line.publish(with_mail(&Order::ok(&n.to_string()), "sent"));
    }
    let worker = start(&line);
    let all = outcomes(&line, 40, 80).await;
    assert_eq!(all.iter().filter(|outcome| *outcome == "processed").count(), 40, "{all:?}");
    worker.stop_once_idle(&line.queue).await;
    for n in 0..20 {
        assert_eq!(effects(&line, &n.to_string()).await, (1, 1), "{n}");
    }
}

/// It is retried and dies by itself.
pub async fn the_failure_of_one_handler_repeats_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = start(&line);
    line.publish(with_mail(&Order::ok("a"), "fails"));
    let failed = outcomes(&line, 2, 6).await;
    let expected = ["dead: exhausted", "processed", "scheduled 1", "scheduled 2", "scheduled 3", "scheduled 4"];
    assert_eq!(failed, expected);
    line.publish(with_mail(&Order::ok("a"), "fails"));
    outcomes(&line, 2, 8).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("mail a"), effects(&line, "a").await), (1, 5, (1, 0)));
    let dead = line.one_dead().await;
    assert_eq!((dead.handler.as_str(), dead.reason, dead.attempts), ("mails", Some(Reason::Exhausted), 5));
}

/// The broker delivers it again.
pub async fn a_lost_ack_repeats_no_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lose_acks(1);
    line.publish(with_mail(&Order::ok("a"), "sent"));
    let worker = start(&line);
    outcomes(&line, 2, 2).await;
    line.broker.disconnect();
    assert_eq!(outcomes(&line, 2, 4).await, ["duplicate", "duplicate", "processed", "processed"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("mail a"), effects(&line, "a").await), (1, 1, (1, 1)));
}

/// Either all handlers have it, or none has: it is not acked before that.
pub async fn a_crash_as_it_is_stored_for_several_handlers_loses_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    let (hung, first) = (watch::Sender::new(false), Arc::new(AtomicBool::new(true)));
    let reached = hung.clone();
    let hook = move |method: &'static str, _: &[u8]| match method {
        "insert" if first.swap(false, Relaxed) => {
            reached.send_replace(true);
            Do::Hang
        }
        _ => Do::Work,
    };
    let store = TappedStore::new(line.store.clone(), Faulty::new(hook));
    let worker = Worker::new("billing", store, line.queue.clone()).state(line.desk.clone());
    let worker = worker.handler::<Over<Orders<W>, W::Store, Faulty>>();
    let worker = worker.handler::<Over<Mails<W>, W::Store, Faulty>>().fan_out();
    let worker = line.run_until_stopped(worker, Settings::default());
    line.publish(with_mail(&Order::ok("a"), "sent"));
    soon(hung.subscribe().wait_for(|hung| *hung)).await.unwrap();
    assert_eq!(line.queue.counts().acks, 0);
    worker.crash().await;
    let worker = start(&line);
    line.broker.disconnect();
    assert_eq!(outcomes(&line, 2, 2).await, ["processed", "processed"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("mail a"), effects(&line, "a").await), (1, 1, (1, 1)));
}

/// The others run. A replay of the dead letter is for that handler only.
pub async fn a_message_that_one_handler_cannot_take_is_its_dead_letter_only<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = start(&line);
    line.publish(Order::ok("a"));
    line.publish(with_mail(&Order::ok("b"), "no key"));
    let taken = outcomes(&line, 2, 4).await;
    assert_eq!(taken, ["dead: no key", "dead: undecodable", "processed", "processed"]);
    assert_eq!((effects(&line, "a").await, effects(&line, "b").await), ((1, 0), (1, 0)));
    let dead = line.dead().await;
    let reasons: BTreeSet<_> = dead.iter().map(|row| (row.handler.as_str(), row.reason.unwrap().as_str())).collect();
    assert_eq!(reasons, BTreeSet::from([("mails", "no key"), ("mails", "undecodable")]));
    for row in &dead {
        assert_eq!(line.operator().replay(row.id).await.unwrap(), Replayed::Due);
    }
    outcomes(&line, 2, 6).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("b"), line.dead().await.len()), (1, 1, 2));
}

/// The delivery is held for it, and the others run.
pub async fn the_codec_of_one_handler_that_prepares_delays_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    registry.answers("v2", Answer::Unknown);
    let own = HandlerOptions::new().codec(registry.codec());
    let worker = line.worker().handler::<Orders<W>>().handler_options::<Mails<W>>(own).fan_out();
    let worker = line.run_until_stopped(worker, Settings::default());
    let of_schema = |id: &str, schema: &'static str| with_mail(&Order::ok(id), "sent").header("schema", schema);
    line.publish(of_schema("a", "v1"));
    assert_eq!(line.outcomes(1).await, ["processed"]);
    registry.asked(3).await;
    assert_eq!((effects(&line, "a").await, line.queue.counts().unsettled), ((1, 0), 1));
    registry.answers("v1", Answer::Known);
    assert_eq!(outcomes(&line, 2, 2).await, ["processed", "processed"]);
    line.publish(of_schema("a", "v1"));
    line.publish(of_schema("b", "v2"));
    let all = outcomes(&line, 3, 6).await;
    assert_eq!(all, ["dead: undecodable", "duplicate", "duplicate", "processed", "processed", "processed"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("mail a"), effects(&line, "a").await), (1, 1, (1, 1)));
    let dead = line.one_dead().await;
    assert_eq!((dead.handler.as_str(), dead.deliveries, effects(&line, "b").await), ("mails", 1, (1, 0)));
}

/// No handler took it when it came.
pub async fn a_replay_of_an_unknown_type_reaches_several_handlers<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker_without = line.worker().handler::<Orders<W, true>>();
    let worker_without = line.run_until_stopped(worker_without, Settings::default());
    line.publish(with_mail(&Order::ok("a"), "sent"));
    assert_eq!(line.outcomes(1).await, ["dead: unknown type"]);
    worker_without.stop_once_idle(&line.queue).await;
    line.operator().replay(line.one_dead().await.id).await.unwrap();
    let worker = start(&line);
    outcomes(&line, 2, 3).await;
    worker.stop().await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("mail a"), effects(&line, "a").await), (1, 1, (1, 1)));
    assert!(line.dead().await.is_empty() && line.scheduled().await.is_empty());
}

/// A subject of one pattern runs as ever.
pub async fn a_subject_of_two_patterns_reaches_both_handlers<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.worker().handler::<Routed<W, 0>>().handler::<Routed<W, 4>>().route_by_subject().fan_out();
    let worker = line.run_until_stopped(worker, Settings::default());
    for (id, subject) in [("a", "orders.42.paid"), ("b", "orders.1.paid"), ("c", "orders.42.sent")] {
        line.publish_raw(Publication::from(Order::new(id, &[Act::Ok])).subject(subject));
    }
    assert_eq!(outcomes(&line, 2, 4).await, ["processed"; 4]);
    worker.stop_once_idle(&line.queue).await;
    for (name, times) in [("paid a", 1), ("one a", 1), ("paid b", 1), ("one b", 0), ("paid c", 0), ("one c", 1)] {
        assert_eq!(line.effects(name).await, times, "{name}");
    }
}

/// By accident it would change how messages are taken; with an order, a message could pass an earlier one.
pub async fn several_handlers_for_one_event_must_be_asked_for<W: World>(world: W) {
    let line = Line::new(world).await;
    let both = || line.worker().handler::<Orders<W>>().handler::<Mails<W>>();
    let now = || std::future::ready(());
    let refused = both().run_until(now()).await.unwrap_err().to_string();
    for part in ["\"orders\"", "\"mails\"", "\"Order\"", "`.fan_out()`"] {
        assert!(refused.contains(part), "{part:?} is not in {refused}");
    }
    let refused = both().fan_out().order(DeliveryOrder::Key).run_until(now()).await.unwrap_err().to_string();
    assert!(refused.contains("`.fan_out()`") && refused.contains("`.order(..)`"), "{refused}");
    let twice = line.worker().handler::<Orders<W>>().handler::<Orders<W>>().fan_out();
    let refused = twice.run_until(now()).await.unwrap_err().to_string();
    assert!(refused.contains("two handlers have the name"), "{refused}");
}
