//! Faults, end to end, on real servers.

mod barrier;
mod breaks;
mod cancel;
mod commit;
mod drain;
mod duplicates;
mod example;
mod handlers;
mod killer;
mod outage;
mod retries;
mod start;
