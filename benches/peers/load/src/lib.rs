//! The parts that all peers share: the messages, the lanes, the clock, and the line that comes out.
//!
//! Each peer is a separate program: `peer-x --lanes 16 --messages 4000`, with the database in `DATABASE_URL`. The
//! benchmark creates the table `idem_bench.effects` and compares the row count with the messages. A peer whose name
//! begins with `relay-` publishes as many messages to the queue `idem-bench-relay` of `AMQP_URL`, and tells how many
//! rows it has marked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The one statement of a handler, as on all other sides of the benchmark. Its `side` stands for a peer.
pub const EFFECT: &str = "INSERT INTO idem_bench.effects (side, order_id, amount) VALUES (4, $1, $2)";

/// How many of them there are.
pub const EFFECTS: &str = "SELECT count(*) FROM idem_bench.effects WHERE side = 4";

/// 97 bytes of JSON, about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrderPaid {
    pub event_id: Uuid,
    pub order_id: i64,
    pub amount: i64,
}

/// The size of the run that was asked for.
#[derive(Debug)]
pub struct Load {
    pub url: String,
    pub lanes: usize,
    pub messages: usize,
}

impl Load {
    pub fn from_args() -> Result<Self> {
        let args: Vec<String> = std::env::args().collect();
        let number = |name: &str| -> Result<usize> {
            let at = args.iter().position(|arg| arg == name).with_context(|| format!("{name} is missing"))?;
            Ok(args.get(at + 1).with_context(|| format!("{name} needs a number"))?.parse()?)
        };
        let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
        Ok(Self { url, lanes: number("--lanes")?, messages: number("--messages")? })
    }

    /// The messages as a broker has them.
    pub fn payloads(&self) -> Result<Vec<Vec<u8>>> {
        let message = |n: usize| OrderPaid { event_id: Uuid::new_v4(), order_id: n as i64, amount: 4990 };
        (0..self.messages).map(|n| Ok(serde_json::to_vec(&message(n))?)).collect()
    }

    /// Processes the messages with one task per lane.
    pub async fn run<F: Future<Output = Result<()>> + Send>(
        self,
        process: impl Fn(Vec<u8>) -> F + Send + Sync + 'static,
    ) -> Result<Clock>
    where
        F: 'static,
    {
        let waiting = Arc::new(Mutex::new(VecDeque::from(self.payloads()?)));
        let (clock, process) = (Clock::new(self.messages), Arc::new(process));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..self.lanes {
            let (waiting, clock, process) = (waiting.clone(), clock.clone(), process.clone());
            tasks.spawn(async move {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(payload) = next() {
                    process(payload).await?;
                    clock.done();
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(clock)
    }
}

/// The benchmark's own clock: a tenth of the messages is for the start, the next one starts it, the last one stops it.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    left: AtomicUsize,
    timed: usize,
    started: OnceLock<Instant>,
    ended: OnceLock<Instant>,
}

impl Clock {
    pub fn new(messages: usize) -> Self {
        let timed = messages - messages / 10;
        let inner = Inner { left: messages.into(), timed, started: OnceLock::new(), ended: OnceLock::new() };
        Self(Arc::new(inner))
    }

    /// Records a finished message. Returns whether it was the last.
    pub fn done(&self) -> bool {
        let left = self.0.left.fetch_sub(1, SeqCst) - 1;
        if left == self.0.timed {
            self.0.started.get_or_init(Instant::now);
        }
        if left == 0 {
            self.0.ended.get_or_init(Instant::now);
        }
        left == 0
    }

    /// Prints the messages a second, and the rows that the handlers have made or a relay has marked.
    pub fn print(&self, effects: i64) -> Result<()> {
        let times = self.0.ended.get().zip(self.0.started.get());
        let (ended, started) = times.context("not all messages were processed")?;
        let rate = self.0.timed as f64 / ended.duration_since(*started).as_secs_f64();
        println!("{}", serde_json::json!({ "rate": rate, "effects": effects }));
        Ok(())
    }
}
