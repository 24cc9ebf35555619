//! The example `rabbitmq`, as a user runs it.

use std::process::Stdio;

use idem_faults::{variable, within};
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Connection, ConnectionProperties};
use sqlx::{Connection as _, PgConnection};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_for_rabbitmq_processes_an_order_once() {
    let (Some(database), Some(amqp)) = (variable("DATABASE_URL"), variable("AMQP_URL")) else { return };
    // `cargo test --workspace` builds the examples beside the tests.
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples").join("rabbitmq");
    if !example.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} was not built", example.display());
        eprintln!("skipped: {} was not built, run cargo xtask test", example.display());
        return;
    }
    let mut program = Command::new(example);
    let program = program.env("DATABASE_URL", &database).env("AMQP_URL", &amqp).stdout(Stdio::piped());
    let mut program = program.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut line = async || within("the example tells a line", lines.next_line()).await.unwrap().unwrap();
    assert!(line().await.starts_with("consuming"));

    let order_id = (Uuid::new_v4().as_u128() >> 66) as i64;
    let payload = format!(r#"{{"event_id": "{}", "order_id": {order_id}}}"#, Uuid::new_v4());
    let broker = Connection::connect(&amqp, ConnectionProperties::default()).await.unwrap();
    let channel = broker.create_channel().await.unwrap();
    for _ in 0..2 {
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        channel.basic_publish("".into(), "orders".into(), options, payload.as_bytes(), properties).await.unwrap();
    }
    let mut outcomes = [line().await, line().await];
    outcomes.sort();
    assert_eq!(outcomes, ["duplicate", "processed"]);
    let mut db = PgConnection::connect(&database).await.unwrap();
    let payments = sqlx::query_scalar("SELECT count(*) FROM payments WHERE order_id = $1").bind(order_id);
    let payments: i64 = payments.fetch_one(&mut db).await.unwrap();
    assert_eq!(payments, 1);
}
