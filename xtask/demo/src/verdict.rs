//! The outcome of each message, and whether it is the required one.

use std::collections::{BTreeMap, HashMap};

use crate::plan::{COMMITTED, CONFLICT, CRASHED, End, Order, Plan};
use crate::tables::InboxRow;

/// The contents of the database at the end.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) effects: HashMap<u64, u64>,
    pub(crate) inbox: HashMap<u64, Vec<InboxRow>>,
    pub(crate) claims: HashMap<String, bool>,
}

/// The totals of all verdicts.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// The expected dead letters, by reason.
    pub(crate) dead: BTreeMap<String, u64>,
    /// Messages whose handler ran COMMIT in a process that was killed before it could record that. idem documents this
    /// limit.
    pub(crate) unwritten: u64,
    /// One text for each message with a wrong outcome, those first that are doubled or lost.
    pub(crate) wrong: Vec<String>,
}

impl Verdict {
    /// Judges all messages. `died_with` returns whether a message ran in a process that was killed before the outcome
    /// was written.
    pub(crate) fn new(plan: &Plan, died_with: impl Fn(u64) -> bool, found: &Found) -> Self {
        let mut verdict = Self::default();
        for orders in plan.by_key().values() {
            match orders.as_slice() {
                [order] => verdict.one(order, &died_with, found),
                orders => verdict.conflicting(orders, found),
            }
        }
        verdict.wrong.sort();
        verdict
    }

    fn one(&mut self, order: &Order, died_with: impl Fn(u64) -> bool, found: &Found) {
        let (effects, rows) = (found.effects(order), found.rows(order));
        let reasons: Vec<&str> = rows.iter().map(|row| row.reason.as_deref().unwrap_or("waits")).collect();
        match (order.behaviour.end(), effects, reasons.as_slice()) {
            (End::Effect, 1, []) => {}
            (End::Dead(reason), 0, [only]) if *only == reason => *self.dead.entry(reason.to_owned()).or_default() += 1,
            (End::Committed, 0 | 1, [COMMITTED]) => *self.dead.entry(COMMITTED.to_owned()).or_default() += 1,
            (End::Committed, 1, []) if died_with(order.id) => self.unwritten += 1,
            // It runs for seconds, in which the demo may kill its processes and stop its database four times.
            (End::Dead(_), 0, [CRASHED]) if order.behaviour.outlasts_its_timeout() && died_with(order.id) => {
                *self.dead.entry(CRASHED.to_owned()).or_default() += 1;
            }
            (end, effects, rows) => {
                let lost = u64::from(effects == 0 && rows.is_empty());
                let one = u64::from(effects > 0 && !rows.is_empty() && end != End::Committed);
                self.wrong(&[order], lost, effects.saturating_sub(1).max(one), found);
            }
        }
    }

    /// Checks that one message has its effect and each other one is a dead letter.
    fn conflicting(&mut self, orders: &[&Order], found: &Found) {
        let effects: u64 = orders.iter().map(|order| found.effects(order)).sum();
        let is_loser = |order: &&&Order| {
            let rows = found.rows(order);
            found.effects(order) == 0 && rows.len() == 1 && rows[0].reason.as_deref() == Some(CONFLICT)
        };
        let losers = orders.iter().filter(is_loser).count();
        if effects == 1 && losers + 1 == orders.len() {
            *self.dead.entry(CONFLICT.to_owned()).or_default() += losers as u64;
            return;
        }
        let gone = |order: &&&Order| found.effects(order) == 0 && found.rows(order).is_empty();
        self.wrong(orders, orders.iter().filter(gone).count() as u64, effects.saturating_sub(1), found);
    }

    fn wrong(&mut self, orders: &[&Order], lost: u64, doubled: u64, found: &Found) {
        self.lost += lost;
        self.doubled += doubled;
        let kind = match (lost, doubled) {
            (0, 0) => "not as planned",
            (0, _) => "DOUBLED",
            _ => "LOST",
        };
        for order in orders {
            let claim = match found.claims.get(&order.key) {
                Some(true) => "dated claim",
                Some(false) => "null claim",
                None => "no claim",
            };
            let Order { id, key, behaviour, .. } = order;
            let effects = found.effects(order);
            let rows: Vec<&str> = found.rows(order).iter().map(|row| row.text.as_str()).collect();
            let rows = rows.join("; ");
            self.wrong.push(format!(
                "{kind}: message {id}, key {key:?}, {behaviour:?}: {effects} effects, {claim}; [{rows}]"
            ));
        }
    }
}

impl Found {
    fn effects(&self, order: &Order) -> u64 {
        self.effects.get(&order.id).copied().unwrap_or(0)
    }

    fn rows(&self, order: &Order) -> &[InboxRow] {
        self.inbox.get(&order.id).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::plan::Behaviour;

    /// Returns messages that all have the required outcome.
    fn sound() -> (Plan, Found) {
        let plan = Plan::new(300, 20, &mut Rng::with_seed(1));
        let mut found = Found { effects: HashMap::new(), inbox: HashMap::new(), claims: HashMap::new() };
        for orders in plan.by_key().values() {
            for (place, order) in orders.iter().enumerate() {
                match (place, order.behaviour.end()) {
                    (0, End::Effect) => effect(&mut found, order.id),
                    (0, End::Dead(reason)) => dead(&mut found, order.id, reason),
                    (0, End::Committed) => dead(&mut found, order.id, COMMITTED),
                    _ => dead(&mut found, order.id, CONFLICT),
                }
            }
        }
        (plan, found)
    }

    fn effect(found: &mut Found, id: u64) {
        *found.effects.entry(id).or_default() += 1;
    }

    fn dead(found: &mut Found, id: u64, reason: &str) {
        let row = InboxRow { reason: Some(reason.to_owned()), text: String::new() };
        found.inbox.entry(id).or_default().push(row);
    }

    fn first(plan: &Plan, behaviour: Behaviour) -> u64 {
        plan.orders.iter().find(|order| order.behaviour == behaviour).map_or(0, |order| order.id)
    }

    /// Returns how many messages are lost, doubled and wrong after `what` has changed sound data.
    fn after(what: impl Fn(&Plan, &mut Found)) -> (u64, u64, usize) {
        let (plan, mut found) = sound();
        what(&plan, &mut found);
        let verdict = Verdict::new(&plan, |_| false, &found);
        (verdict.lost, verdict.doubled, verdict.wrong.len())
    }

    #[test]
    fn a_required_outcome_is_not_wrong() {
        assert_eq!(after(|_, _| {}), (0, 0, 0));
        assert_eq!(after(|plan, found| effect(found, first(plan, Behaviour::Commit))), (0, 0, 0));
    }

    #[test]
    fn a_message_without_a_trace_is_lost() {
        let lost = after(|plan, found| _ = found.inbox.remove(&first(plan, Behaviour::Poison)));
        assert_eq!(lost, (1, 0, 1));
        assert_eq!(after(|plan, found| _ = found.effects.remove(&first(plan, Behaviour::Flaky))), (1, 0, 1));
    }

    #[test]
    fn a_second_effect_and_an_effect_of_a_dead_one_are_doubled() {
        assert_eq!(after(|plan, found| effect(found, first(plan, Behaviour::SetRole))), (0, 1, 1));
        assert_eq!(after(|plan, found| effect(found, first(plan, Behaviour::Rollback))), (0, 1, 1));
        let twice =
            |plan: &Plan, found: &mut Found| (0..2).for_each(|_| effect(found, first(plan, Behaviour::CommitWrite)));
        assert_eq!(after(twice), (0, 1, 1));
    }

    #[test]
    fn a_dead_letter_of_another_reason_is_wrong() {
        let other = |plan: &Plan, found: &mut Found| {
            found.inbox.remove(&first(plan, Behaviour::Killer));
            dead(found, first(plan, Behaviour::Killer), "exhausted");
        };
        assert_eq!(after(other), (0, 0, 1));
    }

    #[test]
    fn a_message_that_hangs_may_look_like_the_killer_of_processes_that_the_demo_killed() {
        let (plan, mut found) = sound();
        let id = first(&plan, Behaviour::Hang);
        found.inbox.remove(&id);
        dead(&mut found, id, CRASHED);
        assert_eq!(Verdict::new(&plan, |_| false, &found).wrong.len(), 1);
        assert_eq!(Verdict::new(&plan, |died| died == id, &found).wrong.len(), 0);
        // One that fails at once runs too shortly for that.
        let (plan, mut found) = sound();
        let id = first(&plan, Behaviour::Poison);
        found.inbox.remove(&id);
        dead(&mut found, id, CRASHED);
        assert_eq!(Verdict::new(&plan, |died| died == id, &found).wrong.len(), 1);
    }

    #[test]
    fn a_commit_of_a_process_that_was_killed_may_be_unwritten() {
        let (plan, mut found) = sound();
        let id = first(&plan, Behaviour::CommitHang);
        found.inbox.remove(&id);
        effect(&mut found, id);
        assert_eq!(Verdict::new(&plan, |_| false, &found).wrong.len(), 1);
        let verdict = Verdict::new(&plan, |died| died == id, &found);
        assert_eq!((verdict.unwritten, verdict.wrong.len()), (1, 0));
    }
}
