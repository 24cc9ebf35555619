//! The rounds: all sides run in turn, so that disturbances of the machine affect all of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::case::{Case, Size};
use crate::machine::{Machine, load};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::samples::Samples;
use crate::sides::Sides;
use crate::tables::run;
use crate::{framework, plan, prune};

/// Measures everything.
pub(crate) async fn measure(options: &Options) -> Result<Outcome> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set: say `cargo xtask bench`")?;
    let framework = match options.wants("framework") {
        true => Some(framework::measure((200_000.0 * options.seconds) as usize).await?),
        false => None,
    };
    let built = options.peer.iter().filter(|(_, program)| program.is_some());
    let peers: Vec<String> = built.map(|(name, _)| name.clone()).collect();
    let mut cases = plan::cases(peers.len());
    cases.retain(|case| options.wants(&case.label(&peers)));
    let mut sides = Sides::new(&url, options, sizes(&cases, options)).await?;
    let machine = Machine::look(&mut sides.conn).await?;
    let mut missing: Vec<String> = sides.brokers.missing();
    let unbuilt = options.peer.iter().filter(|(_, program)| program.is_none());
    missing.extend(unbuilt.map(|(name, _)| format!("{name} does not build, see target/bench/{name}.log")));
    cases.retain(|case| sides.brokers.has(case));
    let samples = rounds(&mut sides, cases, options, &peers, &mut missing).await?;
    let mut bytes = Vec::new();
    for table in &sides.tables {
        bytes.extend(table.bytes(&mut sides.conn).await?);
    }
    let prune = if options.wants("prune") { Some(prune::measure(&url, &mut sides, options).await?) } else { None };
    let (rounds, rows, command) = (options.rounds, options.rows, options.command.clone());
    let (whole, load_at_end) = (options.only.is_empty() && !options.no_brokers, load());
    Ok(Outcome { command, machine, peers, rounds, rows, whole, load_at_end, samples, bytes, prune, framework, missing })
}

/// Returns the sizes of the tables that are needed: a large one takes minutes to fill.
fn sizes(cases: &[Case], options: &Options) -> BTreeSet<Size> {
    let mut sizes: BTreeSet<Size> = cases.iter().map(|case| case.size).collect();
    sizes.insert(Size::Empty);
    if options.wants("prune") {
        sizes.insert(Size::Tenth);
    }
    sizes
}

async fn rounds(
    sides: &mut Sides,
    mut cases: Vec<Case>,
    options: &Options,
    peers: &[String],
    missing: &mut Vec<String>,
) -> Result<Samples> {
    let (mut samples, mut counts) = (Samples::default(), BTreeMap::<Case, usize>::new());
    for round in 0..=options.rounds {
        // Every other round runs in reverse order, so that no side always runs after the same one.
        cases.reverse();
        let mut failed = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            let label = case.label(peers);
            eprint!("\r\x1b[Kround {round} of {}, {} of {}: {label} ", options.rounds, at + 1, cases.len());
            let count = *counts.entry(*case).or_insert_with(|| case.first());
            match sides.measure(case, count).await {
                // The first round warms up, and determines how many messages fit into the time.
                Ok(sample) if round == 0 => drop(counts.insert(*case, case.round(sample.rate * options.seconds))),
                Ok(sample) => samples.add(*case, sample),
                Err(error) => {
                    eprintln!("\n{label}: {error:#}");
                    missing.push(format!("{label}: {error:#}"));
                    failed.push(*case);
                }
            }
        }
        failed.iter().for_each(|case| samples.forget(case));
        cases.retain(|case| !failed.contains(case));
        if round == 0 {
            // Otherwise its writes would slow down the side that runs when it starts.
            run(&mut sides.conn, "CHECKPOINT".to_owned()).await?;
        }
    }
    eprintln!();
    Ok(samples)
}
