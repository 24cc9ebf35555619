//! Another library: a separate program in `benches/peers`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

#[derive(Deserialize)]
struct Answer {
    rate: f64,
    effects: usize,
}

/// Runs the program, and returns the messages per second. The rows of its handler are counted, so that no library can skip
/// work.
pub(crate) async fn run(program: &Path, url: &str, lanes: usize, messages: usize) -> Result<f64> {
    let mut command = Command::new(program);
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
