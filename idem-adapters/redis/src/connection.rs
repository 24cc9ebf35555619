//! The connection to Redis.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use idem_core::Error;
use idem_core::key_value::KeyValue;
use redis::Client;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use crate::fitness;

/// How long Redis may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to Redis, or to Valkey. Clones share it, and it is opened again when it is lost.
#[derive(Clone)]
pub struct Redis {
    pub(crate) manager: ConnectionManager,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// Host, port and number of the database.
    pub(crate) address: String,
    /// Whether the warnings about the server were logged.
    pub(crate) warned: AtomicBool,
}

impl Redis {
    /// Connects, and checks the settings of the server. `url`: `redis://user:password@host:6379/0`, or `rediss://..` for TLS.
    ///
    /// # Errors
    /// The URL is none, or that of a cluster or of sentinels; Redis does not answer, or refuses the login; or its settings would
    /// lose records. The text names the fix, and no password.
    pub async fn connect(url: &str) -> Result<KeyValue<Self>, Error> {
        let scheme = url.split(':').next().unwrap_or_default();
        if scheme.contains("cluster") || scheme.contains("sentinel") {
            return Err(Error::Config(format!(
                "`{scheme}://..` is not supported: the keys that a handler writes and the record of its message must be on one node, \
                 and a failover forgets records. Give the URL of one server, `redis://host:6379`"
            )));
        }
        // The client panics without one. Another one that the application has chosen stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(url).map_err(|_| {
            // The error of the client may have the URL, and with it the password.
            Error::Config(
                "the URL of Redis cannot be read: write `redis://user:password@host:6379/0`, or `rediss://..` for TLS, with \
                 special characters of the password percent-encoded"
                    .to_owned(),
            )
        })?;
        let info = client.get_connection_info();
        let address = format!("{}/{}", info.addr(), info.redis_settings().db());
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER))
            .set_connection_timeout(Some(CONNECT))
            // A step that fails is repeated by the worker, which then knows of the outage.
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_secs(1));
        let manager = ConnectionManager::new_with_config(client, config).await.map_err(|error| {
            let what = format!("cannot connect to Redis at {address}: check that it runs, its port, and the login");
            Error::database(what, error)
        })?;
        let redis = Self { manager, shared: Arc::new(Shared { address, warned: AtomicBool::new(false) }) };
        fitness::check(&redis).await?;
        Ok(KeyValue::new(redis))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.shared.address).finish_non_exhaustive()
    }
}
