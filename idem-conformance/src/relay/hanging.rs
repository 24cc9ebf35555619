//! Destinations that give no answer, while others do.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use idem_core::{Outgoing, Relay, Sink, SinkError, StagedMessage};

use crate::soon;
use crate::store::World;
use idem_test::tap::SinkTap;
use idem_test::{MemorySink, Reply, TappedSink};

use super::line::{Line, message, text, texts};

fn to(destination: &str, text: impl ToString) -> Outgoing {
    Outgoing::new(destination, text.to_string())
}

/// Waits until so many messages are published that are not for a destination that hangs.
async fn good<W: World>(line: &Line<W>, number: usize) {
    let enough = |sink: &MemorySink| {
        let published = sink.published();
        published.iter().filter(|message| text(message).starts_with("good")).count() >= number
    };
    soon(line.sink.wait_for(enough)).await;
}

/// Stages some messages, one after another, and waits for each. Meanwhile few calls begin, so none of them has waited for
/// those of a destination that hangs.
async fn pass_at_once<W: World>(line: &Line<W>, before: usize) {
    for n in 1..=3 {
        let calls = line.sink.calls();
        soon(line.sink.wait_for(|sink| sink.calls() > calls)).await;
        let calls = line.sink.calls();
        line.stage([message("good at once")]).await;
        good(line, before + n).await;
        assert!(line.sink.calls() < calls + 16, "{n}: {} and {calls}", line.sink.calls());
    }
}

/// The messages of each key that are published, as far as their texts are numbers.
fn by_key(sink: &MemorySink, keys: usize) -> BTreeMap<usize, Vec<usize>> {
    let mut of_key: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for n in sink.published().iter().filter_map(|message| text(message).parse().ok()) {
        of_key.entry(n % keys).or_default().push(n);
    }
    of_key
}

/// Nearly all messages are for a destination that hangs, and come first; many are behind others of their key. Its first
/// attempts take all slots once. Then others wait no more, except those that are behind one of its messages by their key.
/// When it answers again, all are published, each key in its order.
pub async fn a_destination_that_hangs_stops_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    line.sink.on_publish(move |message| match message.to() == "down" && is_down.load(SeqCst) {
        true => Reply::Hang,
        false => Reply::Confirm,
    });
    line.stage((0..500).map(|n| to("down", format!("down {n}")))).await;
    // Of 40 keys. Those of the first 30 are for it, of the others only each second one is.
    let destination = |n: usize| if n % 40 < 30 || (n / 40).is_multiple_of(2) { "down" } else { "orders" };
    line.stage((0..40 * 30).map(|n| to(destination(n), n).key(n % 40))).await;
    line.stage((0..20).map(|n| message(format!("good {n}")))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(2));
    let relay = line.start_with(relay.concurrency(20));
    good(&line, 20).await;
    pass_at_once(&line, 20).await;
    assert!(texts(&line.sink.published()).iter().all(|text| text.starts_with("good")), "others are behind it");
    assert!(line.waiting().await.iter().all(|row| row.message.attempt() == 1), "no attempt is recorded");
    down.store(false, SeqCst);
    line.published(500 + 40 * 30 + 23).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    let published = line.sink.published();
    let ids: HashSet<_> = published.iter().map(StagedMessage::id).collect();
    assert_eq!((published.len(), ids.len(), line.sink.overlaps()), (1723, 1723, 0), "each once");
    let of_key = by_key(&line.sink, 40);
    assert!(of_key.len() == 40 && of_key.values().all(|numbers| numbers.is_sorted()), "{of_key:?}");
}

/// One of two destinations that hang answers again, and takes its time for each message. The other one has more messages, and
/// they came first.
pub async fn a_destination_that_answers_again_waits_for_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let back = Arc::new(AtomicBool::new(false));
    let is_back = back.clone();
    line.sink.on_publish(move |message| match message.to() == "back" && is_back.load(SeqCst) {
        true => Reply::ConfirmAfter(Duration::from_millis(150)),
        false => Reply::Hang,
    });
    line.stage((0..1000).map(|n| to("down", format!("down {n}")))).await;
    line.stage((0..400).map(|n| to("back", n).key(n % 100))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(2));
    let relay = line.start_with(relay.concurrency(20));
    // By then both are usually known to hang: twenty messages of each were tried, and then one at a time.
    soon(line.sink.wait_for(|sink| sink.calls() >= 40)).await;
    back.store(true, SeqCst);
    line.published(400).await;
    relay.crash().await;
    let of_key = by_key(&line.sink, 100);
    assert!(of_key.values().all(|numbers| numbers.len() == 4 && numbers.is_sorted()), "{of_key:?}");
    assert_eq!((of_key.len(), line.sink.overlaps()), (100, 0));
}

/// Others have a backlog for all places that they get.
pub async fn a_destination_that_answers_again_waits_for_no_backlog<W: World>(world: W) {
    let line = Line::new(world).await;
    let back = Arc::new(AtomicBool::new(false));
    let is_back = back.clone();
    line.sink.on_publish(move |message| match message.to() == "back" && !is_back.load(SeqCst) {
        true => Reply::Hang,
        false => Reply::ConfirmAfter(Duration::from_millis(150)),
    });
    line.stage((0..300).map(|n| to("back", format!("good {n}")))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(1));
    let relay = line.start_with(relay.concurrency(20));
    soon(line.sink.wait_for(|sink| sink.calls() > 20)).await;
    // Enough for 25 seconds.
    line.stage((0..3500).map(message)).await;
    line.published(100).await;
    back.store(true, SeqCst);
    // About thirty have got no answer, and come last.
    good(&line, 260).await;
    assert!(line.sink.published().len() < 3500, "there was no backlog");
    relay.crash().await;
}

/// Some of its messages never get an answer, and it has no others for a while. Those that come later do not wait for them.
pub async fn messages_that_never_get_an_answer_do_not_stop_their_destination<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|message| if text(message).starts_with("never") { Reply::Hang } else { Reply::Confirm });
    line.stage((0..20).map(|n| message(format!("never {n}")))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(3));
    let relay = line.start_with(relay.concurrency(20));
    // It is known to hang, and is tried with the second one of them.
    soon(line.sink.wait_for(|sink| sink.calls() >= 22)).await;
    line.stage((0..100).map(|n| message(format!("good {n}")))).await;
    good(&line, 100).await;
    assert!(line.waiting().await.iter().all(|row| row.message.attempt() == 1), "no attempt is recorded");
    relay.crash().await;
}

/// A client gives up by itself after this time, a while before the relay would.
struct GivesUp(Duration);

impl SinkTap for GivesUp {
    async fn publish<K: Sink>(&self, sink: &K, message: &StagedMessage) -> Result<(), SinkError> {
        let answer = sink.publish(message).await;
        if answer.is_err() {
            tokio::time::sleep(self.0).await;
        }
        answer
    }
}

/// As that of Kafka does: it says that the broker is away, after most of the time in which the relay expects an answer.
pub async fn a_destination_at_which_the_client_gives_up_stops_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|message| if message.to() == "down" { Reply::Away } else { Reply::Confirm });
    line.stage((0..600).map(|n| to("down", n))).await;
    line.stage((0..20).map(|n| message(format!("good {n}")))).await;
    let sink = TappedSink::new(line.sink.clone(), GivesUp(Duration::from_secs(2)));
    let relay = Relay::new("billing", line.store.clone(), sink).concurrency(20);
    let relay = relay.poll_interval(Duration::from_millis(20)).publish_timeout(Duration::from_secs(3));
    let relay = line.start_with(relay);
    good(&line, 20).await;
    assert!(line.waiting().await.iter().all(|row| row.message.attempt() == 1), "no attempt is recorded");
    relay.crash().await;
}

/// It confirms one message in twenty, and the others not in time: it hangs, although it answers at times.
pub async fn a_slow_destination_stops_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut calls = 0;
    line.sink.on_publish(move |message| {
        calls += usize::from(message.to() == "slow");
        match message.to() == "slow" && calls % 20 > 0 {
            true => Reply::Hang,
            false => Reply::Confirm,
        }
    });
    line.stage((0..1000).map(|n| to("slow", n))).await;
    line.stage((0..20).map(|n| message(format!("good {n}")))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(1));
    let relay = line.start_with(relay.concurrency(20));
    good(&line, 20).await;
    pass_at_once(&line, 20).await;
    relay.stop().await.unwrap();
}

/// Refuses what is for a full queue at once, as `basic.nack` does, and counts it; what is for others hangs, or is confirmed.
fn full<W: World>(line: &Line<W>) -> (Arc<AtomicUsize>, Arc<AtomicBool>) {
    let (nacks, full) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (nacked, is_full) = (nacks.clone(), full.clone());
    line.sink.on_publish(move |message| match message.to() {
        "full" if is_full.load(SeqCst) => {
            nacked.fetch_add(1, SeqCst);
            Reply::Away
        }
        to if to.starts_with("down") => Reply::Hang,
        _ => Reply::Confirm,
    });
    (nacks, full)
}

/// Behind an exchange that routes to other queues as well, each try is a copy there. Others go on.
pub async fn a_destination_that_nacks_backs_off<W: World>(world: W) {
    let line = Line::new(world).await;
    let (nacks, full) = full(&line);
    line.stage((0..200).flat_map(|n| [message(n), to("full", format!("full {n}"))])).await;
    let relay = line.start();
    for n in 0..50 {
        line.stage([message(format!("later {n}"))]).await;
        line.published(200 + n).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let tried = nacks.load(SeqCst);
    assert!(tried < 260, "{tried}: each about once, and some probes");
    full.store(false, SeqCst);
    line.published(450).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// Two that get no answer have all slots that there are for such ones.
pub async fn a_destination_that_nacks_takes_no_slot_of_those_that_get_no_answer<W: World>(world: W) {
    let line = Line::new(world).await;
    let (nacks, _) = full(&line);
    line.stage([to("down 1", 1), to("down 2", 2)]).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(4));
    let relay = line.start_with(relay.concurrency(8));
    let mut others = 0;
    let mut go_on = async |line: &Line<W>| {
        line.stage([message("other")]).await;
        others += 1;
        line.published(others).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // Their probes have begun.
    while line.sink.calls() < 4 || line.sink.calls() - line.sink.published().len() < 4 {
        go_on(&line).await;
    }
    line.stage([to("full", "full")]).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        go_on(&line).await;
    }
    assert!(nacks.load(SeqCst) >= 4, "{nacks:?}");
    relay.crash().await;
}
