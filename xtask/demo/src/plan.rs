//! Which messages there are, in which order they are published, and what is to become of each.

use std::collections::HashSet;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) fate: Fate,
}

/// What its handler does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// It works.
    Works,
    /// It fails twice, and works then.
    FailsTwice,
    /// It fails as often as it is tried.
    Fails,
}

/// All messages.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) orders: Vec<Order>,
    /// What is published, in this order; a copy comes some messages after its original.
    pub(crate) published: Vec<Order>,
}

impl Plan {
    pub(crate) fn new(messages: u64, duplicates: u64, rng: &mut Rng) -> Self {
        let mut ids: Vec<u64> = (0..messages).collect();
        rng.shuffle(&mut ids);
        // One in a hundred fails for good, another one in a hundred fails twice; with few messages one of each.
        let one_percent = usize::try_from(messages.div_ceil(100)).unwrap_or(usize::MAX);
        let fails: HashSet<u64> = ids.iter().take(one_percent).copied().collect();
        let fails_twice: HashSet<u64> = ids.iter().skip(one_percent).take(one_percent).copied().collect();
        let fate = |id: u64| match id {
            id if fails.contains(&id) => Fate::Fails,
            id if fails_twice.contains(&id) => Fate::FailsTwice,
            _ => Fate::Works,
        };
        let orders: Vec<Order> = (0..messages).map(|id| Order { id, fate: fate(id) }).collect();

        rng.shuffle(&mut ids);
        let copied: HashSet<u64> = ids.iter().take((messages * duplicates / 100) as usize).copied().collect();
        let mut published: Vec<(u64, Order)> = orders.iter().map(|order| (order.id, *order)).collect();
        let copies = orders.iter().filter(|order| copied.contains(&order.id));
        published.extend(copies.map(|order| (order.id + rng.u64(..1000), *order)));
        // Stable, so that the original stays in front of a copy at the same place.
        published.sort_by_key(|(place, _)| *place);
        let published = published.into_iter().map(|(_, order)| order).collect();
        Self { orders, published }
    }

    /// Those that must have an effect.
    pub(crate) fn succeeding(&self) -> HashSet<u64> {
        self.orders.iter().filter(|order| order.fate != Fate::Fails).map(|order| order.id).collect()
    }

    /// Those that must be dead letters.
    pub(crate) fn failing(&self) -> HashSet<u64> {
        self.orders.iter().filter(|order| order.fate == Fate::Fails).map(|order| order.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundredth_fails_another_fails_twice_and_a_fifth_comes_twice() {
        let plan = Plan::new(20_000, 20, &mut Rng::with_seed(1));
        assert_eq!((plan.orders.len(), plan.published.len()), (20_000, 24_000));
        assert_eq!((plan.failing().len(), plan.succeeding().len()), (200, 19_800));
        assert_eq!(plan.orders.iter().filter(|order| order.fate == Fate::FailsTwice).count(), 200);
        let again = Plan::new(20_000, 20, &mut Rng::with_seed(1));
        assert_eq!(plan.published, again.published);
    }
}
