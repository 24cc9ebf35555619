//! Rows that are inserted together.

use std::time::Duration;

use idem_core::store::{InboxRows, NewRow, RowKind};
use idem_core::{Delivery, Reason};

use super::stage::{Stage, committed};
use super::world::World;

/// Scheduled and dead rows are inserted together, each in its state; an existing row counts a delivery.
pub async fn many_rows_are_inserted_at_once<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.dead_letter("there", Reason::Permanent).await;
    let delivery = |n: usize| Delivery::new("orders", vec![0, 0xff, n as u8]).with_message_id(Some(format!("m{n}\0")));
    let deliveries = [delivery(0), delivery(1), delivery(2), delivery(3)];
    let ids = ["due", "later", "dead", "there"].map(|key| stage.id(key));
    let states = [Ok(Duration::ZERO), Ok(Duration::from_secs(600)), Err(Reason::Conflict), Ok(Duration::ZERO)];
    let errors = ["", "attempt \u{1f4e6}", "another", ""];
    let rows: Vec<_> = (0..4)
        .map(|n| {
            let (identity, delivery, state, error) = (&ids[n], &deliveries[n], states[n], errors[n]);
            NewRow::new(identity, delivery, state).with_attempts(n as u32, error)
        })
        .collect();
    let mut txn = stage.begin().await;
    stage.store.insert(&mut txn, &[]).await.unwrap();
    let numbers = stage.store.insert(&mut txn, &rows).await.unwrap();
    committed(stage.commit(txn).await);

    let (scheduled, dead) = (stage.scheduled().await, stage.dead().await);
    assert_eq!((scheduled.len(), dead.len()), (2, 2));
    for (id, number) in ids.iter().zip(numbers) {
        let row = scheduled.iter().chain(&dead).find(|row| row.id == number).unwrap();
        assert_eq!(row.identity, *id, "the ids are in the order of the rows");
    }
    let counted =
        ids.each_ref().map(|id| scheduled.iter().chain(&dead).find(|row| row.identity == *id).unwrap().deliveries);
    assert_eq!(counted, [1, 1, 1, 2]);

    for (n, state) in states.iter().enumerate().take(3) {
        let row = scheduled.iter().chain(&dead).find(|row| row.identity == ids[n]).unwrap();
        assert_eq!(
            (row.delivery.payload(), row.delivery.message_id()),
            (deliveries[n].payload(), deliveries[n].message_id())
        );
        assert_eq!((row.attempts, row.error.as_str(), row.deliveries), (n as u32, errors[n], 1));
        assert_eq!((row.reason, row.died_at.is_some()), (state.err(), state.is_err()));
    }
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.identity, ids[0], "what is due later is not fetched");
}
