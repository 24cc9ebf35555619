//! The connection to Redis.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use idem_core::Error;
use idem_core::key_value::KeyValue;
use parking_lot::Mutex;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};

use crate::fitness;

/// How long Redis may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to Redis, or to Valkey. Clones share it, and it is opened again when it is lost.
#[derive(Clone)]
pub struct Redis {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    client: Client,
    connection: Mutex<ConnectionManager>,
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
        let connection = open(&client).await.map_err(|error| no_connection(&address, error))?;
        let (connection, warned) = (Mutex::new(connection), AtomicBool::new(false));
        let redis = Self { shared: Arc::new(Shared { client, connection, address, warned }) };
        fitness::check(&redis).await?;
        Ok(KeyValue::new(redis))
    }

    /// Returns the connection.
    pub(crate) fn connection(&self) -> ConnectionManager {
        self.shared.connection.lock().clone()
    }

    /// Opens another connection, in place of the one that there is. That one comes back by itself when it is lost, but not when
    /// the login was refused meanwhile, and it stays with a server that a failover has made a replica.
    pub(crate) async fn open_another(&self) -> Result<(), Error> {
        let opened = open(&self.shared.client).await;
        *self.shared.connection.lock() = opened.map_err(|error| no_connection(&self.shared.address, error))?;
        Ok(())
    }
}

async fn open(client: &Client) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(ANSWER))
        .set_connection_timeout(Some(CONNECT))
        // A step that fails is repeated by the worker, which then knows of the outage.
        .set_number_of_retries(1)
        .set_max_delay(Duration::from_secs(1));
    ConnectionManager::new_with_config(client.clone(), config).await
}

fn no_connection(address: &str, error: redis::RedisError) -> Error {
    let what = format!("cannot connect to Redis at {address}: check that it runs, its port, and the login");
    Error::database(what, error)
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.shared.address).finish_non_exhaustive()
    }
}
