//! The program of all measurements, and servers for one of them.

use std::process::Command;

use anyhow::{Context, Result};
use idem_services::Instance;

use crate::cargo::{cargo, root, run};

/// Builds the program as a release build.
pub(crate) fn program() -> Result<Command> {
    run(&mut cargo(["build", "--release", "--package", "idem-bench", "--bins"]))?;
    Ok(Command::new(root().join("target/release/idem-bench")))
}

/// The brokers, as they are named in arguments.
pub(crate) const BROKERS: [&str; 3] = ["rabbitmq", "nats", "kafka"];

/// Servers that end with this value, which must be dropped before the process exits: an exit drops nothing.
pub(crate) struct Servers {
    _instances: Vec<Instance>,
    /// Whether the database was started for this measurement and has no other users.
    pub(crate) owns_database: bool,
}

/// Starts PostgreSQL and these brokers for this measurement alone, so that no concurrent test uses them, unless the
/// environment names them. The measurement reports a broker that is missing.
pub(crate) fn servers(program: &mut Command, brokers: &[&str]) -> Result<Servers> {
    let named = |variable: &str| std::env::var(variable).is_ok_and(|url| !url.is_empty());
    idem_services::prepare()?;
    let (mut instances, owns_database) = (Vec::new(), !named("DATABASE_URL"));
    if owns_database {
        eprintln!("starting a PostgreSQL for this measurement");
        let server = idem_services::Postgres::start()?;
        program.env("DATABASE_URL", server.url());
        instances.push(server);
    }
    for broker in brokers {
        let (variable, start): (_, fn() -> Result<Instance>) = match *broker {
            "rabbitmq" => ("AMQP_URL", idem_services::RabbitMq::start),
            "nats" => ("NATS_URL", idem_services::Nats::start),
            "kafka" => ("KAFKA_BROKERS", idem_services::Kafka::start),
            _ => continue,
        };
        if named(variable) {
            continue;
        }
        match start() {
            Ok(server) => {
                program.env(variable, server.url());
                instances.push(server);
            }
            Err(error) => eprintln!("{variable}: {error:#}"),
        }
    }
    Ok(Servers { _instances: instances, owns_database })
}

/// Runs the program, ends the servers, and exits with the exit code of the program.
pub(crate) fn finish(mut program: Command, servers: Servers) -> Result<()> {
    let status = program.status().context("cannot run the measurement")?;
    drop(servers);
    std::process::exit(status.code().unwrap_or(1))
}
