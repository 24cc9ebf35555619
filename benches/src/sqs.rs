//! Amazon SQS: the hand-written loop with the SDK of idem's source, and the requests of both, which users pay for.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context, Result, bail, ensure};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedAsyncSleep, SharedCredentialsProvider};
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use futures_util::future::try_join_all;
use idem::sqs::SdkConfig;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::hand_written::HandWritten;
use crate::queue::Queue;
use crate::worker::{NAME, PATIENCE};

/// The actions that messages cost.
const ACTIONS: [&str; 3] = ["ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"];

/// The requests of this process so far: those of each action, and all others. Repetitions of the SDK count.
static REQUESTS: [AtomicUsize; ACTIONS.len() + 1] = [const { AtomicUsize::new(0) }; ACTIONS.len() + 1];

/// Returns the number of receives, deletes, changes of visibility and other requests so far, without those that publish.
pub(crate) fn requests() -> [f64; ACTIONS.len() + 1] {
    REQUESTS.each_ref().map(|count| count.load(Relaxed) as f64)
}

/// Counts what it forwards.
#[derive(Debug)]
struct Counting<T>(T);

impl HttpClient for Counting<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Counting(self.0.http_connector(settings, components)))
    }
}

impl HttpConnector for Counting<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let action = ACTIONS.iter().position(|action| target.contains(*action)).unwrap_or(ACTIONS.len());
        REQUESTS[action].fetch_add(1, Relaxed);
        self.0.call(request)
    }
}

fn config(address: &str) -> SdkConfig {
    let credentials = Credentials::new("idem", "idem", None, None, "idem");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(address)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(Counting(aws_smithy_http_client::Builder::new().build_http()))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}

/// Returns idem's source with its defaults.
pub(crate) async fn source(address: &str) -> Result<idem::sqs::Queue> {
    Ok(idem::Sqs::new(&config(address)).queue(NAME).await?)
}

/// Runs the hand-written loop while the gate is open; returns the messages per second. It holds as many messages as a worker
/// with so many lanes, whose prefetch is a quarter larger.
pub(crate) async fn hand_written(
    address: &str,
    hand_written: &HandWritten,
    lanes: usize,
    queue: Queue,
    gate: watch::Receiver<bool>,
) -> Result<f64> {
    let client = Client::new(&config(address));
    let found = client.get_queue_url().queue_name(NAME).send().await?;
    let url = found.queue_url.context("the queue has no URL")?;
    let poller = Poller { client, url, hand_written: hand_written.clone(), queue: queue.clone(), gate };
    let mut pollers = JoinSet::new();
    for _ in 0..(lanes + lanes / 4).div_ceil(10) {
        pollers.spawn(poller.clone().run());
    }
    tokio::select! {
        () = queue.emptied() => queue.rate(),
        Some(ended) = pollers.join_next() => match ended?? {},
        () = sleep(PATIENCE) => bail!("the loop left {} messages within {PATIENCE:?}", queue.left()),
    }
}

/// Receives ten messages by a long poll, processes them at once, deletes them together, and begins again.
#[derive(Clone)]
struct Poller {
    client: Client,
    url: String,
    hand_written: HandWritten,
    queue: Queue,
    gate: watch::Receiver<bool>,
}

impl Poller {
    async fn run(mut self) -> Result<Infallible> {
        loop {
            let receive = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10);
            // Longer than the deadline of a handler.
            let receive = receive.wait_time_seconds(20).visibility_timeout(60);
            let messages = receive.send().await?.messages.unwrap_or_default();
            // A worker holds messages behind the gate, too.
            self.gate.wait_for(|is_open| *is_open).await?;
            if messages.is_empty() {
                continue;
            }
            let bodies = messages.iter().filter_map(Message::body);
            try_join_all(bodies.map(|body| self.hand_written.process(body.as_bytes()))).await?;
            let mut delete = self.client.delete_message_batch().queue_url(&self.url);
            for (number, message) in messages.iter().enumerate() {
                let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
                delete = delete.entries(entry.set_receipt_handle(message.receipt_handle.clone()).build()?);
            }
            let deleted = delete.send().await?;
            ensure!(deleted.failed.is_empty(), "SQS did not delete messages: {:?}", deleted.failed);
            messages.iter().for_each(|_| self.queue.ack());
        }
    }
}
