//! Large rows of the inbox: how many are fetched, and what one that hangs costs the others.

use std::time::Duration;

use idem_core::Delivery;
use idem_core::store::Consumers;

use idem_conformance::soon;
use idem_conformance::store::World;

use super::crashes::schedule_delivery;
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

const ROWS: usize = 40;

/// Stores messages of one megabyte each, which is less than a worker accepts.
async fn schedule<W: World>(line: &Line<W>, orders: &[Order]) {
    let handler = line.store.register("billing", &["", "orders"]).await.unwrap()[1];
    for order in orders {
        let mut payload = serde_json::to_vec(order).unwrap();
        payload.resize(1_000_000, b' ');
        schedule_delivery(line, handler, &order.id, Delivery::new("orders", payload)).await;
    }
}

/// It runs with a batch, which waits for it. All others go on, although more rows are due than may be in memory at
/// once.
pub async fn a_row_that_hangs_keeps_no_memory_from_others<W: World>(world: W) {
    // Otherwise it has the only writer.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let mut orders: Vec<Order> = (1..ROWS).map(|n| Order::ok(&n.to_string())).collect();
    orders.insert(0, Order::new("hangs", &[Act::Wait]));
    schedule(&line, &orders).await;
    let worker = line.start_with(Settings { handler_timeout: Duration::from_secs(120), ..Settings::default() });
    line.outcomes(ROWS - line.world.batch()).await;
    assert_eq!(line.effects("hangs").await, 0);
    line.desk.go.send_replace(true);
    assert!(line.outcomes(ROWS).await.iter().all(|outcome| outcome == "processed"));
    worker.stop().await;
    for order in &orders {
        assert_eq!(line.effects(&order.id).await, 1, "{}", order.id);
    }
}

/// A worker fetches no more than 16 MiB at once, however many rows fit into its batches.
pub async fn rows_are_fetched_by_their_size<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let orders: Vec<Order> = (0..ROWS).map(|n| Order::new(&n.to_string(), &[Act::Wait])).collect();
    schedule(&line, &orders).await;
    let worker = line.start();
    // Both slots of the inbox are in use.
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 2)).await.unwrap();
    let fetched = format!("SELECT count(*) FROM {} WHERE locked_by IS NOT NULL", line.world.own("inbox_messages"));
    assert_eq!(line.world.number(&fetched).await, 17, "the last one exceeds the limit");
    line.desk.go.send_replace(true);
    line.outcomes(ROWS).await;
    worker.stop().await;
}
