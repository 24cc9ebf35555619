//! ElasticMQ, a server that speaks the protocol of SQS, from Maven Central.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::java::{self, Jars};
use crate::server::Server;
use crate::{Instance, place, process};

/// ElasticMQ with the limits of SQS, listening on the loopback address only. It accepts any credentials. Queues and messages are in
/// files; it responds before it has read them.
///
/// Its jars are downloaded from Maven Central. Java 17 or newer runs them.
#[derive(Debug, Clone, Copy)]
pub struct Sqs;

impl Sqs {
    /// The version downloaded from Maven Central.
    pub const VERSION: &str = "1.7.1";

    /// Starts a private instance. Fails if ElasticMQ cannot be downloaded, or does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

pub(crate) const SERVER: Server = Server {
    name: "sqs",
    variable: "SQS_URL",
    url: |port| format!("http://127.0.0.1:{port}"),
    // They run and download ElasticMQ.
    packages: &["default-jre-headless", "maven"],
    // No other program can be chosen, only another server by its address.
    choice: "",
    is_installed: || JARS.can_be_had() && java::program().is_some(),
    create: |home, port| {
        let config = include_str!("elasticmq.conf").replace("PORT", &port.to_string());
        place::write(&home.join("elasticmq.conf"), &config)
    },
    launch,
    pids: &["pid"],
    shutdown: Signal::SIGTERM,
};

const JARS: Jars = Jars {
    name: "ElasticMQ",
    directory: "elasticmq",
    version: Sqs::VERSION,
    pom: include_str!("pom.xml"),
    otherwise: "start a server with the protocol of SQS and set SQS_URL",
};

fn launch(home: &Path, port: u16) -> Result<()> {
    let mut server = java::command(home, &JARS.get()?)?;
    server.args(["-Dconfig.file=elasticmq.conf", "org.elasticmq.server.Main"]);
    process::launch("ElasticMQ", &mut server, home, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
}
