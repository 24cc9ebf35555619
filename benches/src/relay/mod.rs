//! The relay: how fast it publishes what is staged, and how long after the commit, compared to a hand-written loop with the same
//! confirms.
//!
//! | file | contents |
//! |---|---|
//! | `sides` | the outbox, filled; one run of one side: the relay, with keys, beside open transactions; the loop |
//! | `pace` | counts and times the confirms of a sink; from commit to confirm at a fixed rate |
//! | `report` | the table |

mod pace;
mod report;
mod sides;

use anyhow::{Context, Result};
use idem_brokers::Broker as Client;

use self::report::{Line, Report};
use self::sides::{Side, Sides};
use crate::machine::describe;
use crate::options::Relayed;
use crate::plan::on_broker;
use crate::servers::Servers;
use crate::tables::run;

/// Measures the brokers that were asked for.
pub(crate) async fn measure(servers: &Servers, options: &Relayed) -> Result<Report> {
    let mut sides = Sides::new(&servers.database).await?;
    let machine = describe(&mut sides.conn).await?;
    let mut lines: Vec<_> = options.broker.iter().map(|broker| Line::new(*broker)).collect();
    for round in 0..=options.rounds {
        for line in &mut lines {
            let address = servers.address(line.broker)?;
            on_broker!(line.broker, B => all::<B>(&mut sides, address, options, round, line).await)
                .with_context(|| line.broker.to_string())?;
        }
    }
    eprintln!();
    Ok(Report::new(machine, options, lines))
}

/// Runs all sides once on one broker.
async fn all<B: Client>(
    sides: &mut Sides,
    address: &str,
    options: &Relayed,
    round: usize,
    line: &mut Line,
) -> Result<()> {
    let mut order = Side::ALL;
    // Every other round runs in reverse order, so that no side always runs after the same one.
    if round.is_multiple_of(2) {
        order.reverse();
    }
    // The first round warms up, with fewer messages.
    let part = if round == 0 { 10 } else { 1 };
    let messages = (options.deleted.div_ceil(part), options.messages.div_ceil(part));
    for side in order {
        eprint!("\r\x1b[Kround {round} of {}: {}, {side:?} ", options.rounds, line.broker);
        let rate = sides.run::<B>(address, side, messages).await.with_context(|| format!("{side:?}"))?;
        if round > 0 {
            line.rates[side as usize].push(rate);
        }
    }
    eprint!("\r\x1b[Kround {round} of {}: {}, at a fixed rate ", options.rounds, line.broker);
    let seconds = if round == 0 { options.seconds.min(1.0) } else { options.seconds };
    let sample = pace::relay::<B>(sides, address, seconds).await?;
    if round > 0 {
        line.paced.push(sample);
    } else {
        // Otherwise its writes would slow down the side that runs when it starts.
        run(&mut sides.conn, "CHECKPOINT".to_owned()).await?;
    }
    Ok(())
}
