//! The suites that run on each set of servers.

use std::process::Command;

use anyhow::{Context, Result};

use super::newest::Found;

/// A suite that runs on each set of servers.
pub(crate) enum Suite {
    /// The tests of the adapters.
    Adapters,
    /// The tests of the PostgreSQL store, and the pipeline on it.
    Stores,
    /// Faults, on each broker in each mode.
    Faults,
    /// A small campaign of the demo.
    Demo,
}

/// The addresses of servers that already run.
const ADDRESSES: &[&str] = &["DATABASE_URL", "AMQP_URL", "NATS_URL", "KAFKA_BROKERS"];

/// Numbers that CI cannot afford: the backlog in each of six partitions beside a failing head, and the messages of which
/// a fifth comes twice. Both make 10,000 messages.
const NUMBERS: [(&str, &str); 2] = [("IDEM_BACKLOG", "1667"), ("IDEM_MESSAGES", "10000")];

impl Suite {
    pub(crate) const ALL: &[Self] = &[Self::Adapters, Self::Stores, Self::Faults, Self::Demo];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Adapters => "adapters",
            Self::Stores => "stores",
            Self::Faults => "faults",
            Self::Demo => "demo",
        }
    }

    fn chore(&self) -> &'static [&'static str] {
        match self {
            Self::Adapters => &["test", "--", "-p", "idem-rabbitmq", "-p", "idem-nats", "-p", "idem-kafka"],
            Self::Stores => &[
                "test",
                "--",
                "-p",
                "idem-core",
                "-p",
                "idem-conformance",
                "--test",
                "postgres_store",
                "--test",
                "store_postgres",
                "--test",
                "pipeline_postgres",
            ],
            Self::Faults => &["test", "--", "-p", "idem-faults"],
            Self::Demo => &["demo", "--all", "--small"],
        }
    }

    /// Runs the suite as a separate chore, whose environment selects the servers. Returns whether it passed.
    pub(crate) fn run(&self, servers: &[Found]) -> Result<bool> {
        let mut chore = Command::new(std::env::current_exe().context("cannot find this program")?);
        chore.args(self.chore());
        // An address takes precedence over a program, and the running servers have another version.
        ADDRESSES.iter().for_each(|name| _ = chore.env_remove(name));
        // The servers in containers have versions of their own, and would be preferred.
        chore.env(idem_services::WITHOUT_DOCKER, "1").envs(NUMBERS);
        for (name, path) in servers.iter().filter_map(Found::choice) {
            chore.env(name, path);
        }
        Ok(chore.status().context("cannot run a chore")?.success())
    }
}
