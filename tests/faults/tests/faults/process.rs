//! Workers in separate processes, which a message ends. `traces` has those that are killed.

use std::time::Duration;

use idem::Reason;
use idem_faults::{Act, Broker, Order, Process, Scene, Setting, orders, within};

use crate::everywhere::on_servers;

on_servers! {
    a_killer_is_a_dead_letter_after_five_deaths_and_its_neighbours_are_unharmed
}

const INNOCENTS: usize = 15;

async fn a_killer_is_a_dead_letter_after_five_deaths_and_its_neighbours_are_unharmed<B: Broker>(scene: &Scene<B>) {
    // All sixteen are in flight when it ends the process.
    let innocents = orders("innocent", INNOCENTS, Act::Take(500));
    scene.publish(&[Order::new("killer", Act::Abort(300))]).await;
    scene.publish(&innocents).await;

    let mut deaths = 0;
    let mut process = start(scene);
    within("the killer is dead and the innocents are processed", async {
        loop {
            tokio::select! {
                ended = process.ended() => {
                    assert!(!ended.success());
                    deaths += 1;
                    process = start(scene);
                }
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    let dead = scene.world.rows(&scene.store).await.iter().any(|row| row.reason.is_some());
                    if dead && scene.world.all_effects().await.len() >= INNOCENTS {
                        break;
                    }
                }
            }
        }
    })
    .await;
    println!("the process died {deaths} times");
    assert!((1..=5).contains(&deaths), "{deaths} deaths");
    process.kill().await;

    let last = Order::new("last", Act::Write);
    scene.publish(std::slice::from_ref(&last)).await;
    let worker = scene.start().await;
    let dead = scene.ends_with(innocents.into_iter().chain([last]), vec![worker]).await;
    let [row] = &dead[..] else { panic!("{dead:?}") };
    assert_eq!((row.reason, row.attempts), (Some(Reason::Crashed), 0));
    assert!(row.delivery.payload().windows(6).any(|word| word == b"killer"));
    let attempts: Vec<_> = scene.world.all_effects().await.into_iter().map(|(_, attempt)| attempt).collect();
    assert_eq!(attempts, [1; INNOCENTS + 1], "an attempt of an innocent was recorded");
}

fn start<B: Broker>(scene: &Scene<B>) -> Process {
    Process::start(env!("CARGO_BIN_EXE_worker"), &Setting::of(&scene.world, &scene.site, scene.mode))
}
