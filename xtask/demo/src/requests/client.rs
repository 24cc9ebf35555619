//! A client, which repeats each request until it has a reply.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How long a client waits for an answer: it gives up before some handlers have ended.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long it waits before it repeats a request.
const PAUSE: Duration = Duration::from_millis(10);
/// For how long it repeats one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The session in which a middleware keeps its replies.
const SESSION: &str = "session=AAAAAAAAAAAAAAAAAAAAAA";

/// The first reply to each request, and that to its repeat.
pub(super) type Replies = HashMap<u64, [String; 2]>;

pub(super) struct Client {
    pub(super) path: &'static str,
    pub(super) ports: Vec<u16>,
    /// The next request of any client.
    pub(super) next: Arc<AtomicU64>,
    /// How many requests have their replies.
    pub(super) done: Arc<AtomicU64>,
    pub(super) requests: u64,
}

impl Client {
    /// Sends requests until all are sent, each until it has a reply, and then once more.
    pub(super) async fn run(self) -> Result<Replies> {
        let http = reqwest::Client::builder().timeout(TIMEOUT).build()?;
        let mut replies = Replies::new();
        loop {
            let request = self.next.fetch_add(1, SeqCst);
            if request >= self.requests {
                return Ok(replies);
            }
            let reply = [self.repeat(&http, request).await?, self.repeat(&http, request).await?];
            replies.insert(request, reply);
            self.done.fetch_add(1, SeqCst);
        }
    }

    /// Sends a request to each service in turn, until it has a reply.
    async fn repeat(&self, http: &reqwest::Client, request: u64) -> Result<String> {
        let start = Instant::now();
        let mut last = String::new();
        let ports = self.ports.iter().cycle().skip(usize::try_from(request)? % self.ports.len());
        for port in ports {
            let url = format!("http://127.0.0.1:{port}{}", self.path);
            let sent = http.post(url).header("idempotency-key", format!("request-{request}"));
            let sent = sent.header("cookie", SESSION).body(request.to_string());
            match sent.send().await {
                Ok(answer) if answer.status().is_success() => match answer.text().await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => last = error.to_string(),
                },
                Ok(answer) => last = answer.status().to_string(),
                Err(error) => last = error.to_string(),
            }
            ensure!(start.elapsed() < PATIENCE, "request {request} has got no reply for a minute: {last}");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(last)
    }
}
