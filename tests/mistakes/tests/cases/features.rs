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

// case: broker_without_its_feature
async fn run(store: Postgres) -> Result<(), BoxError> {
    let orders = RabbitMq::connect("amqp://localhost").await?.queue("orders").await?;
//~              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `RabbitMq` needs the feature `rabbitmq` of idem
//~ label: the feature `rabbitmq` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["rabbitmq"] }`
//~                                ^^^^^^^^^^^^^^^^^^ `RabbitMq` needs the feature `rabbitmq` of idem
//~ label: the feature `rabbitmq` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["rabbitmq"] }`
    Worker::new("billing", store, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

// case: kafka_without_its_feature
async fn run(store: Postgres) -> Result<(), BoxError> {
    let orders = Kafka::connect("localhost:9092").await?.topic("orders").await?;
//~              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Kafka` needs the feature `kafka` of idem
//~ label: the feature `kafka` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["kafka"] }`
//~                             ^^^^^^^^^^^^^^^^ `Kafka` needs the feature `kafka` of idem
//~ label: the feature `kafka` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["kafka"] }`
    Worker::new("billing", store, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

// case: nats_without_its_feature
async fn run(store: Postgres) -> Result<(), BoxError> {
    let orders = Nats::connect("nats://localhost").await?.stream("ORDERS").await?;
//~              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Nats` needs the feature `nats` of idem
//~ label: the feature `nats` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["nats"] }`
//~                            ^^^^^^^^^^^^^^^^^^ `Nats` needs the feature `nats` of idem
//~ label: the feature `nats` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["nats"] }`
    Worker::new("billing", store, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

// case: sqs_without_its_feature
async fn run(store: Postgres, config: String) -> Result<(), BoxError> {
    let orders = Sqs::new(&config).queue("orders").await?;
//~              ^^^^^^^^^^^^^^^^^ `Sqs` needs the feature `sqs` of idem
//~ label: the feature `sqs` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["sqs"] }`
//~                       ^^^^^^^ `Sqs` needs the feature `sqs` of idem
//~ label: the feature `sqs` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["sqs"] }`
    Worker::new("billing", store, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

// case: dynamodb_without_its_feature
async fn run(config: String, orders: impl idem::Source) -> Result<(), BoxError> {
    let records = DynamoDb::connect(&config, "idem").create_table().await?;
//~               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `DynamoDb` needs the feature `dynamodb` of idem
//~ label: the feature `dynamodb` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["dynamodb"] }`
//~                                 ^^^^^^^ `DynamoDb` needs the feature `dynamodb` of idem
//~ label: the feature `dynamodb` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["dynamodb"] }`
    Worker::new("billing", records, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

// case: options_without_its_feature
async fn run(store: Postgres) -> Result<(), BoxError> {
    let orders = Kafka::options("localhost:9092").connect().await?.topic("orders").await?;
//~              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Kafka` needs the feature `kafka` of idem
//~ label: the feature `kafka` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["kafka"] }`
//~                             ^^^^^^^^^^^^^^^^ `Kafka` needs the feature `kafka` of idem
//~ label: the feature `kafka` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["kafka"] }`
    Worker::new("billing", store, orders).handler::<handler>().run_until(idem::shutdown_signal()).await?;
    Ok(())
}

// case: postgres_without_its_feature
#[path = "../missing.rs"]
mod missing;

fn open() {
    let _ = missing::Postgres::connect("url");
//~         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Postgres` needs the feature `postgres` of idem
//~ label: the feature `postgres` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["postgres"] }`
//~                                    ^^^^^ `Postgres` needs the feature `postgres` of idem
//~ label: the feature `postgres` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["postgres"] }`
    let _ = missing::Postgres::options("url");
//~         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Postgres` needs the feature `postgres` of idem
//~ label: the feature `postgres` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["postgres"] }`
//~                                    ^^^^^ `Postgres` needs the feature `postgres` of idem
//~ label: the feature `postgres` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["postgres"] }`
}

// case: sqlite_without_its_feature
#[path = "../missing.rs"]
mod missing;

fn open() {
    let _ = missing::Sqlite::connect("url");
//~         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Sqlite` needs the feature `sqlite` of idem
//~ label: the feature `sqlite` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["sqlite"] }`
//~                                  ^^^^^ `Sqlite` needs the feature `sqlite` of idem
//~ label: the feature `sqlite` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["sqlite"] }`
    let _ = missing::Sqlite::options("url");
//~         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `Sqlite` needs the feature `sqlite` of idem
//~ label: the feature `sqlite` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["sqlite"] }`
//~                                  ^^^^^ `Sqlite` needs the feature `sqlite` of idem
//~ label: the feature `sqlite` is off
//~ note: switch it on in Cargo.toml: `idem = { package = "idem-rs", .., features = ["sqlite"] }`
}
