//! Every kind of server.

use anyhow::Result;

use crate::kafka::Kafka;
use crate::nats::Nats;
use crate::postgres::Postgres;
use crate::rabbitmq::RabbitMq;
use crate::server::Server;

/// Every kind of server, in the order in which they are started.
pub(crate) const ALL: &[&dyn Server] = &[&Postgres, &RabbitMq, &Nats, &Kafka];

/// Returns the kind with this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Server> {
    let found = ALL.iter().copied().find(|server| server.name() == name);
    found.ok_or_else(|| anyhow::anyhow!("there is no server named {name}"))
}
