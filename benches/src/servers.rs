//! The servers of a measurement, and the other library that is measured beside idem: a separate program in `benches/peers`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use idem_services::{Instance, root};
use serde::Deserialize;
use tokio::time::timeout;

use crate::plan::Broker;

/// The servers. Those that were started end with this value.
pub(crate) struct Servers {
    _started: Vec<Instance>,
    /// The address of PostgreSQL.
    pub(crate) database: String,
    /// Whether PostgreSQL was started for this measurement, and has no other users.
    pub(crate) owns_database: bool,
    brokers: Vec<(Broker, String)>,
}

impl Servers {
    /// Finds PostgreSQL and these brokers in the environment, or starts them for this measurement alone, so that no
    /// concurrent test uses them. Blocks.
    pub(crate) fn start(brokers: &[Broker]) -> Result<Self> {
        idem_services::prepare()?;
        let mut started = Vec::new();
        let mut address = |variable: &str, start: &dyn Fn() -> Result<Instance>| {
            if let Some(url) = std::env::var(variable).ok().filter(|url| !url.is_empty()) {
                return anyhow::Ok(url);
            }
            eprintln!("starting a server for this measurement: {variable} is not set");
            let server = start()?;
            let url = server.url().to_owned();
            started.push(server);
            Ok(url)
        };
        let database = address("DATABASE_URL", &idem_services::Postgres::start)?;
        let mut found = Vec::new();
        for broker in brokers {
            found.push((*broker, address(broker.variable(), &|| broker.start())?));
        }
        let owns_database = std::env::var("DATABASE_URL").unwrap_or_default() != database;
        Ok(Self { _started: started, database, owns_database, brokers: found })
    }

    /// Returns the address of a broker that was asked for.
    pub(crate) fn address(&self, broker: Broker) -> Result<&str> {
        let found = self.brokers.iter().find(|(known, _)| *known == broker);
        found.map(|(_, address)| address.as_str()).with_context(|| format!("{broker} was not asked for"))
    }
}

/// Returns `target/bench` of this repository.
pub(crate) fn directory() -> Result<PathBuf> {
    let target = root().join("target/bench");
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    Ok(target)
}

/// Builds the program of the other library, which is a workspace of its own, because its dependencies must not become
/// idem's.
pub(crate) fn build_peer() -> Result<PathBuf> {
    eprintln!("building backbone-outbox");
    let (target, log) = (root().join("target/peers"), directory()?.join("backbone-outbox.log"));
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--release", "--locked", "--quiet", "--target-dir"]).arg(&target).arg("--manifest-path");
    build.arg(root().join("benches/peers/backbone-outbox/Cargo.toml")).stderr(File::create(&log)?);
    let built = build.status().context("cannot run cargo")?;
    ensure!(built.success(), "backbone-outbox does not build, see {}", log.display());
    Ok(target.join("release/peer-backbone-outbox"))
}

#[derive(Deserialize)]
struct Answer {
    rate: f64,
    effects: usize,
}

/// Runs the program, and returns the messages per second. The rows of its handler are counted, so that no library can skip
/// work.
pub(crate) async fn run_peer(program: &Path, url: &str, lanes: usize, messages: usize) -> Result<f64> {
    let mut command = tokio::process::Command::new(program);
    command.args([lanes.to_string(), messages.to_string()]).env("DATABASE_URL", url).kill_on_drop(true);
    let ran = timeout(Duration::from_secs(120), command.output()).await;
    let ran = ran.context("the program did not end within two minutes")??;
    let [out, err] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    ensure!(ran.status.success(), "the program failed: {}", err.lines().last().unwrap_or_default());
    let answer = serde_json::from_str(out.lines().last().unwrap_or_default());
    let Answer { rate, effects } = answer.with_context(|| format!("the program printed no rate: {out}"))?;
    ensure!(effects == messages, "{effects} rows were written for {messages} messages");
    Ok(rate)
}
