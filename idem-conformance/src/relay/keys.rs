//! Keys with many messages.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_test::Reply;

use crate::soon;
use crate::store::World;

use super::line::{Line, message, text};

/// Ten thousand messages of one transaction. One key has more of them than a relay keeps, and the first gets no answer for
/// long. Those of other keys are published meanwhile, and of each key they leave in their order.
pub async fn a_key_with_many_messages_stops_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let refuse = line.refusing(|text| text == "0");
    let key = |n: usize| if n < 1200 { "many".to_owned() } else { (n % 50).to_string() };
    line.stage((0..10_000).map(|n| message(n).key(key(n)))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(60));
    let relay = line.start_with(relay.concurrency(20));
    let calls = async |number: usize| {
        tokio::time::timeout(Duration::from_secs(50), line.sink.wait_for(|sink| sink.calls() >= number)).await.unwrap();
    };
    calls(1 + 8800).await;
    refuse.send_replace(true);
    calls(1 + 10_000).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    let mut of_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for message in line.sink.published() {
        let n = text(&message).parse().unwrap();
        of_key.entry(key(n)).or_default().push(n);
    }
    assert_eq!((of_key.len(), of_key.values().map(Vec::len).sum::<usize>()), (51, 10_000), "each once");
    assert!(of_key.values().all(|numbers| numbers.is_sorted()), "{of_key:?}");
}

/// The first messages of many keys get no answer for long, and each key has more than a relay keeps. Those of another key
/// are published meanwhile.
pub async fn many_keys_with_many_messages_stop_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let keys = 15;
    // The first one of each key.
    let refuse = line.refusing(move |text| text.parse::<usize>().is_ok_and(|n| n < keys));
    line.stage((0..120 * keys).map(|n| message(n).key(n % keys))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(60));
    let relay = line.start_with(relay.concurrency(20));
    soon(line.sink.wait_for(|sink| sink.calls() >= keys)).await;
    for n in 1..=5 {
        line.stage([message("other").key("other")]).await;
        line.published(n).await;
    }
    refuse.send_replace(true);
    line.published(5 + 120 * keys).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    let mut of_key: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for n in line.sink.published().iter().filter_map(|message| text(message).parse().ok()) {
        of_key.entry(n % keys).or_default().push(n);
    }
    assert!(of_key.values().all(|numbers| numbers.len() == 120 && numbers.is_sorted()), "{of_key:?}");
}

/// The first message of a key with many is refused once. Each read brings a part of them, and none waits for the poll.
pub async fn a_key_with_many_messages_does_not_wait_for_the_poll<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut is_refused = false;
    line.sink.on_publish(move |message| match text(message) == "0" && !std::mem::replace(&mut is_refused, true) {
        true => Reply::Refuse("not yet".to_owned()),
        false => Reply::Confirm,
    });
    line.stage((0..200).map(|n| message(n).key("many"))).await;
    // No read runs any more when the time of the next attempt comes.
    let retry = idem_core::RetryPolicy::new().max_attempts(3).min_delay(Duration::from_millis(300)).factor(1.0);
    // With 8 at a time, a read brings 32: so few that the rest of the key can be read at once.
    let relay = line.relay(line.store.clone(), line.sink.clone()).concurrency(8).retry(retry);
    let relay = line.start_with(relay.poll_interval(Duration::from_secs(600)));
    let expected: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    assert_eq!(line.published(200).await, expected);
    relay.stop().await.unwrap();
}
