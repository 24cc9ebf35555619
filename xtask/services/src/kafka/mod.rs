//! Apache Kafka: its broker, the certificate of that, and its jars, installed or downloaded from Maven Central.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::java::{self, Jars};
use crate::server::Server;
use crate::{Instance, place, process};

/// Apache Kafka: one node (KRaft), no password, listening on the loopback address only. Topics are not created
/// automatically. Two more listeners, named in its configuration, require a login: `idem` with password `idem`. One of them
/// speaks TLS, with a certificate for `localhost` from an authority that its configuration names as `ssl.truststore.location`.
///
/// The programs are those in `KAFKA_HOME` or `/opt/kafka` (Kafka 4), else they are downloaded from Maven Central. Java
/// 17 or newer runs them.
#[derive(Debug, Clone, Copy)]
pub struct Kafka;

impl Kafka {
    /// The version downloaded from Maven Central.
    pub const VERSION: &str = "4.1.1";

    /// Starts a private instance, whose address is `host:port`. Fails if Kafka can neither be found nor downloaded, or does
    /// not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

pub(crate) const SERVER: Server = Server {
    name: "kafka",
    variable: "KAFKA_BROKERS",
    url: |port| format!("127.0.0.1:{port}"),
    // They run and download Kafka.
    packages: &["default-jre-headless", "maven"],
    choice: "KAFKA_HOME",
    is_installed: || (installed().is_some() || JARS.can_be_had()) && java::program().is_some(),
    create,
    launch,
    pids: &["pid"],
    shutdown: Signal::SIGTERM,
};

fn create(home: &Path, port: u16) -> Result<()> {
    let (controller, dir) = (place::free_port()?, home.display());
    let clients = format!(
        "PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{},SASL_SSL://localhost:{}",
        place::free_port()?,
        place::free_port()?
    );
    let place = format!(
        "listeners={clients},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners={clients}\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\nlog.dirs={dir}/data\n\
         ssl.keystore.location={dir}/broker.pem\nssl.truststore.location={dir}/authority.pem\n"
    );
    let certificate = Certificate::new("localhost")?;
    place::write(&home.join("broker.pem"), &certificate.broker)?;
    place::write(&home.join("authority.pem"), &certificate.authority)?;
    place::write(&home.join("server.properties"), &format!("{}{place}", include_str!("server.properties")))?;
    place::write(&home.join("log4j2.properties"), include_str!("log4j2.properties"))?;
    // A cluster id is 16 bytes in base64, whose last character holds only two bits.
    let id = format!("idem{port:017}A");
    let mut format = java(home, &libs()?)?;
    format.args(["kafka.tools.StorageTool", "format", "-t", &id, "-c", "server.properties"]);
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        format.arg("--add-scram").arg(format!("{mechanism}=[name=idem,password=idem]"));
    }
    process::run(&mut format)?;
    Ok(())
}

fn launch(home: &Path, port: u16) -> Result<()> {
    let mut server = java(home, &libs()?)?;
    server.args(["kafka.Kafka", "server.properties"]);
    // It listens for a while before it serves requests.
    let started = || fs::read_to_string(home.join("log")).is_ok_and(|log| log.contains("Kafka Server started"));
    let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    process::launch("Apache Kafka", &mut server, home, || started() && listens())
}

/// A certificate from an authority whose key is not kept, as PEM.
struct Certificate {
    /// The certificate of the authority.
    authority: String,
    /// The broker's key and certificate.
    broker: String,
}

impl Certificate {
    /// Creates an authority, and a certificate for this host name.
    fn new(host: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        // By default, this name is also that of the broker's certificate, which OpenSSL would then take for self-signed.
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &authority)?;
        Ok(Self { authority: authority.pem(), broker: key.serialize_pem() + &certificate.pem() })
    }
}

/// Returns Java with Kafka's jars, which logs as its configuration in `home` says.
fn java(home: &Path, libs: &Path) -> Result<Command> {
    let mut java = java::command(home, libs)?;
    java.arg("-Dlog4j2.configurationFile=log4j2.properties");
    Ok(java)
}

const JARS: Jars = Jars {
    name: "Apache Kafka",
    directory: "kafka",
    version: Kafka::VERSION,
    pom: include_str!("pom.xml"),
    otherwise: "unpack Apache Kafka 4 and set KAFKA_HOME, or set KAFKA_BROKERS",
};

/// Returns the directory with the jars: those that are installed, else those of Maven Central.
fn libs() -> Result<PathBuf> {
    installed().map_or_else(|| JARS.get(), Ok)
}

fn installed() -> Option<PathBuf> {
    let homes = [std::env::var_os("KAFKA_HOME").map(PathBuf::from), Some(PathBuf::from("/opt/kafka"))];
    homes.into_iter().flatten().map(|home| home.join("libs")).find(|libs| libs.is_dir())
}
