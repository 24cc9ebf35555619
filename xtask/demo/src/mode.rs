//! How much a run has to do, and how the workers consume messages.

use std::fmt;

/// How the workers consume messages.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Mode {
    /// Let the workers store each message, ack it, and run it from the inbox.
    #[arg(long)]
    pub(crate) inbox: bool,
    /// Let the workers process up to this many messages in one transaction.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) batch: u16,
    /// Let the handler take each batch as a whole.
    #[arg(long)]
    pub(crate) whole: bool,
}

/// The amount of work.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Load {
    /// The number of messages.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) messages: u64,
    /// The percentage of messages that are published twice.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(crate) duplicates: u64,
    /// How often a worker is killed, 5 by default; some of the kills are between commit and ack. With `--relay`, how
    /// often a relay is killed, 20 by default; some of the kills are between confirm and delete.
    #[arg(long)]
    pub(crate) kills: Option<usize>,
    /// How many workers, or relays with `--relay`, run concurrently.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=5))]
    pub(crate) workers: u64,
}

/// The batch size of the campaign.
const BATCH: u16 = 50;

impl Mode {
    /// Returns the modes of the campaign.
    pub(crate) fn all() -> [Self; 5] {
        let single = Self { inbox: false, batch: 1, whole: false };
        let batch = Self { batch: BATCH, ..single };
        let inbox = Self { inbox: true, ..single };
        [single, inbox, batch, Self { whole: true, ..batch }, Self { inbox: true, ..batch }]
    }

    /// Returns the arguments of a worker in this mode.
    pub(crate) fn args(self) -> Vec<String> {
        let mut args = vec![format!("--batch={}", self.batch)];
        args.extend(self.inbox.then(|| "--inbox".to_owned()));
        args.extend(self.whole.then(|| "--whole".to_owned()));
        args
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match (self.inbox, self.batch > 1, self.whole) {
            (false, false, false) => "single",
            (true, false, false) => "inbox",
            (false, true, false) => "batch",
            (false, _, true) => "batch handler",
            (true, true, false) => "inbox with batch",
            (true, _, true) => "inbox with batch handler",
        })
    }
}
