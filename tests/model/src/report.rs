//! Runs the cases, and prints one line for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::case::{Case, Expected};
use crate::property::Property;
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
        if let End::Violated(_, trace) | End::Unsound(_, trace) = &searched.end
            && (traces || !right)
        {
            trace.iter().for_each(|step| println!("         {step}"));
        }
    }
    wrong
}

/// Whether a case is as it must be, and its line.
fn line(case: &Case, Searched { states, end }: &Searched) -> (bool, String) {
    let after = |found: &Property, trace: &[String]| format!("{found} after {} steps", trace.len());
    let (right, word, end) = match (case.expected, end) {
        (Expected::Holds, End::Exhausted) => (true, "holds", "no violation".to_owned()),
        (Expected::Caught(expected), End::Violated(found, trace)) if expected == *found => {
            (true, "caught", after(found, trace))
        }
        (Expected::Limit(expected), End::Violated(found, trace)) if expected == *found => {
            (true, "limit", after(found, trace))
        }
        (_, End::Violated(found, trace)) => (false, "FAILED", after(found, trace)),
        (_, End::Unsound(found, trace)) => (false, "UNSOUND", format!("even with the rule, {}", after(found, trace))),
        (Expected::Caught(expected) | Expected::Limit(expected), End::Exhausted) => {
            (false, "MISSED", format!("never {expected}"))
        }
        (_, End::Limit) => (false, "TOO LARGE", "not searched to the end".to_owned()),
    };
    (right, format!("{word:<10}{:<10}{}: {end}, {states} states", case.part, case.text))
}
