//! Counts the allocations of the framework alone: `idem-bench-allocations` prints how many a message has, with 16 in flight.
//!
//! This is a separate program, because an allocator that counts is slow.

#[path = "../idle.rs"]
mod idle;
#[path = "../queue.rs"]
#[allow(dead_code, reason = "the other program uses all of it")]
mod queue;

use anyhow::Result;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const IN_FLIGHT: usize = 16;
const MESSAGES: usize = 20_000;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let count = |messages: usize| {
        let queue = idle::numbers(messages);
        let before = dhat::HeapStats::get().total_blocks;
        runtime.block_on(idle::run(IN_FLIGHT, queue))?;
        anyhow::Ok(dhat::HeapStats::get().total_blocks - before)
    };
    let _profiler = dhat::Profiler::builder().testing().build();
    // One-time allocations are made in the first run. Those of the start and the end of a worker are in each.
    count(MESSAGES)?;
    let (few, many) = (count(MESSAGES)?, count(2 * MESSAGES)?);
    println!("{:.2} allocations a message", many.saturating_sub(few) as f64 / MESSAGES as f64);
    Ok(())
}
