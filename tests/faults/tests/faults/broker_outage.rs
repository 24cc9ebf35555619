//! A broker that is stopped for half a minute, killed, and cut off.
//!
//! Each broker has a separate server, and its worker a separate process, so that its log lines and its processor time
//! can be told apart. The brokers are tested in parallel. Afterwards work resumes by itself, and nothing is lost
//! or doubled.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use idem_brokers::{Broker, Kafka, Nats, RabbitMq, Sqs};
use idem_faults::{Act, Mode, Order, Process, Relay, Setting, Threads, World, fresh, orders, until, variable};
use idem_services::Instance;

/// How soon work must resume: after the longest delay between two tries, which is five seconds, with time for a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// How long a broker may take to serve a publisher.
const BACK: Duration = Duration::from_secs(120);

/// Runs all outages of one broker and returns the report.
type Report = fn() -> String;

/// The outages of all brokers.
static OUTAGES: LazyLock<Threads> = LazyLock::new(|| {
    let outages: [(&str, Report); 4] = [
        ("rabbitmq", outages::<RabbitMq>),
        ("nats", outages::<Nats>),
        ("kafka", outages::<Kafka>),
        ("sqs", outages::<Sqs>),
    ];
    Threads::start(outages)
});

fn the_outages(name: &str) {
    if variable("DATABASE_URL").is_some() {
        OUTAGES.join(name);
    }
}

#[test]
fn rabbitmq_stopped_killed_and_cut_off_is_found_again_without_loss_or_hot_loop() {
    the_outages("rabbitmq");
}

#[test]
fn nats_stopped_killed_and_cut_off_is_found_again_without_loss_or_hot_loop() {
    the_outages("nats");
}

#[test]
fn kafka_stopped_killed_and_cut_off_is_found_again_without_loss_or_hot_loop() {
    the_outages("kafka");
}

#[test]
fn sqs_stopped_killed_and_cut_off_is_found_again_without_loss_or_hot_loop() {
    the_outages("sqs");
}

fn outages<B: Broker>() -> String {
    let server = (B::START)().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(all_harms::<B>(server))
}

/// The state of one broker's test.
struct Outages {
    world: World,
    setting: Setting,
    expected: Vec<Order>,
    report: String,
}

async fn all_harms<B: Broker>(mut server: Instance) -> String {
    let world = World::new().await.unwrap();
    // Creates its tables before its first process looks for them.
    drop(world.store().await);
    let address = server.url().to_owned();
    let setting = Setting {
        broker: B::NAME.to_owned(),
        address: address.clone(),
        name: fresh("idem-outage"),
        database: world.stage.url().to_owned(),
        schema: world.schema.clone(),
        mode: Mode::Direct,
        traces: String::new(),
    };
    B::connect(&address, &setting.name).await.unwrap().create().await.unwrap();
    let mut outages = Outages { world, setting, expected: Vec::new(), report: format!("{}:", B::NAME) };

    let mut worker = outages.start();
    server = outages
        .harm::<B, _>("stopped", &mut worker, &address, async {
            let mut server = server;
            server.stop().unwrap();
            // The duration itself is tested.
            tokio::time::sleep(Duration::from_secs(30)).await;
            server.start_again().unwrap();
            server
        })
        .await;
    server = outages
        .harm::<B, _>("killed", &mut worker, &address, async {
            let mut server = server;
            server.kill().unwrap();
            server.start_again().unwrap();
            server
        })
        .await;
    // The same with a live server, for a worker that reaches it through a relay.
    worker.kill().await;
    let relay = Relay::start(&address).await;
    outages.setting.address = relay.url(&address);
    let mut worker = outages.start();
    outages
        .harm::<B, _>("cut off", &mut worker, &address, async {
            relay.refuse(true);
            // The duration itself is tested.
            tokio::time::sleep(Duration::from_secs(10)).await;
            relay.refuse(false);
        })
        .await;
    outages.check::<B>(&address).await;
    worker.kill().await;
    drop(server);
    outages.report
}

impl Outages {
    fn start(&self) -> Process {
        Process::start(env!("CARGO_BIN_EXE_worker"), &self.setting)
    }

    async fn effects(&self, count: usize) {
        until("the effects are there", || async { self.done().await >= count as i64 }).await;
    }

    /// How many effects there are.
    async fn done(&self) -> i64 {
        self.world.number("SELECT count(*) FROM {schema}.effects").await
    }

    async fn publish<B: Broker>(&mut self, address: &str, new: Vec<Order>) {
        let payloads: Vec<_> = new.iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
        // A broker that listens again may not serve yet. Unconfirmed messages are published again, under the same key.
        let start = Instant::now();
        loop {
            let published = async { B::connect(address, &self.setting.name).await?.publish(&payloads).await };
            match tokio::time::timeout(Duration::from_secs(5), published).await {
                Ok(Ok(())) => break,
                failed => assert!(start.elapsed() < BACK, "cannot publish: {failed:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.expected.extend(new);
    }

    /// Disrupts the broker in the middle of work, and waits until all earlier and new messages are processed.
    async fn harm<B: Broker, T>(
        &mut self,
        what: &str,
        worker: &mut Process,
        address: &str,
        harm: impl Future<Output = T>,
    ) -> T {
        let before = self.expected.len();
        self.publish::<B>(address, orders(&format!("{what} before"), 200, Act::Take(50))).await;
        self.effects(before + 40).await;
        worker.runs();

        let worked = self.done().await;
        let (before_harm, spent, start) = (worker.log().lines().count(), worker.processor_time(), Instant::now());
        let done = harm.await;
        let lasted = start.elapsed();
        let spent = worker.processor_time() - spent;
        // Meanwhile it has gone on with the messages that it had.
        let worked = Duration::from_millis(10) * u32::try_from(self.done().await - worked).unwrap();
        worker.runs();

        // Work resumes without a new message, but there may be none left.
        self.publish::<B>(address, vec![Order::new(format!("{what} after"), Act::Write)]).await;
        // Measured from here, since until then the broker did not serve a publisher either.
        let back = Instant::now();
        let asked = format!("SELECT count(*) FROM {{schema}}.effects WHERE id = '{what} after'");
        until("work goes on", || async { self.world.number(&asked).await > 0 }).await;
        let resumed = back.elapsed();
        self.effects(self.expected.len()).await;
        worker.runs();
        let lines = worker.log().lines().count() - before_harm;
        self.report += &format!(
            "\n  {what} for {lasted:.1?}: on after {resumed:.1?}, all after {:.1?}; {lines} lines, {spent:?} of a processor",
            back.elapsed()
        );
        println!("{}", self.report);
        // On a machine so busy that the database does not answer either, work waits for the database.
        let late_database = worker.log().lines().skip(before_harm).any(|line| line.contains("database cannot be used"));
        assert!(resumed < SOON || late_database, "{}\n{}", self.report, worker.log());
        // There is a try at least every five seconds, and more often at first. Each logs a line or two of idem's and of
        // the client's.
        assert!(lines < 150, "{}\n{}", self.report, worker.log());
        assert!(spent < lasted / 10 + worked + Duration::from_millis(500), "{}\n{}", self.report, worker.log());
        done
    }

    /// Nothing is lost, doubled or dead.
    async fn check<B: Broker>(&self, address: &str) {
        let scheduled = "SELECT count(*) FROM {schema}.inbox_messages";
        assert_eq!(self.world.number(scheduled).await, 0, "a message waits, or is dead");
        let mut expected: Vec<_> = self.expected.iter().map(|order| order.id.clone()).collect();
        expected.sort();
        let mut effects: Vec<_> = self.world.all_effects().await.into_iter().map(|(id, _)| id).collect();
        effects.sort();
        assert_eq!(effects, expected);
        let broker = B::connect(address, &self.setting.name).await.unwrap();
        until("nothing is left with the broker", || async { broker.left().await.unwrap() == 0 }).await;
    }
}
