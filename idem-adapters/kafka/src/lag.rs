//! The lag of the group in the partitions that are assigned to this member.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use idem_core::{BoxError, Lag};
use rdkafka::Offset;
use rdkafka::consumer::BaseConsumer;

use crate::member::Member;
use crate::shared::Shared;
use crate::start::offsets;

/// How long to wait for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The pause between checks whether the client is still in use.
const PAUSE: Duration = Duration::from_millis(10);

/// Returns the lag handle of a subscription. It sends its queries on a separate thread, so that neither the consumer's
/// thread nor a task blocks.
pub(crate) fn lag(shared: &Arc<Shared>) -> Lag {
    let shared = Arc::clone(shared);
    Lag::new(move || {
        let shared = Arc::clone(&shared);
        async move { tokio::task::spawn_blocking(move || ask(&shared)).await? }
    })
}

fn ask(shared: &Shared) -> Result<Vec<(Arc<str>, u64)>, BoxError> {
    if shared.is_lost() {
        return Err("no broker can be reached".into());
    }
    let consumer = shared.client.get().and_then(Weak::upgrade);
    let consumer = consumer.ok_or("the subscription has ended, or has not begun")?;
    let mut places = shared.lock().assigned.places();
    let ends = offsets(&consumer, places.keys(), Offset::End, ANSWER)?;
    // If nothing was committed or handed out, the group's position is the beginning of the partition.
    let unknown = places.iter().filter(|(_, at)| at.is_none()).map(|(partition, _)| partition);
    let begins = offsets(&consumer, unknown, Offset::Beginning, ANSWER)?;
    places.iter_mut().for_each(|(partition, at)| *at = at.or_else(|| begins.get(partition).copied().flatten()));
    let mut lags = BTreeMap::<_, u64>::new();
    for (partition, at) in places {
        if let (Some(Some(end)), Some(at)) = (ends.get(&partition), at) {
            *lags.entry(partition.topic).or_default() += u64::try_from(end - at).unwrap_or_default();
        }
    }
    Ok(lags.into_iter().collect())
}

/// Drops the client on this thread as soon as no query uses it.
pub(crate) fn end(mut consumer: Arc<BaseConsumer<Member>>) {
    loop {
        match Arc::try_unwrap(consumer) {
            Ok(consumer) => return drop(consumer),
            Err(asked) => consumer = asked,
        }
        thread::sleep(PAUSE);
    }
}
