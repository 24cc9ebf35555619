//! The rounds: all sides run in turn, so that disturbances of the machine affect all of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::framework;
use crate::machine::{describe, load};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::plan::{Case, Side, Size};
use crate::samples::Samples;
use crate::servers::{Servers, build_peer};
use crate::sides::Sides;
use crate::tables::{measure_prune, run};

/// Measures what the options ask for.
pub(crate) async fn measure(servers: &Servers, options: &Options) -> Result<Outcome> {
    let framework = match options.wants("framework") {
        true => Some(framework::measure((200_000.0 * options.seconds) as usize).await?),
        false => None,
    };
    let mut cases = options.cases();
    let mut missing = Vec::new();
    let mut peer = None;
    if cases.iter().any(|case| case.side == Side::Peer) {
        match build_peer() {
            Ok(program) => peer = Some(program),
            Err(error) => {
                missing.push(format!("{error:#}"));
                cases.retain(|case| case.side != Side::Peer);
            }
        }
    }
    let mut sides = Sides::new(servers, options, sizes(&cases, options), peer).await?;
    let machine = describe(&mut sides.conn).await?;
    let samples = rounds(&mut sides, cases, options, &mut missing).await?;
    let mut bytes = Vec::new();
    for table in &sides.tables {
        bytes.extend(table.bytes(&mut sides.conn).await?);
    }
    let prune = match options.wants("prune") {
        true => Some(measure_prune(&servers.database, &mut sides, options).await?),
        false => None,
    };
    let args: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("cargo xtask bench {}", args.join(" "));
    let (rounds, rows) = (options.rounds, options.rows);
    let (whole, load_at_end) = (options.only.is_empty() && !options.no_brokers, load());
    Ok(Outcome { command, machine, rounds, rows, whole, load_at_end, samples, bytes, prune, framework, missing })
}

/// Returns the sizes of the tables that are needed: a large one takes minutes to fill.
fn sizes(cases: &[Case], options: &Options) -> BTreeSet<Size> {
    let mut sizes: BTreeSet<Size> = cases.iter().map(|case| case.size).collect();
    sizes.insert(Size::Empty);
    if options.wants("prune") {
        sizes.insert(Size::Full);
    }
    sizes
}

async fn rounds(
    sides: &mut Sides<'_>,
    mut cases: Vec<Case>,
    options: &Options,
    missing: &mut Vec<String>,
) -> Result<Samples> {
    let (mut samples, mut counts) = (Samples::default(), BTreeMap::<Case, usize>::new());
    for round in 0..=options.rounds {
        // Every other round runs in reverse order, so that no side always runs after the same one.
        cases.reverse();
        let mut failed = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            let label = case.label();
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
