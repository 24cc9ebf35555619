//! The relay: how fast it publishes what is staged, and how long after the commit, compared to loops by hand with the
//! same confirms, and to the relay of another library.
//!
//! | file | contents |
//! |---|---|
//! | `staged` | the outbox, filled |
//! | `counted` | a sink that counts and times the confirms |
//! | `sides` | one run of one side: the relay, with keys, beside an open transaction; the loop; the other library |
//! | `pace` | from commit to confirm at a fixed rate, and from publish to confirm |
//! | `report` | the table |

mod counted;
mod pace;
mod report;
mod sides;
mod staged;

use anyhow::{Context, Result};
use idem_brokers::{Broker as Client, Kafka, Nats, RabbitMq};

use self::report::{Line, Report};
use self::sides::{Side, Sides};
use crate::brokers::Brokers;
use crate::case::Broker;
use crate::machine::Machine;
use crate::options::Relayed;
use crate::tables::run;

/// Measures all brokers, or the one that was asked for.
pub(crate) async fn measure(url: &str, options: &Relayed) -> Result<Report> {
    let (mut sides, brokers) = (Sides::new(url, options.peer.clone()).await?, Brokers::look());
    let machine = Machine::look(&mut sides.conn).await?;
    let wanted = [Broker::RabbitMq, Broker::Nats, Broker::Kafka].into_iter();
    let wanted = wanted.filter(|broker| options.pace.broker.is_none_or(|only| only == *broker));
    let (there, away): (Vec<_>, Vec<_>) = wanted.partition(|broker| brokers.address(*broker).is_some());
    let mut lines: Vec<_> = there.into_iter().map(Line::new).collect();
    for round in 0..=options.pace.rounds {
        for line in &mut lines {
            let address = brokers.address(line.broker).context("the broker's address is not set")?;
            match line.broker {
                Broker::RabbitMq => all::<RabbitMq>(&mut sides, address, options, round, line).await,
                Broker::Nats => all::<Nats>(&mut sides, address, options, round, line).await,
                Broker::Kafka => all::<Kafka>(&mut sides, address, options, round, line).await,
            }
            .with_context(|| line.broker.to_string())?;
        }
    }
    eprintln!();
    let mut missing: Vec<_> = away.into_iter().map(|broker| format!("{broker}: its address is not set")).collect();
    if lines.iter().any(|line| Side::Peer.is_on(line.broker)) {
        missing.extend(sides.peer.err());
    }
    Ok(Report::new(machine, options, lines, missing))
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
    let messages = if round == 0 { options.messages.div_ceil(10) } else { options.messages };
    for side in order {
        if !side.is_on(line.broker) || side == Side::Peer && sides.peer.is_err() {
            continue;
        }
        eprint!("\r\x1b[Kround {round} of {}: {}, {side:?} ", options.pace.rounds, line.broker);
        match sides.run::<B>(address, side, messages).await {
            Ok(rate) if round > 0 => line.rates[side as usize].push(rate),
            Ok(_) => {}
            // Half of its rounds could not be compared, and all other results are still worth having.
            Err(error) if side == Side::Peer => {
                line.rates[side as usize].clear();
                sides.peer = Err(format!("backbone-outbox: {error:#}"));
            }
            Err(error) => return Err(error.context(format!("{side:?}"))),
        }
    }
    eprint!("\r\x1b[Kround {round} of {}: {}, at a fixed rate ", options.pace.rounds, line.broker);
    let seconds = if round == 0 { options.pace.seconds.min(1.0) } else { options.pace.seconds };
    let relay = pace::relay::<B>(sides, address, (options.pace.rate, seconds)).await?;
    let bare = pace::bare::<B>(sides, address, (options.pace.rate, seconds)).await?;
    if round > 0 {
        line.relay.push(relay);
        line.bare.push(bare);
    } else {
        // Otherwise its writes would slow down the side that runs when it starts.
        run(&mut sides.conn, "CHECKPOINT".to_owned()).await?;
    }
    Ok(())
}
