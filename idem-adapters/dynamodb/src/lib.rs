//! Deduplication in Amazon DynamoDB for idem.
//!
//! ```no_run
//! # use idem_dynamodb::{DynamoDb, SdkConfig};
//! # use std::time::Duration;
//! # async fn example(config: SdkConfig) -> Result<(), idem_core::Error> {
//! // let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
//! // For `Worker::new`, in place of a store.
//! let records = DynamoDb::connect(&config, "idem").create_table().await?.retention(Duration::from_secs(3 * 24 * 3600));
//! # let _ = records;
//! # Ok(())
//! # }
//! ```
//!
//! Region, credentials and HTTP client are those of the application's `SdkConfig`.
//!
//! # Records
//!
//! A message has an item, whose partition key `pk` is `consumer/handler/key`; control characters, `%` and all that is not ASCII are
//! percent-encoded. It has a `state` (`running`, `done`, `dead`), a `fingerprint`, a `token`, `starts`, the end of its lease
//! (`until`) and the time of its end (`at`) in milliseconds, and the second from which DynamoDB may delete it (`ttl`). It counts as absent from
//! then on, although DynamoDB deletes it hours later. A dead letter has no `ttl`; it has its `letter`, and its consumer as `dead`, which the
//! index `dead` lists, about a second later. Behind a replay it is `running` and keeps them until it ends again.
//! A letter of more than 128 KB is divided: the record has the first of its `parts` and its checksum, `sum`, and each other part is an item
//! with the key `consumer/handler/key%part/sum/number`. A process that dies while it writes or deletes them leaves items that nobody reads.
//!
//! DynamoDB has no clock for its clients, so times are those of the workers. One whose clock is wrong takes over a lease that lasts,
//! or waits for one that is over. The first runs a message a second time, and only one of the runs can be completed. A completion by
//! a clock that is an hour behind also ends its record an hour early: a copy in the last hour of the retention runs, and is completed.
//!
//! # Table
//!
//! [`Connect::create_table`] creates it, with on-demand capacity. In other tools:
//!
//! | | |
//! |---|---|
//! | partition key | `pk`, a string; no sort key |
//! | global secondary index | `dead`, with the partition key `dead`, a string, and `KEYS_ONLY` |
//! | time to live | `ttl` |
//!
//! The table is for records only. In a global table, workers of two regions may run one message at once, and both complete it.
//!
//! A worker needs `dynamodb:UpdateItem`, `dynamodb:PutItem`, `dynamodb:DeleteItem` and `dynamodb:DescribeTable` for the table,
//! `dynamodb:DescribeTimeToLive` for a warning, and what its handlers write for their tables: `dynamodb:PutItem`, `UpdateItem`, `DeleteItem`,
//! `ConditionCheckItem`. Reading dead letters needs `dynamodb:Query` and `dynamodb:Scan` for the index, and `dynamodb:GetItem`.
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | writes of one message | 99, to different items, and 4 MB; DynamoDB takes 100 in a transaction |
//!
//! # Costs
//!
//! | | write units |
//! |---|---|
//! | a message without writes | 2 |
//! | a message with `n` writes to items of at most 1 KB | 3 + 2 `n`, since a transaction costs twice as much |
//! | a copy, a renewal of a lease | 1; a copy of a dead letter 1 for each KB of it |
//! | a further attempt after a failure | 2 more |
//!
//! [`DynamoDb::write_units`] counts them.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod change;
mod connection;
mod error;
mod item;
mod letter;
mod record;
mod steps;
mod table;
mod transaction;
mod writes;

pub use aws_sdk_dynamodb::types::AttributeValue;
#[doc(no_inline)]
pub use aws_types::SdkConfig;
pub use connection::{Connect, DynamoDb};
pub use item::{Item, Value};
pub use writes::{DynamoWrites, Write};
