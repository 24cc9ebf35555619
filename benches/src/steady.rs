//! A worker from a broker, behind a warm-up. A worker on Kafka stores the first messages of each partition, and does work
//! then that the other sides do not.

use anyhow::{Result, ensure};
use bytes::Bytes;
use idem::{BoxError, Delivery, Postgres, Source};
use idem_brokers::Broker as Client;
use idem_test::Tapped;
use idem_test::tap::Tap;
use sqlx::PgConnection;
use tokio::sync::watch;

use crate::machine::cpu;
use crate::queue::Queue;
use crate::samples::Sample;
use crate::tables::log;
use crate::worker::{self, How};

/// The name of the queue, stream or topic.
pub(crate) const NAME: &str = "idem-bench";

/// Takes deliveries while it is open. It is closed from the end of the warm-up until all other messages are published. It
/// does not count: a rebalance in the warm-up brings some messages twice.
struct Gate(watch::Receiver<bool>);

impl Gate {
    async fn wait_for(&mut self, open: bool) -> Result<(), BoxError> {
        self.0.wait_for(|is_open| *is_open == open).await?;
        Ok(())
    }
}

impl Tap for Gate {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    async fn next<S: Source>(&mut self, source: &mut S) -> Result<(Delivery, S::Acker), BoxError> {
        loop {
            self.wait_for(true).await?;
            tokio::select! {
                biased;
                closed = self.wait_for(false) => closed?,
                next = source.next() => return next,
            }
        }
    }
}

/// Runs a worker, and measures the messages behind a warm-up of this many. They are published when all of the warm-up is
/// processed, and that is not measured.
pub(crate) async fn run<B: Client>(
    address: &str,
    store: &Postgres,
    how: How,
    (messages, warm_up): (Vec<Bytes>, usize),
    conn: &mut PgConnection,
) -> Result<Sample> {
    let payloads: Vec<Vec<u8>> = messages.iter().map(|payload| payload.to_vec()).collect();
    let (first, rest) = payloads.split_at(warm_up.min(payloads.len()));
    ensure!(!rest.is_empty(), "{} messages leave none to measure behind a warm-up of {warm_up}", payloads.len());
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    client.publish(first).await?;
    let queue = Queue::pausing_after(messages, first.len());
    let (open, gate) = watch::channel(true);
    let source = Tapped::new(B::default_source(address, NAME).await?, Gate(gate));
    let worker = worker::drive(worker::counted(how.worker(store, source), &queue), &queue);
    let begin = async {
        queue.paused().await;
        open.send_replace(false);
        client.publish(rest).await?;
        let before = (log(conn).await?, cpu(false)?, queue.stored());
        queue.go_on();
        open.send_replace(true);
        anyhow::Ok(before)
    };
    let (rate, (log_before, cpu_before, stored)) = tokio::try_join!(worker, begin)?;
    let (time, log) = (cpu(false)?.saturating_sub(cpu_before), log(conn).await? - log_before);
    let late = queue.stored() - stored;
    ensure!(late == 0, "{late} measured messages were stored first: the group was rebalanced");
    client.delete().await?;
    let count = rest.len() as f64;
    Ok(Sample { rate, client: time.as_secs_f64() * 1e6 / count, wal: log / count })
}
