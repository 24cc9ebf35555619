//! The partitions of a Kafka topic, side by side.

use std::cell::Cell;
use std::time::{Duration, Instant};

use idem::{DeliveryOrder, Postgres, RetryPolicy};
use idem_brokers::{Broker, Kafka};
use idem_faults::{Act, Order, Running, World, fresh, number, orders, until, variable};

/// The partitions beside partition 0, which has a failing head.
const OTHERS: std::ops::Range<i32> = 1..6;

/// More messages than fit into a window (256).
const BEHIND: usize = 300;

/// A separate topic and a separate database, so that neither worker has the other's rows.
struct Line {
    world: World,
    store: Postgres,
    broker: Kafka,
    address: String,
    name: String,
}

impl Line {
    async fn new(partitions: i32) -> Option<Self> {
        let (world, address, name) = (World::new().await?, variable(Kafka::VARIABLE)?, fresh("idem-faults"));
        let broker = Kafka::connect(&address, &name).await.unwrap().partitions(partitions);
        broker.create().await.unwrap();
        let store = world.options().connections(40).connect().await.unwrap();
        Some(Self { world, store, broker, address, name })
    }

    async fn publish(&self, partition: i32, orders: &[Order]) {
        let payloads: Vec<_> = orders.iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
        self.broker.publish_to(partition, &payloads).await.unwrap();
    }

    async fn start(&self) -> Running {
        let source = Kafka::source(&self.address, &self.name).await.unwrap();
        let often = RetryPolicy::new().max_attempts(u32::MAX).min_delay(Duration::from_millis(100)).factor(1.0);
        let tune =
            |worker: idem_faults::Tuned<_>| worker.order(DeliveryOrder::Partition).inbox_concurrency(16).retry(often);
        self.world.start(&self.store, source, tune)
    }

    /// The time at which there are `count` effects of this kind. Waits as long as their number grows.
    async fn done(&self, what: &str, count: usize) -> Instant {
        let asked = format!("SELECT count(*) FROM {{schema}}.effects WHERE id LIKE '{what}-%'");
        let seen = Cell::new(0);
        while seen.get() < count as i64 {
            let before = seen.get();
            until(&format!("{count} of {what}; so far {before}"), || async {
                seen.set(self.world.number(&asked).await);
                seen.get() > before
            })
            .await;
        }
        Instant::now()
    }

    async fn end(self, worker: Running) {
        self.world.stage.open();
        worker.stop().await.unwrap();
        self.broker.delete().await.unwrap();
        self.world.end().await;
    }
}

/// Both run at once, so that other load on the machine slows both.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_head_stops_its_partition_and_no_other() {
    let (Some(alone), Some(beside)) = (Line::new(6).await, Line::new(6).await) else { return };
    // 1667 make 10,000 records over six partitions.
    let each = number("IDEM_BACKLOG", 60);
    // The window of partition 0 is full, and more of it waits at the broker.
    let behind = each.max(BEHIND);
    beside.publish(0, &[Order::new("head-0", Act::FailUntilOpen)]).await;
    beside.publish(0, &orders("behind", behind, Act::Write)).await;
    for partition in OTHERS {
        let orders = orders(&format!("other-{partition}"), each, Act::Take(5));
        alone.publish(partition, &orders).await;
        beside.publish(partition, &orders).await;
    }
    let (first, second) = (alone.start().await, beside.start().await);
    let began = Instant::now();
    let all = each * OTHERS.len();
    let (without, with) = tokio::join!(alone.done("other", all), beside.done("other", all));
    let (without, with) = (without - began, with - began);
    println!("{without:?} alone, {with:?} beside a head that fails");
    // A short backlog takes hardly longer than one delay of the machine, and the worker beside the head stores the messages
    // behind it meanwhile. The head never ends.
    let slack = if std::env::var_os("IDEM_BACKLOG").is_some() { Duration::ZERO } else { Duration::from_secs(5) };
    assert!(with < without.mul_f64(1.2) + slack, "{with:?}, and {without:?} alone");
    let blocked = "SELECT count(*) FROM {schema}.effects WHERE id LIKE 'behind-%'";
    assert_eq!(beside.world.number(blocked).await, 0, "the head has not been processed");
    beside.world.stage.open();
    beside.done("behind", behind).await;
    alone.end(first).await;
    beside.end(second).await;
}

/// The handler waits instead of working, so that the machine is not the limit.
#[tokio::test(flavor = "multi_thread")]
async fn six_partitions_are_at_least_four_times_as_fast_as_one() {
    let (Some(one), Some(six)) = (Line::new(1).await, Line::new(6).await) else { return };
    let each = number("IDEM_EACH", 30);
    let (first, second) = (one.start().await, six.start().await);
    // The first messages after an assignment go through the inbox.
    for (line, partitions) in [(&one, 1), (&six, 6)] {
        for partition in 0..partitions {
            line.publish(partition, &orders(&format!("warm-{partition}"), 16, Act::Write)).await;
        }
        line.done("warm", 16 * partitions as usize).await;
    }
    let measure = async |line: &Line, partitions: i32| {
        let began = Instant::now();
        for partition in 0..partitions {
            line.publish(partition, &orders(&format!("load-{partition}"), each, Act::Take(100))).await;
        }
        line.done("load", each * partitions as usize).await - began
    };
    // At once, so that other load on the machine slows both.
    let (alone, together) = tokio::join!(measure(&one, 1), measure(&six, 6));
    let times = 6.0 * alone.as_secs_f64() / together.as_secs_f64();
    println!("{alone:?} for {each} of one partition, {together:?} for six of that: {times:.1} times as fast");
    assert!(times >= 4.0, "{times:.1}");
    one.end(first).await;
    six.end(second).await;
}
