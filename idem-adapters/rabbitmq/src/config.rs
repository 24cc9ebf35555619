//! What a connection is made from.

use std::fmt;
use std::time::Duration;

use idem_core::Error;
use lapin::tcp::RustlsConnector;
use lapin::uri::AMQPUri;

use crate::address::Address;
use crate::attempts::First;
use crate::bare::Bare;
use crate::credentials::Login;
use crate::limit::Limits;
use crate::queue_type::Expected;

/// How the server is spoken to.
pub(crate) struct Config {
    /// Each connection has a host and a login of its own in it.
    pub(crate) uri: AMQPUri,
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) first: First,
    pub(crate) tls: Option<RustlsConnector>,
    pub(crate) consumer_timeout: Duration,
    pub(crate) replay_horizon: Option<Duration>,
    pub(crate) limit_by_policy: bool,
}

impl Config {
    /// What the server does with a queue that has no delivery limit. It is asked each time, since it may be another version
    /// by now.
    pub(crate) async fn limits(&self, expected: Expected) -> Result<Limits, Error> {
        let by_policy = self.limit_by_policy;
        // Nothing is checked there.
        if expected == Expected::Unverified {
            return Ok(Limits { major: None, by_policy });
        }
        let bare = Bare::open(self).await?;
        let major = bare.major();
        bare.close().await;
        Ok(Limits { major, by_policy })
    }
}

/// `AMQPUri` shows its password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &format_args!("{}", self.address))
            .field("consumer_timeout", &self.consumer_timeout)
            .finish_non_exhaustive()
    }
}
