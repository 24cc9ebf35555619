//! Runs the cases, and prints one line for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::case::Case;
use crate::search::{End, Searched};

/// Runs all cases, several at a time, and prints their results in order. Returns how many were not as they must be.
pub(crate) fn report(cases: &[Case], traces: bool) -> usize {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((place, case)) = cases.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver lives for as long as the scope.
                    drop(sender.send((place, case.run())));
                }
            });
        }
        drop(sender);
        print(cases, &receiver, traces)
    })
}

/// Prints each result as soon as those before it are printed.
fn print(cases: &[Case], results: &mpsc::Receiver<(usize, Searched)>, traces: bool) -> usize {
    let (mut waiting, mut wrong) = (std::collections::BTreeMap::new(), 0);
    for (place, case) in cases.iter().enumerate() {
        let searched = loop {
            if let Some(searched) = waiting.remove(&place) {
                break searched;
            }
            let Ok((done, searched)) = results.recv() else { return wrong + cases.len() - place };
            waiting.insert(done, searched);
        };
        let (right, line) = line(case, &searched);
        println!("{line}");
        wrong += usize::from(!right);
        if let End::Violated(_, trace) = &searched.end
            && (traces || !right)
        {
            trace.iter().for_each(|step| println!("         {step}"));
        }
    }
    wrong
}

/// Whether a case is as it must be, and its line.
fn line(case: &Case, Searched { states, end }: &Searched) -> (bool, String) {
    let (right, word, end) = match (case.violates, end) {
        (None, End::Exhausted) => (true, "holds", "no violation".to_owned()),
        (Some(expected), End::Violated(found, trace)) if expected == *found => {
            (true, "caught", format!("{found} after {} steps", trace.len()))
        }
        (_, End::Violated(found, trace)) => (false, "FAILED", format!("{found} after {} steps", trace.len())),
        (Some(expected), End::Exhausted) => (false, "MISSED", format!("never {expected}")),
        (_, End::Limit) => (false, "TOO LARGE", "not searched to the end".to_owned()),
    };
    (right, format!("{word:<9}{:<9}{}: {end}, {states} states", case.part, case.text))
}
