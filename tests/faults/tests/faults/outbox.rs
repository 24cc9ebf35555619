//! From consumer to consumer over each broker: what a worker stages, another one takes once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem::adapter::{Sink, SinkError, StagedMessage};
use idem::extract::Outbox;
use idem::store::Page;
use idem::{BoxError, Outcome, Postgres, Relay, RetryPolicy, State, Worker, idempotent};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};
use idem_faults::{Journal, Real, Site, Stage, World, within};
use idem_test::Publication;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The outbox, and the consumer whose handler stages.
const ORDERS: &str = "orders";

#[derive(Serialize, Deserialize)]
struct Paid {
    id: String,
    /// Where the messages go to, in this order and with one key.
    to: Vec<String>,
}

#[idempotent(key = "id")]
async fn paid(paid: Paid, tx: &mut PgConnection, stage: State<Stage>, outbox: Outbox) -> Result<(), BoxError> {
    stage.0.effect(&format!("{} paid", paid.id), 1, tx).await?;
    for to in &paid.to {
        outbox.publish(to, &paid)?.key(&*paid.id);
    }
    Ok(())
}

#[idempotent(key = message_id)]
async fn invoice(paid: Paid, tx: &mut PgConnection, stage: State<Stage>) -> Result<(), BoxError> {
    Ok(stage.0.effect(&format!("{} invoiced", paid.id), 1, tx).await?)
}

/// A sink that remembers what it has published, and can keep the confirms for itself.
struct Tapped<K> {
    sink: K,
    calls: Arc<Mutex<Vec<String>>>,
    confirmed: watch::Sender<usize>,
    keeps: bool,
}

impl<K: Sink> Sink for Tapped<K> {
    fn system(&self) -> &'static str {
        self.sink.system()
    }

    fn name(&self) -> &str {
        self.sink.name()
    }

    async fn open(&self) -> Result<(), SinkError> {
        self.sink.open().await
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        self.calls.lock().unwrap().push(message.to().to_owned());
        self.sink.publish(message).await?;
        self.confirmed.send_modify(|confirmed| *confirmed += 1);
        if self.keeps {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn close(&self) {
        self.sink.close().await;
    }
}

/// Two workers with a broker between them.
struct Chain<B: Broker> {
    world: World,
    site: Real<B>,
    store: Postgres,
    calls: Arc<Mutex<Vec<String>>>,
    confirmed: watch::Sender<usize>,
    workers: Vec<JoinHandle<Result<(), idem::Error>>>,
}

impl<B: Broker> Chain<B> {
    async fn new() -> Option<Self> {
        let (world, site) = (World::new().await?, Real::<B>::new().await?);
        let (store, journal) = (world.store().await, world.journal.clone());
        let first =
            Worker::new(ORDERS, store.clone(), world.broker.queue("paid")).state(world.stage.clone()).handler::<paid>();
        let second = Worker::new("invoices", store.clone(), site.source().await)
            .state(world.stage.clone())
            .handler::<invoice>()
            .observe(move |delivery, outcome| journal.note(delivery, outcome));
        let workers = vec![
            tokio::spawn(first.run_until(std::future::pending())),
            tokio::spawn(second.run_until(std::future::pending())),
        ];
        Some(Self { world, site, store, calls: Arc::default(), confirmed: watch::Sender::new(0), workers })
    }

    /// Has the first worker stage messages with these destinations.
    fn pay(&self, to: &[&str]) {
        let paid = Paid { id: "a".to_owned(), to: to.iter().map(|to| (*to).to_owned()).collect() };
        self.world.broker.publish("paid", Publication::new(serde_json::to_vec(&paid).unwrap()));
    }

    /// Starts a relay. If it loses a lease, it publishes again what has no answer yet.
    async fn relay(&self, keeps: bool, lease: Duration) -> JoinHandle<Result<(), idem::Error>> {
        let sink = B::sink(&self.site.relay.address(&self.site.address)).await.unwrap();
        let sink = Tapped { sink, calls: self.calls.clone(), confirmed: self.confirmed.clone(), keeps };
        let relay = Relay::new(ORDERS, self.store.clone(), sink)
            .lease_duration(lease)
            .retry(RetryPolicy::new().max_attempts(2).min_delay(Duration::from_millis(10)).factor(1.0));
        tokio::spawn(relay.run_until(std::future::pending()))
    }

    async fn until_confirmed(&self, number: usize) {
        let mut confirmed = self.confirmed.subscribe();
        within("the broker confirms", confirmed.wait_for(|confirmed| *confirmed >= number)).await.unwrap();
    }

    async fn until_empty(&self) {
        let outbox = self.store.outbox(ORDERS);
        within("the outbox is empty", async {
            while outbox.stats(100).await.unwrap().waiting > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    async fn end(self, relay: JoinHandle<Result<(), idem::Error>>) {
        for task in self.workers.into_iter().chain([relay]) {
            task.abort();
            let _ = task.await;
        }
        self.site.end().await;
        self.world.end().await;
    }
}

/// A relay dies after the broker has confirmed a message, and before it is deleted. The next one publishes it again,
/// under the same id.
async fn is_taken_once<B: Broker>(copies: usize) {
    let Some(chain) = Chain::<B>::new().await else { return };
    chain.pay(&[&chain.site.name]);
    // It is renewed after a third, which a busy machine may delay. The second relay waits for its end.
    let lease = Duration::from_secs(4);
    let first = chain.relay(true, lease).await;
    chain.until_confirmed(1).await;
    first.abort();
    let _ = first.await;
    let second = chain.relay(false, lease).await;
    chain.until_confirmed(2).await;
    chain.until_empty().await;
    let ended = |journal: &Journal| {
        let count = |of: Outcome| journal.count(|outcome| *outcome == of);
        (count(Outcome::Processed), count(Outcome::Duplicate))
    };
    chain.world.journal.until("it is taken once", |journal| ended(journal) == (1, copies - 1)).await;
    let effects = [("a invoiced".to_owned(), 1), ("a paid".to_owned(), 1)];
    assert_eq!(chain.world.all_effects().await, effects);
    chain.end(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_published_twice_to_rabbitmq_is_taken_once() {
    is_taken_once::<RabbitMq>(2).await;
}

/// The stream recognizes the copy itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_published_twice_to_nats_is_taken_once() {
    is_taken_once::<Nats>(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_published_twice_to_kafka_is_taken_once() {
    is_taken_once::<Kafka>(2).await;
}

/// Behind a message that its broker refuses, the next one of its key waits until that one is given up.
async fn waits_for_the_first<B: Broker>() {
    let Some(chain) = Chain::<B>::new().await else { return };
    let (nowhere, there) = (format!("{}-none", chain.site.name), chain.site.name.clone());
    chain.pay(&[&nowhere, &there]);
    let relay = chain.relay(false, Duration::from_secs(60)).await;
    chain.world.journal.processed(1).await;
    assert_eq!(*chain.calls.lock().unwrap(), [nowhere.clone(), nowhere.clone(), there]);
    let dead = chain.store.outbox(ORDERS).list(Page::default()).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].message.to(), dead[0].attempts), (nowhere.as_str(), 2));
    chain.end(relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_of_a_key_waits_for_one_that_rabbitmq_refuses() {
    waits_for_the_first::<RabbitMq>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_of_a_key_waits_for_one_that_nats_refuses() {
    waits_for_the_first::<Nats>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_of_a_key_waits_for_one_that_kafka_refuses() {
    waits_for_the_first::<Kafka>().await;
}
