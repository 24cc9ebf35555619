//! A worker as a user configures it, with a store that responds immediately and messages from memory.

use anyhow::Result;
use bytes::Bytes;
use idem::Delivery;
use idem::codec::{Codec, DecodeError};
use idem::prelude::*;

use crate::nothing::{Nothing, Nowhere};
use crate::queue::{Deliveries, Queue};

/// Returns a queue of this many messages of 97 bytes, of which the first eight are the number. They are allocated in advance,
/// so that no message allocates.
pub(crate) fn numbers(messages: usize) -> Queue {
    let payload = |number: u64| Bytes::from([&number.to_be_bytes()[..], &[b' '; 89]].concat());
    let payloads: Vec<Bytes> = (1..=1024).map(payload).collect();
    Queue::new((0..messages).map(|number| payloads[number % payloads.len()].clone()).collect())
}

/// Runs a worker until the queue is empty.
pub(crate) async fn run(in_flight: usize, queue: Queue) -> Result<()> {
    let worker = Worker::new("bench", Nothing, Deliveries::of(&queue)).codec(Number).handler::<counted>();
    Ok(worker.concurrency(in_flight).run_until(async move { queue.emptied().await }).await?)
}

/// The message: its number. Decoding it takes no time, because JSON is not part of idem.
pub(crate) struct Counted {
    number: u64,
}

#[idempotent(key = "number", name = "counted")]
async fn counted(message: Counted, _tx: &mut Nowhere) -> Result<(), std::convert::Infallible> {
    std::hint::black_box(message.number);
    Ok(())
}

#[derive(Debug)]
struct Number;

impl Codec<Counted> for Number {
    fn decode(&self, delivery: &Delivery) -> Result<Counted, DecodeError> {
        let number = delivery.data().first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).ok_or("too short")?;
        Ok(Counted { number })
    }
}
