//! Counts the allocations of the framework alone, and prints their origins: `idem-bench-allocations [in flight]`.
//!
//! This is a separate program, because an allocator that counts and records is slow.

#[path = "../idle.rs"]
mod idle;
#[path = "../nothing.rs"]
mod nothing;

use anyhow::{Context, Result};
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const MESSAGES: usize = 20_000;
/// Rarer allocations belong to the start and the end of the worker.
const OFTEN: f64 = 0.05;

/// The part of dhat's file that is read here: each origin with its number of blocks and its stack.
#[derive(Deserialize)]
struct Profile {
    pps: Vec<Place>,
    ftbl: Vec<String>,
}

#[derive(Deserialize)]
struct Place {
    tb: u64,
    tbk: u64,
    fs: Vec<usize>,
}

fn main() -> Result<()> {
    let in_flight = std::env::args().nth(1).map_or(Ok(16), |text| text.parse())?;
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench");
    std::fs::create_dir_all(directory)?;
    let file = format!("{directory}/allocations.json");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // One-time allocations are made here, before the count.
    runtime.block_on(idle::run(in_flight, 2_000))?;
    let profiler = dhat::Profiler::builder().file_name(&file).trim_backtraces(Some(60)).build();
    runtime.block_on(idle::run(in_flight, MESSAGES))?;
    drop(profiler);
    let profile: Profile = serde_json::from_slice(&std::fs::read(&file)?).context("dhat's file cannot be read")?;
    let each = |count: u64| count as f64 / MESSAGES as f64;
    let mut places: Vec<_> = profile.pps.iter().filter(|place| each(place.tbk) >= OFTEN).collect();
    places.sort_by_key(|place| std::cmp::Reverse(place.tbk));
    println!(
        "{:.2} allocations a message, {in_flight} in flight",
        places.iter().map(|place| each(place.tbk)).sum::<f64>()
    );
    for place in places {
        println!("\n{:.2} of {} bytes", each(place.tbk), place.tb / place.tbk);
        let stack = place.fs.iter().filter_map(|at| profile.ftbl.get(*at));
        for frame in stack.filter_map(|frame| shown(frame)).take(5) {
            println!("    {frame}");
        }
    }
    Ok(())
}

/// Formats a frame of idem: the place before the function. Returns `None` for other frames and for the machinery of
/// panics and tasks.
fn shown(frame: &str) -> Option<String> {
    const MACHINERY: [&str; 6] = ["catch_unwind", "do_call", "call_once", "tokio::", "/boxed.rs", "tracing-"];
    let (_, frame) = frame.split_once(": ")?;
    if !frame.contains("idem") || MACHINERY.iter().any(|part| frame.contains(part)) {
        return None;
    }
    let (function, place) = frame.rsplit_once(" (")?;
    let function: String = function.chars().take(90).collect();
    Some(format!("{:40} {function}", place.trim_end_matches(')')))
}
