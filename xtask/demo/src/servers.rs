//! The demo's private servers, which it may freeze, crash and restart.

use anyhow::{Context, Result};
use idem_brokers::Broker;
use idem_services::Instance;
use tokio::task::spawn_blocking;

/// The demo's private servers.
#[derive(Debug)]
pub(crate) struct Servers {
    database: Instance,
    broker: Instance,
}

/// The environment variable with the database's address; that of the broker is [`Broker::VARIABLE`].
pub(crate) const DATABASE: &str = "DATABASE_URL";

impl Servers {
    /// Starts the servers.
    pub(crate) async fn start<B: Broker>() -> Result<Self> {
        let start = || anyhow::Ok(Self { broker: (B::START)()?, database: idem_services::Postgres::start()? });
        spawn_blocking(start).await?
    }

    pub(crate) fn database(&self) -> &str {
        self.database.url()
    }

    pub(crate) fn broker(&self) -> &str {
        self.broker.url()
    }

    /// Freezes the database for this long.
    pub(crate) async fn freeze(&mut self, time: std::time::Duration) -> Result<()> {
        tokio::task::block_in_place(|| self.database.pause())?;
        tokio::time::sleep(time).await;
        tokio::task::block_in_place(|| self.database.resume())
    }

    /// Shuts the broker down cleanly, and starts it again with its data.
    pub(crate) fn restart_broker(&mut self) -> Result<()> {
        tokio::task::block_in_place(|| {
            self.broker.stop()?;
            self.broker.start_again()
        })
        .context("the broker was not restarted")
    }
}
