//! A message that ends its process, among innocents.

use std::process::Stdio;
use std::time::Duration;

use idem::{Outcome, Reason, RetryPolicy};
use idem_faults::{Act, Order, Rabbit, World, variable, within};
use sqlx::Executor;
use tokio::process::{Child, Command};

const INNOCENTS: usize = 15;

#[tokio::test(flavor = "multi_thread")]
async fn a_killer_is_a_dead_letter_after_four_deaths_and_its_neighbours_are_unharmed() {
    let (Some(world), Some(rabbit)) = (World::new().await, Rabbit::new().await) else { return };
    let store = world.store().await;
    // All sixteen are in flight when it ends the process.
    rabbit.publish(&Order::new("killer", Act::Abort(300))).await;
    for n in 0..INNOCENTS {
        rabbit.publish(&Order::new(format!("innocent-{n}"), Act::Take(500))).await;
    }

    let mut deaths = 0;
    let mut worker = start(&world, &rabbit);
    within("the killer is dead and the innocents are processed", async {
        loop {
            tokio::select! {
                ended = worker.wait() => {
                    assert!(!ended.unwrap().success());
                    deaths += 1;
                    worker = start(&world, &rabbit);
                }
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    let dead = world.rows(&store).await.iter().any(|row| row.reason.is_some());
                    if dead && world.number("SELECT count(*) FROM {schema}.effects").await >= INNOCENTS as i64 {
                        break;
                    }
                }
            }
        }
    })
    .await;

    println!("the process died {deaths} times");
    assert!((1..=4).contains(&deaths), "{deaths} deaths");
    let row = world.row(&store).await;
    assert_eq!((row.reason, row.attempts), (Some(Reason::Crashed), 0));
    assert!(row.delivery.payload().windows(6).any(|word| word == b"killer"));
    let innocents: Vec<(String, i32)> = world.all_effects().await;
    let mut expected: Vec<_> = (0..INNOCENTS).map(|n| (format!("innocent-{n}"), 1)).collect();
    expected.sort();
    assert_eq!(innocents, expected, "each innocent has one effect, of its first attempt");
    worker.kill().await.unwrap();

    // Nothing is left in the queue: what comes next is the first that a new worker sees.
    let queue = idem::RabbitMq::connect(&rabbit.url).await.unwrap().queue(&rabbit.queue).await.unwrap();
    let last = world.start(&store, queue, |worker| worker);
    rabbit.publish(&Order::new("last", Act::Write)).await;
    assert_eq!(world.journal.end_of("last").await, Outcome::Processed);
    assert!(world.journal.all().iter().all(|(id, outcome)| id == "last" || *outcome == Outcome::Duplicate));
    last.stop().await.unwrap();
    rabbit.end().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_waits_for_what_runs_and_lets_nothing_start_before_it() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let later = RetryPolicy::new().first(Duration::from_secs(3600));
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker.retry(later));
    world.publish(&Order::new("suspect", Act::Fail(1)));
    world.journal.until("it is parked", |journal| journal.of("suspect").len() == 1).await;
    world.publish(&Order::new("running", Act::Hold));
    world.stage.entered(2).await;
    // As a process leaves it that has ended while it ran.
    let started = "UPDATE {schema}.inbox_messages SET starts = 1, due_at = now()";
    world.pool.execute(world.stage.sql(started)).await.unwrap();

    // Others start until the inbox has been looked through. The one that does not is behind the suspect.
    let ids = || world.stage.runs().into_iter().map(|run| run.id).collect::<Vec<_>>();
    let mut others = 0;
    loop {
        assert_eq!(world.stage.attempts("suspect"), [1], "the suspect did not wait for what runs");
        let id = format!("other-{others}");
        world.publish(&Order::new(&id, Act::Write));
        others += 1;
        let processed = world.journal.until("the other one is processed", |journal| !journal.of(&id).is_empty());
        if tokio::time::timeout(Duration::from_secs(2), processed).await.is_err() {
            break;
        }
    }
    world.stage.open();
    world.journal.processed(2 + others).await;
    let last = format!("other-{}", others - 1);
    assert_eq!(ids()[ids().len() - 2..], ["suspect".to_owned(), last], "something started before the suspect");
    worker.stop().await.unwrap();
    assert!(world.rows(&store).await.is_empty());
    world.end().await;
}

/// It ends with the value.
fn start(world: &World, rabbit: &Rabbit) -> Child {
    Command::new(env!("CARGO_BIN_EXE_worker"))
        .env("DATABASE_URL", variable("DATABASE_URL").unwrap())
        .env("AMQP_URL", &rabbit.url)
        .env("FAULTS_SCHEMA", &world.schema)
        .env("FAULTS_QUEUE", &rabbit.queue)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
