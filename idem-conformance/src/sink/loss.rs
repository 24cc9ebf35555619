//! Lost connections and dropped calls.

use std::pin::pin;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use idem_core::{Sink, SinkError};

use crate::soon;

use super::steps::{consume, message, open, relay};
use super::world::World;

/// When the connection is lost, each call is answered, what is confirmed is there, and the next calls connect again.
pub async fn lost_connections_confirm_nothing_that_is_not_there<W: World>(world: W) {
    let sink = open(&world).await;
    let messages: Vec<_> = (0..1000).map(|_| message(world.to())).collect();
    let calls = messages.iter().map(async |message| (message, sink.publish(message).await));
    let mut calls: FuturesUnordered<_> = calls.collect();
    let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
    while let Some((message, result)) = soon(calls.next()).await {
        match result {
            Ok(()) => confirmed.push(message.id()),
            Err(SinkError::Broker(_)) => failed.push(message),
            Err(error) => panic!("{error}"),
        }
        if confirmed.len() + failed.len() == 1 {
            world.cut().await;
        }
    }
    for message in failed {
        relay(&sink, message).await.unwrap();
        confirmed.push(message.id());
    }
    assert_eq!(confirmed.len(), messages.len());
    consume(&world, confirmed).await;
    soon(sink.close()).await;
}

/// Calls that are dropped, at different times, neither fail nor confirm other calls.
pub async fn a_dropped_call_harms_no_other<W: World>(world: W) {
    let sink = open(&world).await;
    let mut confirmed = Vec::new();
    for round in 0..50 {
        let (dropped, kept) = (message(world.unroutable()), message(world.to()));
        {
            // Polled a few times and dropped, wherever it is.
            let mut call = pin!(sink.publish(&dropped));
            for _ in 0..round % 5 {
                if futures_util::poll!(call.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        soon(sink.publish(&kept)).await.unwrap();
        confirmed.push(kept.id());
    }
    consume(&world, confirmed).await;
    soon(sink.close()).await;
}

/// A sink closes while the broker answers nothing, and the calls that are under way end.
pub async fn closing_ends_calls_that_are_under_way<W: World>(world: W) {
    let sink = open(&world).await;
    relay(&sink, &message(world.to())).await.unwrap();
    world.hold(true).await;
    let messages: Vec<_> = (0..10).map(|_| message(world.to())).collect();
    let mut calls = pin!(join_all(messages.iter().map(|message| sink.publish(message))));
    assert!(futures_util::poll!(calls.as_mut()).is_pending());
    let (results, ()) = soon(async { tokio::join!(calls, sink.close()) }).await;
    assert!(results.iter().all(|result| matches!(result, Err(SinkError::Broker(_)))), "{results:?}");
    world.hold(false).await;
}
