//! PostgreSQL's own client with the same statements, which validates the baseline independently.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use percent_encoding::percent_decode_str;
use tokio::process::Command;
use url::Url;

use crate::message::PGBENCH;

/// The baseline's statements, each a round trip. A prepared BEGIN cannot carry settings, so they are set once per
/// connection, which favours pgbench. The server generates the key, so pgbench does not decode a message.
fn script() -> String {
    format!(
        "\\set amount random(1, 10000)\n\
         BEGIN;\n\
         INSERT INTO idem_bench.pgbench (handler_id, key, fingerprint, processed_at) \
         VALUES (1, uuid_send(gen_random_uuid()), '\\\\x000102030405060708090a0b0c0d0e0f', now()) \
         ON CONFLICT DO NOTHING RETURNING pg_current_xact_id()::text AS xid \\gset\n\
         INSERT INTO idem_bench.effects (side, order_id, amount) VALUES ({PGBENCH}, :client_id, :amount);\n\
         SELECT pg_current_xact_id_if_assigned()::text;\n\
         COMMIT;\n"
    )
}

/// The settings of the loop by hand, in the form that libpq reads from the environment.
const SETTINGS: &str = "-c lock_timeout=1000 -c statement_timeout=30000 -c idle_in_transaction_session_timeout=40000 \
    -c synchronous_commit=on";

/// pgbench with its script, against one database.
pub(crate) struct Pgbench {
    program: PathBuf,
    script: PathBuf,
    target: Url,
    password: String,
}

impl Pgbench {
    /// Finds the program.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let program = program().context("pgbench is not installed: on Debian it comes with the package postgresql")?;
        let script = crate::servers::directory()?.join("by_hand.pgbench");
        std::fs::write(&script, self::script())?;
        let mut target = Url::parse(url).context("DATABASE_URL cannot be read")?;
        let password = percent_decode_str(target.password().unwrap_or_default()).decode_utf8()?.into_owned();
        // Every user of the machine can read the arguments of a process.
        if target.set_password(None).is_err() {
            bail!("DATABASE_URL names no host");
        }
        Ok(Self { program, script, target, password })
    }

    /// Returns the transactions per second.
    pub(crate) async fn run(&self, clients: usize, transactions: usize) -> Result<f64> {
        let each = (transactions / clients).max(1).to_string();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(clients).to_string();
        let ran = Command::new(&self.program)
            .args(["--no-vacuum", "--protocol=prepared", "--client", &clients.to_string(), "--jobs", &threads])
            .args(["--transactions", &each, "--file"])
            .arg(&self.script)
            .arg(self.target.as_str())
            .env("PGPASSWORD", &self.password)
            .env("PGOPTIONS", SETTINGS)
            .output()
            .await?;
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        ensure!(ran.status.success(), "pgbench failed: {out}{err}");
        let tps = out.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
        tps.and_then(|tps| tps.parse().ok()).with_context(|| format!("pgbench told no rate: {out}"))
    }
}

/// Returns the program in `PATH`, else the newest of Debian's.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|dir| dir.join("pgbench")).find(|file| file.is_file());
    let version = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let debian = || std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    in_path.or_else(|| debian().max_by_key(version).map(|dir| dir.join("bin/pgbench")).filter(|file| file.is_file()))
}
