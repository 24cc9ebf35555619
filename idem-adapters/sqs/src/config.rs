//! The clients that all queues of one configuration share.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{Builder, retry::RetryConfig, timeout::TimeoutConfig};
use aws_types::SdkConfig;
use idem_core::Error;

/// The clients of one configuration.
pub(crate) struct Config {
    /// For all requests but receives, with the application's retries.
    pub(crate) client: Client,
    /// For receives, without retries: a repeated receive would hide the messages that the first one brought. Also without the
    /// application's timeouts, which may be shorter than the time for which SQS waits for a message: the receive has its own.
    pub(crate) receiving: Client,
    pub(crate) region: String,
}

impl Config {
    pub(crate) fn new(config: &SdkConfig) -> Result<Self, Error> {
        let region = region(config)?;
        let client = client(|| Client::from_conf(Builder::from(config).build()))?;
        // That to connect stays.
        let timeouts = TimeoutConfig::builder().disable_read_timeout().disable_operation_timeout();
        let patient = Builder::from(config).timeout_config(timeouts.disable_operation_attempt_timeout().build());
        let unrepeated = patient.retry_config(RetryConfig::disabled()).build();
        let receiving = self::client(|| Client::from_conf(unrepeated))?;
        Ok(Self { client, receiving, region })
    }
}

/// Returns the region of the configuration.
pub(crate) fn region(config: &SdkConfig) -> Result<String, Error> {
    let region = config.region().map(ToString::to_string);
    region.ok_or_else(|| {
        Error::Config("the SdkConfig has no region: set AWS_REGION, or give .region(..) to its loader".to_owned())
    })
}

/// Creates a client. The SDK panics if the configuration lacks a part, and has no other check; the texts name the part.
pub(crate) fn client<C>(create: impl FnOnce() -> C) -> Result<C, Error> {
    catch_unwind(AssertUnwindSafe(create)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Error::Config(format!(
            "the SdkConfig is not complete: load it by aws_config, or give it a behavior version, an HTTP client, a sleep \
             and a credentials provider ({text})"
        ))
    })
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("region", &self.region).finish_non_exhaustive()
    }
}
