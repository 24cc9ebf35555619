//! How many index entries reads visit. Those of rows that were deleted are still there, as under an old snapshot.

use super::model::Model;

/// Three keys of one lane.
const HOT: usize = 1;
const REFUSED: usize = 3;
const OTHER: usize = 5;

fn read(model: &mut Model) {
    model.begin(1000, false);
    model.end(true);
    model.publish();
}

fn stage(model: &mut Model, key: usize, messages: usize) {
    model.stage(0, key, messages);
    model.commit(0);
}

/// A key waits for the next attempt of its first message all the time, and another one always has more messages than are
/// kept. Its reads begin no lower than they have to, although other transactions begin and end.
#[tokio::test]
async fn a_hot_key_is_not_read_from_where_another_one_was_left_out() {
    let mut model = Model::new(1, false);
    stage(&mut model, REFUSED, 1);
    read(&mut model);
    let refused = model.publishing.pop().unwrap();
    model.queue.hold(&refused);
    stage(&mut model, HOT, 150);
    let mut lag = 0;
    for tick in 0..1000 {
        model.at(f64::from(tick) / 100.0);
        // Transactions of 200 ms, of which one ends at each tick.
        let transaction = model.number();
        model.open.insert(transaction, Vec::new());
        if model.open.len() > 20 {
            let oldest = *model.open.keys().next().unwrap();
            model.commit(oldest);
        }
        stage(&mut model, HOT, 5);
        for _ in 0..5 {
            if let Some(first) = model.publishing.pop() {
                model.confirm(first);
                model.publish();
            }
        }
        model.delete_confirmed();
        read(&mut model);
        if tick >= 800 {
            lag = model.looks.iter().map(|look| model.next_id - look.floor).fold(lag, i64::max);
        }
    }
    let done = model.rows.values().filter(|row| row.is_done).count();
    assert!(done > 4900, "{done}: it stands still");
    assert!(lag < 2000, "reads visit the {lag} last messages of its {done}");
}

/// Half of a large backlog of one key is published, one after the other, while others are staged behind it.
#[tokio::test]
async fn a_backlog_that_is_left_out_is_not_visited_again_and_again() {
    let mut model = Model::new(1, false);
    stage(&mut model, HOT, 2000);
    for tick in 0..1000 {
        model.at(f64::from(tick) / 100.0);
        stage(&mut model, OTHER, 5);
        read(&mut model);
        for _ in 0..5 {
            let (hot, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut model.publishing).into_iter().partition(|entry| entry.id <= 2000);
            others.into_iter().for_each(|entry| model.confirm(entry));
            model.publishing = hot;
            model.publish();
        }
        let hot = model.publishing.iter().position(|entry| entry.id <= 2000).map(|at| model.publishing.remove(at));
        hot.into_iter().for_each(|entry| model.confirm(entry));
        model.publish();
        model.delete_confirmed();
        if tick == 800 {
            model.visited = 0;
        }
    }
    let done = model.rows.values().filter(|row| row.is_done).count();
    assert!(done > 5900, "{done}: one of them stands still");
    let entries = model.visited / 200;
    assert!(entries < 2000, "each read visits {entries}");
}

/// On SQLite. The first message of a large backlog waits for its next attempt, and nothing else is staged.
#[tokio::test]
async fn a_backlog_behind_which_nothing_is_found_is_not_visited_again_and_again() {
    let mut model = Model::new(1, false);
    model.is_in_order = true;
    stage(&mut model, HOT, 2000);
    read(&mut model);
    let refused = model.publishing.pop().unwrap();
    model.queue.hold(&refused);
    for tick in 0..300 {
        model.at(f64::from(tick) / 50.0);
        if tick == 200 {
            model.visited = 0;
        }
        read(&mut model);
    }
    assert_eq!(model.visited, 0);
    model.queue.give_up(&refused);
    read(&mut model);
    assert_eq!(model.publishing.pop().map(|entry| entry.id), Some(1), "it is read from its start");
}
