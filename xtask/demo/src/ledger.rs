//! The totals, as numbers and in one line.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use anyhow::Result;

use crate::fate::Fate;
use crate::faults::Faults;
use crate::journal::Sum;
use crate::kills::{Kills, came_again};
use crate::moves::Moves;
use crate::plan::Plan;
use crate::processes::Processes;
use crate::tables::Tables;
use crate::verdict::{Found, Verdict};

/// The outcomes of all messages.
#[derive(Debug)]
pub(crate) struct Ledger {
    events: u64,
    copies: u64,
    /// Deliveries that a worker received. Deliveries that were only in transit to a killed worker count when they are
    /// redelivered.
    deliveries: u64,
    redeliveries: u64,
    duplicates: u64,
    effects: u64,
    /// The sum of all balances, which equals that of the messages with effects.
    balance: i64,
    kills: u64,
    before_ack: u64,
    /// Processes that a message ended.
    killed: u64,
    added: u64,
    left: u64,
    faults: u64,
    rate: f64,
    took: Duration,
    verdict: Verdict,
    /// All other deviations.
    wrong: Vec<String>,
}

/// How many processes a message may end before it becomes a dead letter.
const DEATHS: u64 = 5;

/// The changes made to workers and servers during the run.
pub(crate) struct Done<'a> {
    pub(crate) processes: &'a Processes,
    pub(crate) kills: &'a Kills,
    pub(crate) moves: &'a Moves,
    pub(crate) faults: &'a Faults,
    pub(crate) took: Duration,
}

impl Ledger {
    pub(crate) async fn new(plan: &Plan, done: &Done<'_>, tables: &mut Tables, left: u64) -> Result<Self> {
        let found =
            Found { effects: tables.effects().await?, inbox: tables.inbox().await?, claims: tables.claims().await? };
        let (astray, balance) = tables.balance().await?;
        let verdict = Verdict::new(plan, |id| done.processes.died_with(id), &found);
        let count = |sum: fn(&Sum) -> u64| done.processes.sums().map(sum).sum::<u64>();
        let deliveries = count(|sum| sum.delivered);
        let mut wrong = Vec::new();
        let mut must = |holds: bool, text: String| wrong.extend((!holds).then_some(text));
        must(left == 0, format!("{left} messages are still with the broker"));
        must(astray == 0, format!("{astray} accounts have another balance than their effects come to"));
        let amounts = found.effects.iter().map(|(id, effects)| {
            let order = usize::try_from(*id).ok().and_then(|id| plan.orders.get(id));
            order.map_or(0, |order| order.amount) * i64::try_from(effects.rows).unwrap_or(0)
        });
        let due: i64 = amounts.sum();
        must(due == balance, format!("the balance is {balance}, and that of the messages is {due}"));
        check_disruptions(done, |id| plan.times(id), &mut must);
        check_killers(plan, done.processes, must);
        Ok(Self {
            events: plan.orders.len() as u64,
            copies: (plan.published.len() - plan.orders.len()) as u64,
            deliveries,
            redeliveries: count(|sum| sum.redelivered),
            duplicates: count(|sum| sum.duplicates),
            effects: found.effects.values().map(|effects| effects.rows).sum(),
            balance,
            kills: done.kills.done.len() as u64,
            before_ack: done.kills.done.iter().filter(|kill| kill.before_ack.is_some()).count() as u64,
            killed: done.processes.killers.len() as u64,
            added: done.moves.added,
            left: done.moves.left,
            faults: done.faults.done.len() as u64,
            rate: deliveries as f64 / done.took.as_secs_f64(),
            took: done.took,
            verdict,
            wrong,
        })
    }

    /// Returns all deviations, one per line.
    pub(crate) fn wrong(&self) -> impl Iterator<Item = String> {
        let messages = self.verdict.wrong.iter().map(|(kind, text)| format!("{kind}: {text}"));
        self.wrong.iter().cloned().chain(messages)
    }

    /// Returns the totals in one line.
    pub(crate) fn line(&self) -> String {
        let Self { events, copies, effects, balance, verdict, .. } = self;
        let dead: Vec<String> = verdict.dead.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let unwritten = match verdict.unwritten {
            0 => String::new(),
            count => format!(", {count} killed behind its own COMMIT"),
        };
        format!(
            "{events} events, {copies} copies, {effects} effects, lost {}, doubled {}, dead {} ({}){unwritten}, balance {balance} {}, \
             {} process deaths, {} server faults, {:.0} s{}",
            verdict.lost,
            verdict.doubled,
            verdict.dead.values().sum::<u64>(),
            dead.join(", "),
            if self.wrong.iter().any(|text| text.contains("balance")) { "DISAGREES" } else { "agrees" },
            self.kills + self.killed,
            self.faults,
            self.took.as_secs_f64(),
            if self.wrong().next().is_none() { "" } else { ": WRONG" },
        )
    }
}

/// Checks that everything planned for the processes and servers was done and had the intended effect.
pub(crate) fn check_disruptions(done: &Done<'_>, published: impl Fn(u64) -> u64, mut must: impl FnMut(bool, String)) {
    let Done { processes, kills, moves, faults, .. } = done;
    must(moves.outstanding() == 0, "no process was added or left: there was no work left".to_owned());
    must(kills.left() == 0, format!("{} kills did not happen: there was no work left", kills.left()));
    must(faults.outstanding() == 0, format!("{} faults did not happen: there was no work left", faults.outstanding()));
    for kill in &kills.done {
        must(kill.in_hand > 0, "a kill hit an idle process".to_owned());
        let Some(moment) = &kill.before_ack else { continue };
        let came_again = came_again(moment.id, processes, &published);
        must(moment.committed, format!("message {} had no commit when its process was killed", moment.id));
        must(came_again, format!("message {} did not come again after its process was killed", moment.id));
    }
    let before_ack = kills.done.iter().any(|kill| kill.before_ack.is_some());
    must(before_ack || kills.done.is_empty(), "no kill was between commit and ack".to_owned());
}

/// Checks that each message that ends its process ended as many as it may.
fn check_killers(plan: &Plan, processes: &Processes, mut must: impl FnMut(bool, String)) {
    let mut deaths = HashMap::<u64, u64>::new();
    processes.killers.iter().for_each(|id| *deaths.entry(*id).or_default() += 1);
    for order in plan.orders.iter().filter(|order| order.fate == Fate::Killer) {
        let times = deaths.get(&order.id).copied().unwrap_or(0);
        // A copy that is delivered before the message is stored runs directly as well.
        let copies = plan.times(order.id) - 1;
        must((1..=DEATHS + copies).contains(&times), format!("message {} ended {times} processes", order.id));
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, number: u64| writeln!(f, "{name:24}{number:>8}");
        line("events", self.events)?;
        line("copies", self.copies)?;
        line("deliveries", self.deliveries)?;
        line("redeliveries", self.redeliveries)?;
        line("duplicates skipped", self.duplicates)?;
        line("effects", self.effects)?;
        line("dead letters as planned", self.verdict.dead.values().sum())?;
        for (reason, count) in &self.verdict.dead {
            line(&format!("  {reason}"), *count)?;
        }
        line("workers killed", self.kills)?;
        line("  before their ack", self.before_ack)?;
        line("ended by a message", self.killed)?;
        line("workers added", self.added)?;
        line("workers that left", self.left)?;
        line("server faults", self.faults)?;
        line("msg/s", self.rate as u64)?;
        writeln!(f, "balance {}", self.balance)?;
        let Verdict { lost, doubled, .. } = self.verdict;
        writeln!(f, "\nlost {lost}, doubled {doubled}, in {:.1} s", self.took.as_secs_f64())
    }
}
