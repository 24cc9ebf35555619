//! The tables of a test, as far as it compares them.

use std::fmt;

/// The effects of all messages so far, as a test reads them from its tables: a number, the rows of a query, or a pair of
/// these. [`Trial::crash_everywhere`](super::Trial::crash_everywhere) compares it before and after each message.
///
/// A number shows most: each message has to change it by the same amount. Of rows, only as many have to be added and
/// removed by each message; their contents may contain times and random ids. A changed row counts as one that is removed
/// and one that is added. The rows are compared with each other, so a query should return hundreds of them at most.
///
/// ```
/// # use idem_test::harness::Digest;
/// let (before, after) = (vec![("acme", 25)], vec![("acme", 50), ("zeta", 25)]);
/// assert_eq!(after.change(&before).to_string(), r#"2 rows added and 1 removed: +("acme", 50) +("zeta", 25) -("acme", 25)"#);
/// assert_eq!((25, 1).change(&(0, 1)).to_string(), "25 and 0");
/// ```
pub trait Digest {
    /// Returns the change from an earlier digest to this one. A type that consists of other digests returns theirs.
    fn change(&self, before: &Self) -> Change;
}

/// A change of a [`Digest`]. Two changes are equal if their amounts are.
#[derive(Debug, Clone, PartialEq)]
pub struct Change(Vec<Part>);

/// The change of a digest that consists of no others.
#[derive(Debug, Clone)]
struct Part {
    amounts: Vec<i128>,
    text: String,
}

impl Change {
    fn of(amounts: Vec<i128>, text: String) -> Self {
        Self(vec![Part { amounts, text }])
    }

    /// Whether nothing changed.
    pub(super) fn is_none(&self) -> bool {
        self.0.iter().all(Part::is_none)
    }

    /// Whether a part changed in both.
    pub(super) fn has_part_in(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(part, other)| !part.is_none() && !other.is_none())
    }
}

impl Part {
    fn is_none(&self) -> bool {
        self.amounts.iter().all(|amount| *amount == 0)
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.amounts == other.amounts
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.0.iter().map(|part| &*part.text).collect();
        f.write_str(&parts.join(" and "))
    }
}

impl Digest for i64 {
    fn change(&self, before: &Self) -> Change {
        let amount = i128::from(*self) - i128::from(*before);
        Change::of(vec![amount], amount.to_string())
    }
}

impl<R: PartialEq + fmt::Debug> Digest for Vec<R> {
    fn change(&self, before: &Self) -> Change {
        let (added, removed) = (without(self, before), without(before, self));
        let counts = (added.len(), removed.len());
        let text = match counts {
            (0, 0) => "no row".to_owned(),
            (added, 0) => format!("{} added", rows(added)),
            (0, removed) => format!("{} removed", rows(removed)),
            (added, removed) => format!("{} added and {removed} removed", rows(added)),
        };
        let shown = added.iter().map(|row| format!(" +{row:?}")).chain(removed.iter().map(|row| format!(" -{row:?}")));
        let shown: String = shown.take(SHOWN).collect();
        let colon = if shown.is_empty() { "" } else { ":" };
        Change::of(vec![counts.0 as i128, counts.1 as i128], format!("{text}{colon}{shown}"))
    }
}

impl<A: Digest, B: Digest> Digest for (A, B) {
    fn change(&self, before: &Self) -> Change {
        let (mut first, second) = (self.0.change(&before.0), self.1.change(&before.1));
        first.0.extend(second.0);
        first
    }
}

/// How many rows a change shows.
const SHOWN: usize = 6;

fn rows(number: usize) -> String {
    if number == 1 { "1 row".to_owned() } else { format!("{number} rows") }
}

/// Returns the rows without those that the other ones contain, of which each removes one.
fn without<'a, R: PartialEq>(rows: &'a [R], other: &[R]) -> Vec<&'a R> {
    let mut other: Vec<&R> = other.iter().collect();
    let is_new = |row: &&R| {
        let found = other.iter().position(|known| known == row);
        found.map(|at| other.swap_remove(at)).is_none()
    };
    rows.iter().filter(is_new).collect()
}
