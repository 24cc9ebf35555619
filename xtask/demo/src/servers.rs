//! The demo's private servers, which it may freeze, crash and restart.

use anyhow::{Context, Result, bail};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};
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
        let (database, broker) = spawn_blocking(|| {
            let broker = match B::NAME {
                RabbitMq::NAME => idem_services::RabbitMq::start()?,
                Nats::NAME => idem_services::Nats::start()?,
                Kafka::NAME => idem_services::Kafka::start()?,
                other => bail!("there is no server for {other}"),
            };
            Ok((idem_services::Postgres::start()?, broker))
        })
        .await??;
        Ok(Self { database, broker })
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
