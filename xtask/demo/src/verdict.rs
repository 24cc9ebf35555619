//! What became of each message, and whether it had to.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::crew::Crew;
use crate::fate::{COMMITTED, CONFLICT, End};
use crate::plan::{Order, Plan};
use crate::tables::{Effects, InboxRow};

/// What the database holds in the end.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) effects: HashMap<u64, Effects>,
    pub(crate) inbox: HashMap<u64, Vec<InboxRow>>,
    pub(crate) claims: HashMap<String, bool>,
}

/// The sum of all verdicts.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// The dead letters that had to be, by reason.
    pub(crate) dead: BTreeMap<String, u64>,
    /// Messages whose handler ran COMMIT in a process that was killed before it could be written down that it did. This is
    /// a limit that idem documents.
    pub(crate) unwritten: u64,
    /// One text for each message that is not as it must be, the worst first.
    pub(crate) wrong: Vec<(Wrong, String)>,
}

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    Lost,
    Doubled,
    Otherwise,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "LOST",
            Self::Doubled => "DOUBLED",
            Self::Otherwise => "not as planned",
        })
    }
}

impl Verdict {
    /// Judges all messages.
    pub(crate) fn new(plan: &Plan, crew: &Crew, found: &Found) -> Self {
        let mut verdict = Self::default();
        for orders in plan.by_key().values() {
            match orders.as_slice() {
                [order] => verdict.one(order, crew, found),
                orders => verdict.conflicting(orders, found),
            }
        }
        verdict.wrong.sort();
        verdict
    }

    fn one(&mut self, order: &Order, crew: &Crew, found: &Found) {
        let (effects, rows) = (found.effects(order), found.rows(order));
        let reasons: Vec<&str> = rows.iter().map(|row| row.reason.as_deref().unwrap_or("waits")).collect();
        match (order.fate.end(), effects, reasons.as_slice()) {
            (End::Effect, 1, []) => {}
            (End::Dead(reason), 0, [only]) if *only == reason => *self.dead.entry(reason.to_owned()).or_default() += 1,
            (End::Committed, 0 | 1, [COMMITTED]) => *self.dead.entry(COMMITTED.to_owned()).or_default() += 1,
            (End::Committed, 1, []) if crew.died_with(order.id) => self.unwritten += 1,
            (end, effects, rows) => {
                let lost = u64::from(effects == 0 && rows.is_empty());
                let one = u64::from(effects > 0 && !rows.is_empty() && end != End::Committed);
                self.wrong(&[order], lost, effects.saturating_sub(1).max(one), found);
            }
        }
    }

    /// One has its effect, each other one is a dead letter.
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
            (0, 0) => Wrong::Otherwise,
            (0, _) => Wrong::Doubled,
            _ => Wrong::Lost,
        };
        for order in orders {
            let claim = match found.claims.get(&order.key) {
                Some(true) => "dated claim",
                Some(false) => "null claim",
                None => "no claim",
            };
            let Order { id, key, fate, .. } = order;
            let effects = found.effects(order);
            let rows: Vec<&str> = found.rows(order).iter().map(|row| row.text.as_str()).collect();
            let rows = rows.join("; ");
            let text = format!("message {id}, key {key:?}, {fate:?}: {effects} effects, {claim}; [{rows}]");
            self.wrong.push((kind, text));
        }
    }
}

impl Found {
    fn effects(&self, order: &Order) -> u64 {
        self.effects.get(&order.id).map_or(0, |effects| effects.rows)
    }

    fn rows(&self, order: &Order) -> &[InboxRow] {
        self.inbox.get(&order.id).map_or(&[], Vec::as_slice)
    }
}
