//! The amount of work of a run.

/// How often a worker is killed by default.
pub(crate) const KILLS: usize = 5;

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
