//! End-to-end fault tests on real servers.

mod broker_outage;
mod cancel;
mod commit;
mod content;
mod crash;
mod drain;
mod duplicates;
mod everywhere;
mod example;
mod handlers;
mod long_outage;
mod orphans;
mod outage;
mod partitions;
mod process;
#[path = "../../../../idem-adapters/rabbitmq/tests/on_rabbitmq/common/raw.rs"]
mod raw;
mod returns;
mod session;
mod settling;
mod sharing;
mod start;
mod traces;
mod unreadable;
