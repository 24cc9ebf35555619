//! How many requests messages cost, since users pay for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use idem_conformance::Proxy;
use idem_conformance::sink::{message, publish};
use idem_core::{Acker, Settled, Source};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::sync::Semaphore;

use crate::common::{World, next, subscribe_options};

/// The requests by their actions.
type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

const TARGET: &[u8] = b"x-amz-target: AmazonSQS.";

/// Counts the requests in what was sent so far. Returns the bytes in which another one may have begun.
fn count(counts: &Counts, mut sent: Vec<u8>) -> Vec<u8> {
    loop {
        let Some(at) = sent.windows(TARGET.len()).position(|window| window.eq_ignore_ascii_case(TARGET)) else {
            return sent.split_off(sent.len().saturating_sub(TARGET.len()));
        };
        let rest = sent.split_off(at + TARGET.len());
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
            return [TARGET, &rest].concat();
        };
        let action = String::from_utf8_lossy(&rest[..end]).into_owned();
        *counts.lock().unwrap().entry(action).or_default() += 1;
        sent = rest;
    }
}

const MESSAGES: usize = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_under_load_cost_at_most_320_requests() {
    let Some(world) = World::new().await else { return };
    // With a prefetch that is large enough, and by default.
    for (concurrency, prefetch) in [(10, 40), (16, 20)] {
        let counts = requests(&world, concurrency, prefetch).await;
        println!("{concurrency} handlers and a prefetch of {prefetch}: {counts:?} for {MESSAGES} messages");
        assert!(counts.values().sum::<usize>() <= 320, "{counts:?}");
    }
}

/// Returns the requests of a source with so many handlers at once, of five milliseconds each.
async fn requests(world: &World, concurrency: u16, prefetch: u16) -> BTreeMap<String, usize> {
    let counts = Counts::default();
    let counted = Arc::clone(&counts);
    let relay = Proxy::passing(&world.url, move |mut client, mut server| {
        let counts = Arc::clone(&counted);
        async move {
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
            let requests = async {
                let (mut bytes, mut sent) = (vec![0; 65_536], Vec::new());
                while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
                    sent.extend_from_slice(&bytes[..read]);
                    sent = count(&counts, sent);
                    if to_server.write_all(&bytes[..read]).await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                () = requests => {}
                _ = copy(&mut from_server, &mut to_client) => {}
            }
        }
    })
    .await;
    let sink = world.sqs().queues("");
    let messages: Vec<_> = (0..MESSAGES).map(|_| message(&world.queue)).collect();
    let published = join_all(messages.iter().map(|message| publish(&sink, message))).await;
    assert!(published.iter().all(Result::is_ok));

    let mut queue = world.source_through(&relay).await;
    let mut options = subscribe_options(prefetch);
    options.least_unsettled = concurrency;
    queue.subscribe(options).await.unwrap();
    let (handlers, mut handled) = (Arc::new(Semaphore::new(concurrency.into())), tokio::task::JoinSet::new());
    for _ in 0..MESSAGES {
        let (_, acker) = next(&mut queue).await;
        let handlers = Arc::clone(&handlers);
        handled.spawn(async move {
            let _permit = handlers.acquire().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
        });
    }
    handled.join_all().await;
    let counts = counts.lock().unwrap().clone();
    queue.close().await;
    counts
}
