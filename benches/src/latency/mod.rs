//! From publish to commit: idem and a loop by hand, from each broker, at a fixed rate.
//!
//! | file | contents |
//! |---|---|
//! | `sides` | one run of one side |
//! | `load` | publishes at the rate |
//! | `times`, `timed` | when each message was published and committed; notes the commit for idem |
//! | `consumer`, `rabbitmq`, `nats`, `kafka` | the loop by hand, with the client of each broker |
//! | `report` | the table and the verdict |

pub(crate) mod consumer;
pub(crate) mod kafka;
mod load;
pub(crate) mod nats;
pub(crate) mod rabbitmq;
mod report;
mod sides;
mod timed;
mod times;

use anyhow::{Context, Result};
use idem_brokers::{Kafka, Nats, RabbitMq};

use self::report::{Line, Report};
use self::sides::{Side, Sides};
use crate::brokers::Brokers;
use crate::case::Broker;
use crate::machine::Machine;
use crate::options::Pace;
use crate::tables::run;

/// Measures all brokers, or the one that was asked for.
pub(crate) async fn measure(url: &str, pace: &Pace) -> Result<Report> {
    let (mut sides, brokers) = (Sides::new(url).await?, Brokers::look());
    let machine = Machine::look(&mut sides.conn).await?;
    let wanted = [Broker::RabbitMq, Broker::Nats, Broker::Kafka].into_iter();
    let wanted = wanted.filter(|broker| pace.broker.is_none_or(|only| only == *broker));
    let (there, away): (Vec<_>, Vec<_>) = wanted.partition(|broker| brokers.address(*broker).is_some());
    let mut lines: Vec<_> = there.into_iter().map(Line::new).collect();
    for round in 0..=pace.rounds {
        for line in &mut lines {
            eprint!("\r\x1b[Kround {round} of {}: {} ", pace.rounds, line.broker);
            let mut order = [Side::Idem, Side::ByHand];
            // Every other round runs in reverse order, so that no side always runs after the other one.
            if round % 2 == 0 {
                order.reverse();
            }
            let address = brokers.address(line.broker).context("the broker's address is not set")?;
            for side in order {
                let sample = match line.broker {
                    Broker::RabbitMq => sides.run::<RabbitMq, rabbitmq::Queue>(address, side, pace).await,
                    Broker::Nats => sides.run::<Nats, nats::Stream>(address, side, pace).await,
                    Broker::Kafka => sides.run::<Kafka, kafka::Topic>(address, side, pace).await,
                };
                let sample = sample.with_context(|| format!("{}, {side:?}", line.broker))?;
                // The first round warms up connections, statements and caches.
                match side {
                    _ if round == 0 => {}
                    Side::Idem => line.idem.push(sample),
                    Side::ByHand => line.by_hand.push(sample),
                }
            }
        }
        if round == 0 {
            // Otherwise its writes would delay the side that runs when it starts.
            run(&mut sides.conn, "CHECKPOINT".to_owned()).await?;
        }
    }
    eprintln!();
    let missing = away.into_iter().map(|broker| format!("{broker}: its address is not set")).collect();
    Ok(Report::new(machine, pace, lines, missing))
}
