//! The messages of a soak. Each can be made again from its number, so that the publisher remembers none.

use anyhow::Result;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::message::OrderPaid;

/// How many messages a late copy comes after its original.
const LATE: u64 = 777;

/// Returns a message. Its key looks random, as most keys do.
fn message(number: u64) -> Result<Vec<u8>> {
    let mut id = [0; 16];
    id.copy_from_slice(&Sha256::digest(number.to_be_bytes())[..16]);
    Ok(serde_json::to_vec(&OrderPaid { event_id: Uuid::from_bytes(id), order_id: number as i64, amount: 4990 })?)
}

/// Returns what is published for these numbers: each message, and a copy of a fifth of them. Half of the copies come
/// right behind their original, while it runs, and the other half when it is processed.
pub(crate) fn messages(numbers: std::ops::Range<u64>) -> Result<Vec<Vec<u8>>> {
    numbers.flat_map(published).map(message).collect()
}

fn published(number: u64) -> impl Iterator<Item = u64> {
    let now = number.is_multiple_of(10).then_some(number);
    let late = number.checked_sub(LATE).filter(|late| late % 10 == 5);
    std::iter::once(number).chain(now).chain(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_messages_comes_twice() {
        let all: Vec<u64> = (0..100_000).flat_map(published).collect();
        // The last late copies are still to come.
        assert!((119_900..=120_000).contains(&all.len()), "{}", all.len());
        assert_eq!(all.iter().filter(|number| **number == 10).count(), 2);
        assert_eq!(all.iter().filter(|number| **number == 15).count(), 2);
        assert_eq!(all.iter().filter(|number| **number == 11).count(), 1);
    }

    #[test]
    fn a_copy_is_the_same_message() {
        assert_eq!(message(7).unwrap(), message(7).unwrap());
        assert_ne!(message(7).unwrap(), message(8).unwrap());
    }
}
