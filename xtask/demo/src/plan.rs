//! The messages, the order in which they are published, the behaviour of each one's handler, and the required outcome.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    /// The key. Two conflicting messages have the same key.
    pub(crate) key: String,
    pub(crate) account: i32,
    pub(crate) amount: i64,
    pub(crate) behaviour: Behaviour,
}

/// Enough that two transactions seldom pay to one account concurrently, even in batches.
pub(crate) const ACCOUNTS: i32 = 50_000;
/// The maximum distance of a copy from its original; half of the copies are nearer.
const FAR: u64 = 1000;
const NEAR: u64 = 10;
/// How many of 10,000 messages have the key of another one.
const CONFLICTS: u64 = 20;

/// All messages.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) orders: Vec<Order>,
    /// Indexes of the orders, in the order of publication.
    pub(crate) published: Vec<usize>,
}

impl Order {
    /// Returns the order as it is published.
    pub(crate) fn payload(&self) -> Result<Vec<u8>> {
        match self.behaviour {
            Behaviour::Undecodable => Ok(format!("no JSON, {}", self.id).into_bytes()),
            _ => Ok(serde_json::to_vec(self)?),
        }
    }

    /// Returns whether it has a key, so that the database holds a claim of it.
    pub(crate) fn has_key(&self) -> bool {
        !matches!(self.behaviour, Behaviour::Undecodable | Behaviour::Keyless)
    }
}

/// Returns the number of the message with this key, unless it has the key of another one.
pub(crate) fn number(key: &str) -> Option<u64> {
    key.strip_prefix("order-")?.parse().ok()
}

/// Every message that is JSON has a number.
#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

/// Returns the number of the message with this payload.
pub(crate) fn id_of(payload: &[u8]) -> Option<u64> {
    match serde_json::from_slice::<Numbered>(payload) {
        Ok(message) => Some(message.id),
        Err(_) => std::str::from_utf8(payload).ok()?.strip_prefix("no JSON, ")?.parse().ok(),
    }
}

impl Plan {
    pub(crate) fn new(messages: u64, duplicates: u64, rng: &mut Rng) -> Self {
        let mut numbers: Vec<u64> = (0..messages).collect();
        rng.shuffle(&mut numbers);
        let share = |often: u64| usize::try_from((messages * often / 10_000).max(1)).unwrap_or(usize::MAX);
        let mut drawn = numbers.iter().copied();
        let mut behaviours = HashMap::new();
        for behaviour in Behaviour::CARELESS {
            behaviours.extend(drawn.by_ref().take(share(behaviour.often())).map(|id| (id, *behaviour)));
        }
        // The second of two messages with one key is usually published later.
        let conflicting: Vec<u64> = drawn.by_ref().take(2 * share(CONFLICTS)).collect();
        let keys: HashMap<u64, u64> =
            conflicting.chunks_exact(2).map(|two| (two[0].max(two[1]), two[0].min(two[1]))).collect();
        let order = |id: u64| {
            let behaviour = behaviours.get(&id).copied().unwrap_or(Behaviour::Works);
            let keyless = behaviour == Behaviour::Keyless;
            let key = if keyless { String::new() } else { format!("order-{}", keys.get(&id).unwrap_or(&id)) };
            Order { id, key, account: rng.i32(0..ACCOUNTS), amount: rng.i64(1..1000), behaviour }
        };
        let orders: Vec<Order> = (0..messages).map(order).collect();
        Self { published: publication(&orders, duplicates, rng), orders }
    }

    /// Creates a plan of messages that all succeed, and pay to one of this many accounts each.
    pub(crate) fn plain(messages: u64, duplicates: u64, accounts: i32, rng: &mut Rng) -> Self {
        let order = |id: u64| Order {
            id,
            key: format!("order-{id}"),
            account: rng.i32(0..accounts),
            amount: 1,
            behaviour: Behaviour::Works,
        };
        let orders: Vec<Order> = (0..messages).map(order).collect();
        Self { published: publication(&orders, duplicates, rng), orders }
    }

    /// Returns how often this message is published.
    pub(crate) fn times(&self, id: u64) -> u64 {
        self.published.iter().filter(|at| self.orders[**at].id == id).count() as u64
    }

    /// Returns the messages of each key, at most one of which may have an effect. A message without a key is a separate
    /// group.
    pub(crate) fn by_key(&self) -> BTreeMap<(&str, u64), Vec<&Order>> {
        let mut groups = BTreeMap::<_, Vec<&Order>>::new();
        for order in &self.orders {
            let alone = if order.has_key() { 0 } else { order.id + 1 };
            groups.entry((order.key.as_str(), alone)).or_default().push(order);
        }
        groups
    }
}

/// Returns all orders in sequence, with copies after their originals, half of them near and half of them far. Orders
/// without a key have no copies, because a copy could not be told from another message.
fn publication(orders: &[Order], duplicates: u64, rng: &mut Rng) -> Vec<usize> {
    let mut published: Vec<(u64, usize)> = orders.iter().enumerate().map(|(at, order)| (order.id, at)).collect();
    let mut copied: Vec<usize> = (0..orders.len()).filter(|at| orders[*at].has_key()).collect();
    rng.shuffle(&mut copied);
    copied.truncate(usize::try_from(orders.len() as u64 * duplicates / 100).unwrap_or(usize::MAX));
    published.extend(copied.iter().enumerate().map(|(turn, at)| {
        let distance = if turn % 2 == 0 { NEAR } else { FAR };
        (orders[*at].id + rng.u64(..distance), *at)
    }));
    // A stable sort keeps the original before a copy at the same place.
    published.sort_by_key(|(place, _)| *place);
    published.into_iter().map(|(_, at)| at).collect()
}

macro_rules! behaviours {
    ($($(#[$doc:meta])* $name:ident, $often:literal => $end:expr;)*) => {
        /// The behaviour of a handler after it has written the message's effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum Behaviour { $($(#[$doc])* $name,)* }

        impl Behaviour {
            /// Every behaviour except the ordinary one.
            pub(crate) const CARELESS: &'static [Self] = &[$(Self::$name,)*].split_at(1).1;

            /// Returns how many of 10,000 messages have it. In a smaller run, at least one message has it.
            pub(crate) fn often(self) -> u64 {
                match self { $(Self::$name => $often,)* }
            }

            /// Returns the required outcome of the message.
            pub(crate) fn end(self) -> End {
                match self { $(Self::$name => $end,)* }
            }
        }
    };
}

behaviours! {
    /// It succeeds.
    Works, 0 => End::Effect;
    /// It fails twice, then succeeds.
    Flaky, 100 => End::Effect;
    /// It fails at each attempt.
    Poison, 100 => EXHAUSTED;
    /// It returns a permanent error.
    Permanent, 40 => End::Dead("permanent");
    /// It panics.
    Panic, 30 => EXHAUSTED;
    /// It waits beyond the handler timeout, in the process.
    Hang, 4 => EXHAUSTED;
    /// It never waits: whatever it asks for is there at once, and it asks again. Rare, since it keeps a thread busy.
    Spin, 1 => EXHAUSTED;
    /// It waits beyond the handler timeout for a statement, which continues in the database.
    SlowQuery, 4 => EXHAUSTED;
    /// It ignores the error of a statement.
    Swallow, 30 => EXHAUSTED;
    /// A deferred constraint fails at COMMIT.
    Deferred, 30 => EXHAUSTED;
    /// It runs ROLLBACK.
    Rollback, 30 => ROLLED_BACK;
    /// It runs ROLLBACK, then writes.
    RollbackWrite, 30 => ROLLED_BACK;
    /// It runs ROLLBACK, then writes, then fails.
    RollbackFail, 30 => ROLLED_BACK;
    /// It runs COMMIT.
    Commit, 20 => End::Committed;
    /// It runs COMMIT, then writes.
    CommitWrite, 20 => End::Committed;
    /// It runs COMMIT, then waits beyond the handler timeout.
    CommitHang, 4 => End::Committed;
    /// It runs SET ROLE, to a role without privileges.
    SetRole, 20 => End::Effect;
    /// It changes its session in another way: a setting, a lock, LISTEN, a temporary table.
    Session, 30 => End::Effect;
    /// It ends its connection each time.
    Breaker, 3 => End::Dead("broke its connection");
    /// It ends its connection the first time.
    BreakOnce, 10 => End::Effect;
    /// It ends its process each time.
    Killer, 1 => End::Dead(CRASHED);
    /// Its payload is not JSON.
    Undecodable, 20 => End::Dead("undecodable");
    /// It has no key.
    Keyless, 20 => End::Dead("no key");
}

impl Behaviour {
    /// Returns whether each of its runs lasts until the handler timeout, and may run again.
    pub(crate) fn outlasts_its_timeout(self) -> bool {
        matches!(self, Self::Hang | Self::Spin | Self::SlowQuery)
    }
}

const EXHAUSTED: End = End::Dead("exhausted");
const ROLLED_BACK: End = End::Dead("rolled back by its handler");

/// The required outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// One effect.
    Effect,
    /// No effect, and one dead letter of this reason.
    Dead(&'static str),
    /// One dead letter of the reason [`COMMITTED`]; its effect may or may not exist.
    Committed,
}

/// The reason of messages whose handlers ran COMMIT.
pub(crate) const COMMITTED: &str = "committed by its handler";
/// The reason of a message that ends its process.
pub(crate) const CRASHED: &str = "crashed";
/// The reason of the second of two messages with one key.
pub(crate) const CONFLICT: &str = "conflict";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_behaviour_is_there_and_the_same_seed_makes_the_same_plan() {
        let plan = Plan::new(20_000, 20, &mut Rng::with_seed(1));
        assert_eq!((plan.orders.len(), plan.published.len()), (20_000, 24_000));
        for behaviour in Behaviour::CARELESS {
            let times = plan.orders.iter().filter(|order| order.behaviour == *behaviour).count() as u64;
            assert_eq!(times, behaviour.often() * 2, "{behaviour:?}");
        }
        assert_eq!(plan.by_key().values().filter(|orders| orders.len() == 2).count(), 40);
        let again = Plan::new(20_000, 20, &mut Rng::with_seed(1));
        assert_eq!((plan.orders, plan.published), (again.orders, again.published));
    }

    #[test]
    fn a_small_plan_has_one_of_each() {
        let plan = Plan::new(300, 20, &mut Rng::with_seed(1));
        for behaviour in Behaviour::CARELESS {
            assert!(plan.orders.iter().any(|order| order.behaviour == *behaviour), "{behaviour:?}");
        }
    }

    #[test]
    fn the_number_of_a_message_is_read_from_its_payload() -> Result<()> {
        for order in Plan::new(300, 0, &mut Rng::with_seed(1)).orders {
            assert_eq!(id_of(&order.payload()?), Some(order.id));
        }
        Ok(())
    }
}
