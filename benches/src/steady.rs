//! A worker from a broker that marks no redeliveries, once it has stored the first messages: until then it does work
//! that the other sides do not.

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::{BoxError, Delivery, Postgres, Source};
use idem_brokers::{Broker as Client, Kafka, Nats, RabbitMq};
use idem_test::Tapped;
use idem_test::tap::Tap;
use sqlx::PgConnection;
use tokio::sync::watch;

use crate::brokers::{Brokers, NAME, worker_on};
use crate::case::Broker;
use crate::queue::Queue;
use crate::samples::Sample;
use crate::single::cpu;
use crate::tables::log;
use crate::worker;

/// Takes the messages of the warm-up, and no other until all of them are published.
struct Gate {
    warm_up: usize,
    opened: watch::Receiver<bool>,
}

impl Tap for Gate {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        self.warm_up = self.warm_up.saturating_sub(1);
        (delivery, ())
    }

    async fn next<S: Source>(&mut self, source: &mut S) -> Result<(Delivery, S::Acker), BoxError> {
        if self.warm_up == 0 {
            self.opened.wait_for(|open| *open).await?;
        }
        source.next().await
    }
}

/// Runs a worker with these lanes and this batch size, and measures the messages behind a warm-up of this many. They
/// are published when all of the warm-up is processed, and that is not measured.
pub(crate) async fn run(
    (brokers, broker): (&Brokers, Broker),
    store: &Postgres,
    how: (usize, usize),
    messages: (Vec<Bytes>, usize),
    conn: &mut PgConnection,
) -> Result<Sample> {
    let address = brokers.address(broker).context("the broker's address is not set")?;
    match broker {
        Broker::RabbitMq => from::<RabbitMq>(address, store, how, messages, conn).await,
        Broker::Nats => from::<Nats>(address, store, how, messages, conn).await,
        Broker::Kafka => from::<Kafka>(address, store, how, messages, conn).await,
    }
}

async fn from<B: Client>(
    address: &str,
    store: &Postgres,
    how: (usize, usize),
    (messages, warm_up): (Vec<Bytes>, usize),
    conn: &mut PgConnection,
) -> Result<Sample> {
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    let payloads: Vec<Vec<u8>> = messages.iter().map(|payload| payload.to_vec()).collect();
    let (first, rest) = payloads.split_at(warm_up.min(payloads.len()));
    client.publish(first).await?;
    let queue = Queue::pausing_after(messages, first.len());
    let (open, opened) = watch::channel(false);
    let source = Tapped::new(B::default_source(address, NAME).await?, Gate { warm_up: first.len(), opened });
    let worker = worker::drive(worker_on(source, store, how, queue.clone()), queue.clone());
    let begin = async {
        queue.paused().await;
        client.publish(rest).await?;
        let before = (log(conn).await?, cpu(false)?);
        queue.go_on();
        open.send_replace(true);
        anyhow::Ok(before)
    };
    let (rate, (log_before, cpu_before)) = tokio::try_join!(worker, begin)?;
    let (time, log) = (cpu(false)?.saturating_sub(cpu_before), log(conn).await? - log_before);
    client.delete().await?;
    let count = rest.len() as f64;
    Ok(Sample { rate, client: time.as_secs_f64() * 1e6 / count, wal: log / count })
}
