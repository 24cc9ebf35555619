use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

async fn run(store: Postgres) -> Result<(), BoxError> {
    let orders = Kafka::connect("localhost:9092").await?.topic("orders").await?;
    Worker::new("billing", store, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

fn main() {}
