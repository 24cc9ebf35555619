//! Amazon SQS and EventBridge as sources and sinks of idem.
//!
//! ```no_run
//! # use idem_sqs::Sqs;
//! # async fn example(config: aws_types::SdkConfig) -> Result<(), idem_core::Error> {
//! // let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
//! let orders = Sqs::new(&config).queue("orders").await?;
//! # let _ = orders;
//! # Ok(())
//! # }
//! ```
//!
//! Region, credentials and HTTP client are those of the application's `SdkConfig`. [`Sqs::queue`] checks that the queue exists. The
//! worker does the rest: it receives, extends and deletes messages, and begins again whenever SQS does not answer.
//!
//! # Mapping of deliveries
//!
//! | SQS | [`Delivery`](idem_core::Delivery) |
//! |---|---|
//! | body | payload; [`Queue::envelope`] takes it out of the envelope of EventBridge or SNS |
//! | attribute `message-id`, otherwise `MessageId` | message id |
//! | attribute `content-type`, in any case | content type |
//! | attributes of the types String, Number and Binary | headers, sorted by name |
//! | `MessageId` | position |
//! | `SentTimestamp` | published at |
//! | `ApproximateReceiveCount` | delivery count, redelivered |
//! | `MessageGroupId` | property `message_group_id`; of a FIFO queue also partition key and, with an order, ordering key |
//! | `MessageDeduplicationId` | header of that name |
//! | | no event type, unless the envelope is that of EventBridge |
//!
//! A message whose payload the extended client has put into S3 becomes a dead letter (`unrepresentable`) that names the object.
//!
//! # Keys
//!
//! | key | the same for |
//! |---|---|
//! | a field of the message, or a header that the producer sets | all copies, if the producer repeats it: the right choice in most cases |
//! | message id with the attribute `message-id`, as idem's relay sets it | all copies from the outbox |
//! | message id without it | a redelivery; not a producer that sends again, as its SDK does by itself after an answer was lost, and not a message that was moved back from a dead-letter queue: both are new messages |
//! | header `MessageDeduplicationId` | what the producer says: a hash of the content merges equal events, and an id with the time of day in it protects nothing |
//!
//! # Requirements
//!
//! The worker refuses to start if
//!
//! * the queue has a redrive policy, which would take messages away from idem, unless [`Queue::accept_redrive_to`] accepts it;
//! * the visibility timeout is less than 3 seconds or more than 12 hours;
//! * an action is not allowed. The least policy is `sqs:GetQueueUrl`, `sqs:GetQueueAttributes`, `sqs:ReceiveMessage`,
//!   `sqs:ChangeMessageVisibility` and `sqs:DeleteMessage`; with a key of KMS also `kms:Decrypt`.
//!
//! A relay needs `sqs:GetQueueUrl` and `sqs:SendMessage`; with a key of KMS also `kms:GenerateDataKey` and `kms:Decrypt`, which a rule of
//! EventBridge needs too whose target is such a queue. For EventBridge it needs `events:PutEvents` and `events:DescribeEventBus`:
//! without the latter, events to a missing bus are lost.
//!
//! # Settling
//!
//! | | |
//! |---|---|
//! | ack | a `DeleteMessageBatch` after the commit, with up to ten others; the result of each entry is read, and one that fails is sent again for 10 seconds |
//! | lease | the visibility timeout less a tenth, counted from before the receive; extended after a third, for up to 12 hours |
//! | a lease that has ended | its ack is stale and is not sent: on a standard queue SQS would confirm it without having deleted anything |
//! | release | visibility 0, only while the lease lasts |
//! | after a lost connection | deliveries stay valid |
//! | after a crash | messages are redelivered when their visibility timeout ends |
//! | after a clean shutdown | unsettled deliveries are released, and redelivered at once |
//!
//! # Ordering
//!
//! | [`DeliveryOrder`](idem_core::DeliveryOrder) | |
//! |---|---|
//! | `None` | allowed on a FIFO queue too, with a warning |
//! | `Key` | on a FIFO queue: one after another in each message group |
//! | `Queue`, `Partition` | rejected |
//!
//! A message that fails keeps its group until it is processed or dead; the deliveries of its group that were received with it
//! wait, and fill slots. SQS looks at the first 120,000 messages of a FIFO queue only: behind a longer group, others wait too.
//!
//! # Replay window
//!
//! Claims must be kept longer than the retention of the queue, which the worker checks. Times come from the clock of SQS; those of a
//! notification of SNS, and of an event that EventBridge replays from an archive, from its envelope.
//!
//! # Costs
//!
//! A receive and a delete cost the same for one message as for ten, but each 64 KB of messages cost as much as a request. Under
//! load, 1,000 messages take about 100 receives and 100 deletes; the receives need a prefetch that is larger than the
//! concurrency by ten. A handler that runs for longer than a third of the visibility timeout costs extensions. An idle worker
//! sends a receive each 4 seconds, which [`Queue::wait_time`] changes, and asks for its lag each 15 seconds.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acker;
mod attributes;
mod batch;
mod chain;
mod config;
mod delivery;
mod envelope;
mod error;
mod event;
mod event_bus;
mod gather;
mod lag;
mod lease;
mod leases;
mod message;
mod name;
mod presence;
mod pull;
mod queue;
mod requests;
mod server;
mod settings;
mod sink;
mod source;

pub use acker::SqsAcker;
#[doc(no_inline)]
pub use aws_types::SdkConfig;
pub use envelope::Envelope;
pub use event_bus::EventBus;
pub use queue::Queue;
pub use server::Sqs;
pub use sink::Queues;
