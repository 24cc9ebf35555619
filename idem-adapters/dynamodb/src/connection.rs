//! The table of the records, and the client that reaches it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::types::ConsumedCapacity;
use aws_types::SdkConfig;
use idem_core::Error;
use idem_core::key_value::KeyValue;

use crate::table;

/// How long one attempt of a request may take by default. The SDK has no limit of its own, and a connection that hangs would hold up
/// the renewal of leases until they have ended.
const ATTEMPT: Duration = Duration::from_secs(2);

/// A table of DynamoDB with the records of messages. Clones share its client.
#[derive(Clone)]
pub struct DynamoDb {
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// The name of the table.
    pub(crate) table: String,
    region: String,
    /// Whether the warnings about the table were logged.
    pub(crate) warned: AtomicBool,
    /// In halves, because DynamoDB counts these.
    units: AtomicU64,
}

impl DynamoDb {
    /// Connects when it is awaited: checks that the table exists and can have records, with the region, the credentials and the
    /// HTTP client of this configuration, which `aws_config` loads. An attempt of a request may take 2 seconds, unless its
    /// `operation_attempt_timeout` says otherwise. `table`: its name.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is incomplete, or the table does not exist, has another key or no index `dead`, or the
    /// policy does not allow `dynamodb:DescribeTable`; [`Error::Database`] if DynamoDB does not answer. The text names the fix.
    ///
    /// ```no_run
    /// # async fn example(config: idem_dynamodb::SdkConfig) -> Result<(), idem_core::Error> {
    /// let records = idem_dynamodb::DynamoDb::connect(&config, "idem").create_table().await?;
    /// # let _ = records; Ok(()) }
    /// ```
    pub fn connect(config: &SdkConfig, table: impl Into<String>) -> Connect {
        Connect { config: config.clone(), table: table.into(), creates: false }
    }

    /// Returns how many write units the steps of this handle and its clones have consumed: as DynamoDB reports them, and one for each
    /// condition that failed, for which it reports none.
    pub fn write_units(&self) -> f64 {
        // Exact up to 2^53.
        self.shared.units.load(Relaxed) as f64 / 2.0
    }

    pub(crate) fn count(&self, consumed: &[ConsumedCapacity]) {
        let units: f64 = consumed.iter().filter_map(ConsumedCapacity::capacity_units).sum();
        self.shared.units.fetch_add((units * 2.0).round() as u64, Relaxed);
    }

    /// Counts a condition that failed. It costs a unit for each KB of the item, and records are smaller, but for dead letters.
    pub(crate) fn count_refused(&self) {
        self.shared.units.fetch_add(2, Relaxed);
    }

    /// Returns the table and its region.
    pub(crate) fn place(&self) -> String {
        format!("DynamoDB table {} in {}", self.shared.table, self.shared.region)
    }
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDb").field("place", &self.place()).finish_non_exhaustive()
    }
}

/// A table to which [`DynamoDb::connect`] connects, once this is awaited.
#[must_use = "it connects when it is awaited"]
pub struct Connect {
    config: SdkConfig,
    table: String,
    creates: bool,
}

impl Connect {
    /// Creates the table if it does not exist, with on-demand capacity, its index of dead letters, and its time to live, and waits until
    /// it can be used. One that exists is not changed, except that its time to live is set.
    ///
    /// This needs `dynamodb:CreateTable`, `dynamodb:UpdateTimeToLive`, `dynamodb:DescribeTimeToLive`.
    pub fn create_table(self) -> Self {
        Self { creates: true, ..self }
    }

    async fn run(self) -> Result<KeyValue<DynamoDb>, Error> {
        let region = self.config.region().map(ToString::to_string).ok_or_else(|| {
            Error::Config("the SdkConfig has no region: set AWS_REGION, or give .region(..) to its loader".to_owned())
        })?;
        let client = client(&self.config)?;
        let (warned, units) = (AtomicBool::new(false), AtomicU64::new(0));
        let dynamodb = DynamoDb { client, shared: Arc::new(Shared { table: self.table, region, warned, units }) };
        if self.creates {
            table::create(&dynamodb).await?;
        }
        table::check(&dynamodb).await?;
        Ok(KeyValue::new(dynamodb))
    }
}

/// Creates the client. The SDK panics if the configuration lacks a part, and has no other check; its text names the part.
fn client(config: &SdkConfig) -> Result<Client, Error> {
    let mut timeouts = config.timeout_config().cloned().unwrap_or_else(|| TimeoutConfig::builder().build());
    timeouts.take_defaults_from(&TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).build());
    let connect = || Client::from_conf(Builder::from(config).timeout_config(timeouts).build());
    catch_unwind(AssertUnwindSafe(connect)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Error::Config(format!(
            "the SdkConfig is not complete: load it by aws_config, or give it a behavior version, an HTTP client, a sleep \
             and a credentials provider ({text})"
        ))
    })
}

impl IntoFuture for Connect {
    type Output = Result<KeyValue<DynamoDb>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("table", &self.table).field("creates", &self.creates).finish_non_exhaustive()
    }
}
