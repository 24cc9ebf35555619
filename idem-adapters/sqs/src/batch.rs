//! Coalesces single calls into requests of several entries.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::error::Failure;
use crate::requests::ENTRIES;

/// How long the first call waits for others, if there are likely to be some: while a request is under way, or after one of
/// several. Calls one after another do not wait.
const GATHER: Duration = Duration::from_millis(10);

/// How many requests may be under way.
const REQUESTS: usize = 16;

/// Calls that are sent together. A call that was made is sent whether or not somebody waits for its result.
pub(crate) struct Batches<T, A = ()> {
    calls: mpsc::UnboundedSender<Call<T, A>>,
}

struct Call<T, A> {
    entry: T,
    answer: oneshot::Sender<Result<A, Failure>>,
}

/// The task that sends the calls has ended.
#[derive(Debug)]
pub(crate) struct Ended;

impl<T: Send + 'static, A: Send + 'static> Batches<T, A> {
    /// Returns the calls, and the future that sends them by `send`, which returns a result for each entry, in their order.
    /// The weight of one request is at most `limit`, unless a single entry has more. The future ends when the calls are
    /// dropped and answered.
    pub(crate) fn new<F>(
        limit: usize,
        weigh: fn(&T) -> usize,
        send: impl Fn(Vec<T>) -> F + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send)
    where
        F: Future<Output = Vec<Result<A, Failure>>> + Send + 'static,
    {
        let (calls, requested) = mpsc::unbounded_channel();
        (Self { calls }, run(requested, limit, weigh, send))
    }

    /// Makes a call and waits for its result.
    pub(crate) async fn call(&self, entry: T) -> Result<Result<A, Failure>, Ended> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { entry, answer }).map_err(|_| Ended)?;
        answered.await.map_err(|_| Ended)
    }
}

async fn run<T, A, F>(
    mut requested: mpsc::UnboundedReceiver<Call<T, A>>,
    limit: usize,
    weigh: fn(&T) -> usize,
    send: impl Fn(Vec<T>) -> F,
) where
    F: Future<Output = Vec<Result<A, Failure>>>,
{
    let (mut waiting, mut running) = (VecDeque::<Call<T, A>>::new(), FuturesUnordered::new());
    let (mut due, mut is_open, mut incoming, mut is_crowded) = (Instant::now(), true, Vec::new(), false);
    while is_open || !waiting.is_empty() || !running.is_empty() {
        let waits_in_vain = running.is_empty() && !is_crowded || due <= Instant::now() || !is_open;
        let is_ripe = waiting.len() >= ENTRIES || !waiting.is_empty() && waits_in_vain;
        if is_ripe && running.len() < REQUESTS {
            let (entries, answers): (Vec<_>, Vec<_>) =
                take(&mut waiting, limit, weigh).into_iter().map(|call| (call.entry, call.answer)).unzip();
            is_crowded = entries.len() > 1;
            let request = send(entries);
            running.push(async move {
                for (answer, result) in answers.into_iter().zip(request.await) {
                    // The caller may have given up.
                    let _ = answer.send(result);
                }
            });
            due = Instant::now() + GATHER;
            continue;
        }
        tokio::select! {
            Some(()) = running.next(), if !running.is_empty() => {}
            count = requested.recv_many(&mut incoming, ENTRIES), if is_open && waiting.len() < ENTRIES => {
                is_open = count > 0;
                if waiting.is_empty() {
                    due = Instant::now() + GATHER;
                }
                waiting.extend(incoming.drain(..));
            }
            () = sleep_until(due), if !is_ripe && !waiting.is_empty() => {}
        }
    }
}

/// Takes as many calls as fit into one request.
fn take<T, A>(waiting: &mut VecDeque<Call<T, A>>, limit: usize, weigh: fn(&T) -> usize) -> Vec<Call<T, A>> {
    let (mut count, mut weight) = (0, 0_usize);
    for call in waiting.iter().take(ENTRIES) {
        weight = weight.saturating_add(weigh(&call.entry));
        if count > 0 && weight > limit {
            break;
        }
        count += 1;
    }
    waiting.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::future::join_all;

    use super::*;

    type Seen = Arc<Mutex<Vec<Vec<usize>>>>;

    /// Returns calls whose weights are their numbers, and the requests that were sent. An odd number fails.
    fn calls(limit: usize) -> (Batches<usize>, Seen) {
        let seen = Seen::default();
        let sent = Arc::clone(&seen);
        let (batches, sending) = Batches::new(
            limit,
            |number| *number,
            move |numbers: Vec<usize>| {
                sent.lock().unwrap().push(numbers.clone());
                let result = |number: usize| {
                    if number.is_multiple_of(2) { Ok(()) } else { Err(Failure::of(&number.to_string(), "")) }
                };
                async move { numbers.into_iter().map(result).collect() }
            },
        );
        tokio::spawn(sending);
        (batches, seen)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_at_the_same_time_are_sent_ten_together_and_each_has_its_own_result() {
        let (batches, seen) = calls(1000);
        let results = join_all((0..25).map(|number| batches.call(number))).await;
        for (number, result) in results.into_iter().enumerate() {
            let result = result.unwrap();
            assert_eq!(result.as_ref().err().map(Failure::text), (number % 2 == 1).then_some(&*number.to_string()));
        }
        let sizes: Vec<_> = seen.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 10, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_heavier_than_allowed_unless_one_entry_is() {
        let (batches, seen) = calls(100);
        join_all([40, 50, 20, 200, 10].map(|weight| batches.call(weight))).await;
        assert_eq!(*seen.lock().unwrap(), [vec![40, 50], vec![20], vec![200], vec![10]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_others_only_while_a_request_is_under_way() {
        let (batches, seen) = calls(100);
        let (gate, began) = (Arc::new(tokio::sync::Semaphore::new(0)), Instant::now());
        assert!(batches.call(2).await.unwrap().is_ok());
        assert_eq!(began.elapsed(), Duration::ZERO);
        let held = Arc::clone(&gate);
        let (slow, sending) = Batches::new(
            0,
            |_: &usize| 0,
            move |numbers: Vec<usize>| {
                let held = Arc::clone(&held);
                async move {
                    let _permit = held.acquire().await;
                    numbers.into_iter().map(|_| Ok(())).collect()
                }
            },
        );
        tokio::spawn(sending);
        let mut first = std::pin::pin!(slow.call(1));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        tokio::task::yield_now().await;
        let mut second = std::pin::pin!(slow.call(2));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        gate.add_permits(2);
        assert!(second.await.unwrap().is_ok() && first.await.unwrap().is_ok());
        assert_eq!(seen.lock().unwrap().concat(), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_is_sent_all_the_same() {
        let (batches, seen) = calls(100);
        {
            let mut dropped = std::pin::pin!(batches.call(4));
            assert!(futures_util::poll!(dropped.as_mut()).is_pending());
        }
        assert!(batches.call(6).await.unwrap().is_ok());
        assert_eq!(seen.lock().unwrap().concat(), [4, 6]);
    }
}
