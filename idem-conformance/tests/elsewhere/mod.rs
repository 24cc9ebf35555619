//! Crashes everywhere, of handlers that call another system, hand over to another handler, or publish: sound ones pass, and
//! each broken one is found. The test programs of both databases have these tests; `crate::Tested` is the world of each.

mod calls;
mod handlers;
mod local;
mod relay;

use std::pin::Pin;
use std::sync::Arc;

use idem_conformance::store::{Setup, World};
use idem_core::Error;
use idem_test::Trial;
use idem_test::harness::Bench;

use crate::Tested;
use handlers::{Order, Shop};

type Connecting = Pin<Box<dyn Future<Output = Result<<Tested as World>::Store, Error>> + Send>>;

/// A database with the tables of the shop. `None` without a server.
async fn opened() -> Option<(Arc<Tested>, Shop)> {
    let world = Tested::make().await?;
    let shop = Shop::new(world.name("payments"), world.name("receipts"));
    let Shop { payments, receipts, .. } = &shop;
    let tables = format!(
        "CREATE TABLE {payments} (order_id BIGINT NOT NULL, charge BIGINT NOT NULL);
         CREATE TABLE {receipts} (order_id BIGINT NOT NULL)"
    );
    world.run(&tables).await;
    Some((Arc::new(world), shop))
}

fn bench(world: Arc<Tested>, shop: Shop) -> Bench<impl Fn() -> Connecting + Send + Sync + 'static, Shop> {
    let connect = move || -> Connecting {
        let world = world.clone();
        Box::pin(async move { world.store(Setup::default()).await })
    };
    Trial::new(connect).state(shop)
}

/// How many rows a table has.
async fn rows(world: &Tested, table: &str) -> i64 {
    world.number(&format!("SELECT count(*) FROM {table}")).await
}

fn order(id: u32) -> Order {
    Order { id }
}
