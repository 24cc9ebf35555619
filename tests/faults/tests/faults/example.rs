//! The examples of the brokers, and that of Redis, run as a user runs them.

use std::collections::BTreeMap;
use std::process::Stdio;

use idem_brokers::{Broker, Kafka, Nats, RabbitMq};
use idem_conformance::example;
use idem_faults::{variable, within};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_rabbitmq_processes_an_order_once() {
    an_order_is_processed_once::<RabbitMq>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_nats_processes_an_order_once() {
    an_order_is_processed_once::<Nats>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_kafka_processes_an_order_once() {
    an_order_is_processed_once::<Kafka>().await;
}

/// It checks the order itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_order_per_key_on_rabbitmq_keeps_it() {
    let (Some(address), Some(example)) = (variable(RabbitMq::VARIABLE), example("ordering_rabbitmq")) else { return };
    let mut program = Command::new(example);
    let program = program.env(RabbitMq::VARIABLE, &address).stdout(Stdio::piped()).kill_on_drop(true).output();
    let output = within("the example ends", program).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 18);
    for n in 0..4 {
        RabbitMq::connect(&address, &format!("order-steps-{n}")).await.unwrap().delete().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_redis_changes_the_stock_once() {
    let (Some(redis), Some(address)) = (variable("REDIS_URL"), variable(Nats::VARIABLE)) else { return };
    let Some(example) = example("redis") else { return };
    let broker = Nats::connect(&address, "reservations").await.unwrap();
    broker.create().await.unwrap();
    let mut program = Command::new(example);
    let program = program.env("REDIS_URL", &redis).env(Nats::VARIABLE, &address).stdout(Stdio::piped());
    let mut program = program.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut line = async || within("the example prints a line", lines.next_line()).await.unwrap().unwrap();
    assert!(line().await.starts_with("consuming"));

    let (event, sku) = (Uuid::new_v4(), Uuid::new_v4());
    let payload = format!(r#"{{"event_id": "{event}", "sku": "{sku}", "n": 2}}"#).into_bytes();
    broker.publish(&[payload.clone(), payload]).await.unwrap();
    // Each outcome is printed after its ack, so in any order.
    let mut outcomes = [line().await, line().await];
    outcomes.sort();
    assert_eq!(outcomes, ["duplicate", "processed"]);
    let server = redis.trim_start_matches("redis://").split('/').next().unwrap();
    let mut server = TcpStream::connect(server).await.unwrap();
    server.write_all(format!("GET stock:{sku}\r\n").as_bytes()).await.unwrap();
    let mut answer = BufReader::new(server).lines();
    // Its length, and the stock.
    let answer = [answer.next_line().await.unwrap().unwrap(), answer.next_line().await.unwrap().unwrap()];
    assert_eq!(answer, ["$2", "-2"]);
}

async fn an_order_is_processed_once<B: Broker>() {
    let (Some(database), Some(address)) = (variable("DATABASE_URL"), variable(B::VARIABLE)) else { return };
    let Some(example) = example(B::NAME) else { return };
    // A database of its own: the examples have one consumer, so they would run each other's inbox rows.
    let mut server = PgConnection::connect(&database).await.unwrap();
    let name = format!("example_{}", B::NAME);
    let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    server.execute(AssertSqlSafe(drop.clone())).await.unwrap();
    server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let database = format!("{}/{name}", database.rsplit_once('/').unwrap().0);
    let broker = B::connect(&address, "orders").await.unwrap();
    broker.create().await.unwrap();
    let mut program = Command::new(example);
    let program = program.env("DATABASE_URL", &database).env(B::VARIABLE, &address).stdout(Stdio::piped());
    let mut program = program.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut line = async || within("the example prints a line", lines.next_line()).await.unwrap().unwrap();
    assert!(line().await.starts_with("consuming"));

    let order_id = (Uuid::new_v4().as_u128() >> 66) as i64;
    let payload = format!(r#"{{"event_id": "{}", "order_id": {order_id}}}"#, Uuid::new_v4()).into_bytes();
    broker.publish(&[payload.clone(), payload]).await.unwrap();
    // Kafka does not mark redeliveries, so the first messages after a start are stored before they run.
    let mut outcomes = BTreeMap::<String, usize>::new();
    while !["duplicate", "processed"].iter().all(|outcome| outcomes.contains_key(*outcome)) {
        *outcomes.entry(line().await).or_default() += 1;
    }
    outcomes.remove("scheduled");
    assert_eq!(outcomes, [("duplicate".to_owned(), 1), ("processed".to_owned(), 1)].into());
    let mut db = PgConnection::connect(&database).await.unwrap();
    let payments = sqlx::query_scalar("SELECT count(*) FROM payments WHERE order_id = $1").bind(order_id);
    let payments: i64 = payments.fetch_one(&mut db).await.unwrap();
    assert_eq!(payments, 1);
    server.execute(AssertSqlSafe(drop)).await.unwrap();
}

#[test]
fn the_examples_differ_only_in_the_line_that_makes_the_source() {
    let [rabbitmq, nats, kafka] = [
        include_str!("../../../../examples/rabbitmq.rs"),
        include_str!("../../../../examples/nats.rs"),
        include_str!("../../../../examples/kafka.rs"),
    ]
    .map(without_the_source);
    assert_eq!(rabbitmq, nats);
    assert_eq!(rabbitmq, kafka);
}

/// The program without its comments and without the line that creates the source, which must occur exactly once.
fn without_the_source(program: &str) -> Vec<&str> {
    let code = program.lines().filter(|line| !line.trim_start().starts_with("//"));
    let (source, rest): (Vec<_>, Vec<_>) = code.partition(|line| line.trim_start().starts_with("let orders = "));
    let [source] = source[..] else { panic!("{source:?}") };
    assert!(source.ends_with(".await?;"), "the source is made in more than a line: {source}");
    rest
}
