//! The numbers of names in the database.

use sha2::{Digest, Sha256};

/// How many numbers a name tries before it gives up: another name may have the first ones.
pub(crate) const NUMBERS: u8 = 8;

/// Returns the number of a name in the table of its kind, which a process keeps for as long as it runs. It is a hash, so
/// that a process whose database was restored from before the name was registered, and all later ones, use the same
/// number, and no other name gets it. `attempt` counts those numbers that another name has.
pub(crate) fn number(name: &[&str], attempt: u8) -> i32 {
    let mut hash = Sha256::new();
    hash.update([attempt]);
    for part in name {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
    // Never 0, which no name has.
    (i32::from_be_bytes([a, b, c, d]) & i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version with other numbers would not find the claims that were written behind a restore: never change them.
    #[test]
    fn a_name_has_the_same_number_for_ever() {
        let numbers = [number(&["billing", "orders"], 0), number(&["billing", "orders"], 1), number(&["billing"], 0)];
        assert_eq!(numbers, [876_702_410, 1_976_599_492, 2_022_740_701]);
    }
}
