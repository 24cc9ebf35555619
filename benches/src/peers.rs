//! Other libraries, each a separate program in `benches/peers`, because their dependencies must not become idem's.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

/// One of the libraries.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
}

#[derive(Deserialize)]
struct Answer {
    rate: f64,
    effects: usize,
}

impl Peer {
    /// Returns the messages per second. The rows of the handler, or those that a relay has marked, are counted, so that no
    /// library can skip work.
    pub(crate) async fn run(&self, url: &str, lanes: usize, messages: usize) -> Result<f64> {
        let name = &self.name;
        let ran = Command::new(&self.program)
            .args(["--lanes", &lanes.to_string(), "--messages", &messages.to_string()])
            .env("DATABASE_URL", url)
            .kill_on_drop(true)
            .output();
        let ran = tokio::time::timeout(std::time::Duration::from_secs(120), ran).await;
        let ran = ran.with_context(|| format!("{name} did not end within two minutes"))??;
        let err = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "{name} failed: {}", err.lines().last().unwrap_or_default());
        let out = String::from_utf8_lossy(&ran.stdout);
        let answer: Answer = serde_json::from_str(out.lines().last().unwrap_or_default())
            .with_context(|| format!("{name} told no rate: {out}"))?;
        let effects = answer.effects;
        ensure!(effects == messages, "{name} wrote {effects} rows for {messages} messages");
        Ok(answer.rate)
    }
}
