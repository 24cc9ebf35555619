//! The recipe of the guide on natural handlers: an upsert that compares versions.

use std::marker::PhantomData;

use idem_core::{BoxError, Handler, State, Worker};
use serde::{Deserialize, Serialize};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::line::Line;
use super::settings::Settings;

/// A state of an order.
#[derive(Serialize, Deserialize)]
struct Changed {
    id: String,
    order: i64,
    version: i64,
    status: String,
}

/// The table of orders.
#[derive(Clone)]
struct Table(String);

/// Writes the state if its version is not older, twice.
struct Keeps<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Keeps<W> {
    const NAME: &'static str = "keeps";
    const NATURAL: bool = true;

    type Params = State<Table>;

    idem_conformance::keyed_by_id!(Changed, W::Connection);

    async fn handle(
        changed: Changed,
        State(Table(orders)): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let Changed { order, version, status, .. } = changed;
        let upsert = format!(
            "INSERT INTO {orders} AS orders (id, version, status) VALUES ({order}, {version}, '{status}')
             ON CONFLICT (id) DO UPDATE SET version = excluded.version, status = excluded.status
             WHERE orders.version <= excluded.version"
        );
        let is_newest = W::changes(tx, &upsert).await?;
        assert_eq!(W::changes(tx, &upsert).await?, is_newest, "a second call in one transaction has the same answer");
        Ok(())
    }
}

/// Whatever order they come in, and however often. Of two with the same version, the one that runs last is kept.
pub async fn an_upsert_that_compares_versions_keeps_the_newest_one<W: World>(world: W) {
    let line = Line::new(world).await;
    let orders = line.world.name("orders");
    let columns = "id BIGINT PRIMARY KEY, version BIGINT NOT NULL, status VARCHAR(20) NOT NULL";
    line.world.run(&format!("CREATE TABLE {orders} ({columns})")).await;
    let worker = Worker::new("billing", line.store.clone(), line.queue.clone()).state(Table(orders.clone()));
    let worker = line.run_until_stopped(worker.handler::<Keeps<W>>(), Settings::default());
    let publish = |order: i64, version: i64, status: &str| {
        let id = format!("{order} {version} {status}");
        let changed = Changed { id, order, version, status: status.to_owned() };
        line.publish_raw(Publication::json(&changed).unwrap());
    };
    let is_settled = async || {
        soon(line.queue.idle()).await;
        until(async || line.scheduled().await.is_empty()).await;
    };
    let is_kept = async |order: i64, version: i64, status: &str| {
        let row = format!("id = {order} AND version = {version} AND status = '{status}'");
        line.world.number(&format!("SELECT count(*) FROM {orders} WHERE {row}")).await == 1
    };
    // Each message, and whether its state is kept: the newest first, older ones, a copy, a newer one, and two of one version.
    for (version, status, kept) in [
        (3, "paid", true),
        (1, "placed", false),
        (3, "paid", true),
        (2, "packed", false),
        (4, "sent", true),
        (3, "paid", false),
        (4, "lost", true),
    ] {
        publish(7, version, status);
        is_settled().await;
        assert_eq!(is_kept(7, version, status).await, kept, "{version} {status}");
    }
    // At once.
    for version in [2, 3, 1, 3, 2, 1] {
        publish(8, version, "new");
    }
    is_settled().await;
    assert!(is_kept(8, 3, "new").await);
    assert_eq!(line.dead().await.len(), 0);
    worker.stop().await;
}
