//! Many messages, copies of them, and consumers that are forgotten.

use idem::Outcome;
use idem_faults::{Act, Broker, Scene, Seen, Witness, number, orders, until};

use crate::everywhere::on_servers;

on_servers! {
    no_ack_is_sent_before_the_database_has_the_message
    many_messages_of_which_a_fifth_comes_twice_have_one_effect_each
    a_consumer_that_the_broker_has_forgotten_goes_on
}

async fn many_messages_of_which_a_fifth_comes_twice_have_one_effect_each<B: Broker>(scene: &Scene<B>) {
    let orders = orders("order", number("IDEM_MESSAGES", 2_000), Act::Write);
    let copies = orders.len() / 5;
    let mut published = Vec::with_capacity(orders.len() + copies);
    for (n, order) in orders.iter().enumerate() {
        published.push(order.clone());
        // A copy comes some messages later.
        if n % 5 == 4 {
            published.push(orders[n.saturating_sub(n % 40)].clone());
        }
    }
    assert_eq!(published.len(), orders.len() + copies);
    scene.publish(&published).await;
    let workers = vec![scene.start().await, scene.start().await];
    // A worker that ends releases what it has prefetched, and nobody would take the last copies.
    let duplicate = |outcome: &Outcome| *outcome == Outcome::Duplicate;
    scene.effects(orders.len()).await;
    scene.world.journal.until("each copy is known", |journal| journal.count(duplicate) >= copies).await;
    let dead = scene.ends_with(orders, workers).await;
    assert!(dead.is_empty(), "{dead:?}");
}

async fn no_ack_is_sent_before_the_database_has_the_message<B: Broker>(scene: &Scene<B>) {
    let (source, witness) = Witness::new(&scene.world, scene.site.source().await);
    let worker = scene.start_from(source, |worker| worker);
    let orders: Vec<_> = [(40, Act::Write), (20, Act::Take(5)), (10, Act::Fail(1))]
        .into_iter()
        .enumerate()
        .flat_map(|(kind, (count, act))| orders(&format!("order-{kind}"), count, act))
        .collect();
    scene.publish(&orders).await;
    let dead = scene.ends_with(orders, vec![worker]).await;
    assert!(dead.is_empty(), "{dead:?}");
    let Seen { committed, early } = witness.seen();
    assert!(early.is_empty(), "acked before the database had them: {early:?}");
    assert!(committed >= 70, "{committed}");
}

async fn a_consumer_that_the_broker_has_forgotten_goes_on<B: Broker>(scene: &Scene<B>) {
    let before = orders("before", 20, Act::Write);
    scene.publish(&before).await;
    let mut worker = scene.start().await;
    scene.effects(20).await;
    // If the broker forgets only an inactive consumer, settled messages are redelivered to the next one.
    if scene.site.forget().await {
        until("the worker has noticed", || async { !worker.health.is_ready() }).await;
        scene.site.restore().await;
    } else {
        worker.stop().await.unwrap();
        assert!(scene.site.forget().await, "the broker forgets nobody");
        worker = scene.start().await;
    }
    let after = orders("after", 20, Act::Write);
    scene.publish(&after).await;
    let dead = scene.ends_with([before, after].concat(), vec![worker]).await;
    assert!(dead.is_empty(), "{dead:?}");
}
