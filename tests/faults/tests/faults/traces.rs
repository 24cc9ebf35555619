//! The steps of workers in separate processes, which are killed: each message took a path of the model.

use idem_faults::{Act, Broker, Process, Scene, Setting, fresh, orders};
use idem_model::check_trace;
use idem_test::trace::Trace;
use tokio::sync::Mutex;

use crate::everywhere::on_servers;

on_servers! {
    the_steps_of_processes_that_are_killed_are_a_path_of_the_model
}

/// One case at a time: their leases are half a second, and the model knows of no process that is too slow to keep one and then
/// fetches its own row again.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn the_steps_of_processes_that_are_killed_are_a_path_of_the_model<B: Broker>(scene: &Scene<B>) {
    let _alone = ALONE.lock().await;
    let folder = std::env::temp_dir().join(fresh("idem-traces"));
    std::fs::create_dir(&folder).unwrap();
    let traces = folder.display().to_string();
    let setting = Setting { traces, ..Setting::of(&scene.world, &scene.site, scene.mode) };
    let start = || Process::start(env!("CARGO_BIN_EXE_worker"), &setting);

    // The model has two workers, so that a third process starts when one of the first two is gone. Both work before one of
    // them can have done everything, and each has begun its trace before it is killed.
    let (mut first, mut second) = (start(), start());
    first.started().await;
    second.started().await;
    let mut all = orders("order", 120, Act::Take(20));
    all.extend(orders("failing", 30, Act::Fail(1)));
    scene.publish(&all).await;
    scene.effects(30).await;
    first.kill().await;
    let mut third = start();
    scene.effects(80).await;
    second.kill().await;
    let mut fourth = start();
    scene.effects(all.len()).await;
    // A killed process may have stored messages without an ack: they come again to one that still runs.
    scene.settled().await;
    // On a busy machine, the others may have done everything meanwhile.
    third.started().await;
    third.interrupt().await;
    fourth.started().await;
    fourth.interrupt().await;
    let dead = scene.ends_with(all, Vec::new()).await;
    assert!(dead.is_empty(), "{dead:?}");

    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 4);
    let texts: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let trace = Trace::killed(&texts);
    match check_trace(&trace) {
        Ok(checked) => println!("{checked}"),
        Err(refusal) => panic!("{refusal}\nThe traces are in {}.", folder.display()),
    }
    std::fs::remove_dir_all(folder).unwrap();
}
