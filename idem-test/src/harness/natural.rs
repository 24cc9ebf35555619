//! The proof that a handler is natural: however its messages are delivered, they leave the same rows.

use std::fmt::Debug;

use idem_core::{BoxError, Outcome, Store};

use crate::Publication;

use super::{Crash, ToPublication, Trial};

/// The copies of each message that are delivered at once.
const AT_ONCE: usize = 5;

/// A way to deliver messages that must leave the same as another one.
struct Way {
    /// The places of the messages, in the order in which they are delivered.
    places: Vec<usize>,
    how: How,
    name: String,
    /// Whether it delivers what the first way of its group delivers, in the same order, and copies of it.
    adds_copies: bool,
}

/// The state that the first way of a group has left.
struct Reference<D> {
    way: String,
    rows: D,
    /// How many messages were staged, by their ids.
    staged: usize,
}

/// How the messages of a way are delivered.
enum How {
    /// One after another, each when the one before has been processed.
    InTurn,
    /// All at once, to two processes.
    AtOnce,
    /// One after another, and the process that gets a message ends at this point.
    Crashing(Crash),
}

impl Way {
    fn in_turn(name: impl Into<String>, places: impl IntoIterator<Item = usize>) -> Self {
        Self { places: places.into_iter().collect(), how: How::InTurn, name: name.into(), adds_copies: false }
    }

    /// The ways for this many messages, in groups: the first of a group shows what the others have to leave.
    fn groups(messages: usize) -> Vec<Vec<Self>> {
        let all = || 0..messages;
        let often = |times: usize| all().flat_map(move |place| std::iter::repeat_n(place, times));
        let mut ways = vec![
            Self::in_turn("each once", all()),
            Self { adds_copies: true, ..Self::in_turn("each twice", often(2)) },
            Self { adds_copies: true, ..Self::in_turn("all, and then all again", all().chain(all())) },
            Self::in_turn("each once, in reverse order", all().rev()),
            Self { how: How::AtOnce, ..Self::in_turn("five copies of each at once", often(AT_ONCE)) },
        ];
        ways.extend(Crash::ALL.iter().map(|point| {
            let name = format!("each once, with a crash at {point:?}");
            Self { how: How::Crashing(*point), ..Self::in_turn(name, all()) }
        }));
        let pairs = all().flat_map(|second| (0..second).map(move |first| (first, second)));
        let pair = |(first, second): (usize, usize)| {
            let way = |one: usize, next: usize| {
                Self::in_turn(format!("message {} and then message {}", one + 1, next + 1), [one, next])
            };
            vec![way(first, second), way(second, first)]
        };
        std::iter::once(ways).chain(pairs.map(pair)).collect()
    }
}

impl<D: PartialEq + Debug> Reference<D> {
    /// Returns an error if another way of the group has left other rows, or has staged further messages for copies.
    fn compare(&self, handler: &str, way: &Way, rows: &D, staged: usize) -> Result<(), BoxError> {
        let (name, reference) = (&way.name, &self.way);
        if *rows != self.rows {
            return Err(format!(
                "the handler {handler:?} says `natural`, and is not. Delivered {name}, its messages leave {rows:?}. Delivered \
                 {reference}, they leave {:?}",
                self.rows
            )
            .into());
        }
        if way.adds_copies && staged != self.staged {
            return Err(format!(
                "the handler {handler:?} says `natural`, and publishes other messages for copies. Delivered {name}, its \
                 messages stage {staged} messages, by their ids. Delivered {reference}, they stage {}: stage no more for a \
                 copy, and give a message no id by `.id(..)` that differs between the runs of one key",
                self.staged
            )
            .into());
        }
        Ok(())
    }
}

impl<S: Store> Trial<S> {
    /// Checks that a `natural` handler is natural: it leaves the same rows if its messages are delivered once, twice, in
    /// both orders of each pair, five at once, and with a crash at each [point](Crash). If it stages messages, those of one
    /// id have to be the same each time, and a copy may not add further ids: the place of a message among those that a run
    /// stages is a part of its id, so a copy has to stage the same ones in the same order, or the first ones of them.
    ///
    /// This shows nothing of other messages, of the orders of three or more, or of what `digest` does not read.
    ///
    /// `messages` creates the messages of one trial from a number: a few that concern each other, such as three versions of
    /// one order. Each number stands for another entity and other keys, so that no trial finds what an earlier one has left.
    /// `digest` reads what the messages with this number have left in the test's own tables: all that has to be the same,
    /// without the number itself. Any type will do that can be compared, such as the rows of a query.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Store};
    /// # use idem_test::Trial;
    /// # #[derive(serde::Serialize)] struct OrderChanged { event_id: String, order_id: u32, version: i64, status: &'static str }
    /// # async fn test<S: Store>(trial: Trial<S>, mut db: sqlx::SqliteConnection) -> Result<(), BoxError> {
    /// let versions = |number: u32| {
    ///     let version = |version: i64, status| OrderChanged {
    ///         event_id: format!("{number}-{version}"), order_id: number, version, status,
    ///     };
    ///     vec![version(1, "placed"), version(2, "paid"), version(3, "sent")]
    /// };
    /// let orders = async |number: u32| {
    ///     let orders = sqlx::query_as::<_, (String,)>("SELECT status FROM orders WHERE id = ?").bind(number);
    ///     Ok(orders.fetch_all(&mut db).await?)
    /// };
    /// trial.is_natural(versions, orders).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Pairs are many: five messages have ten, and each takes two trials.
    ///
    /// # Errors
    /// Names the handler, and the first way that leaves something else, or stages something else; or any other failure: the
    /// handler does not say `natural`, a message became a dead letter or had no effect, or there are fewer than two messages.
    /// A trial with [`inbox`](super::Bench::inbox) proves nothing, since each message that is stored has a claim, and is
    /// refused.
    pub async fn is_natural<M: ToPublication, D: PartialEq + Debug>(
        &self,
        mut messages: impl FnMut(u32) -> Vec<M>,
        mut digest: impl AsyncFnMut(u32) -> Result<D, BoxError>,
    ) -> Result<(), BoxError> {
        let handler = self.subject.handler.name;
        if !self.subject.is_natural {
            return Err(format!("the handler {handler:?} does not say `natural`, so that its copies do not run").into());
        }
        if self.subject.inbox {
            return Err("a trial with `.inbox()` gives each message a claim, so that its copies do not run".into());
        }
        let number_of_messages = messages(0).len();
        if number_of_messages < 2 {
            return Err("an order needs two messages: let `messages` return two or more about the same entity".into());
        }
        // 0 was only counted.
        let mut numbers = 1..;
        let mut staged_before = 0;
        for group in Way::groups(number_of_messages) {
            let mut first: Option<Reference<D>> = None;
            for way in group {
                let Some(number) = numbers.next() else { return Ok(()) };
                let sent = messages(number).iter().map(ToPublication::to_publication).collect::<Result<Vec<_>, _>>()?;
                let before = digest(number).await?;
                let outcomes = self.deliver_by(&way, &sent).await?;
                self.all_live(&outcomes).await?;
                let all_staged = self.stages_the_same(&way.name).await?;
                let staged = all_staged - staged_before;
                staged_before = all_staged;
                let rows = digest(number).await?;
                let Some(reference) = &first else {
                    if rows == before {
                        return Err(self.no_effect(&outcomes).await?.into());
                    }
                    first = Some(Reference { way: way.name, rows, staged });
                    continue;
                };
                reference.compare(handler, &way, &rows, staged)?;
            }
        }
        Ok(())
    }

    async fn deliver_by(&self, way: &Way, messages: &[Publication]) -> Result<Vec<Outcome>, BoxError> {
        let known = self.outcomes().len();
        let sent = way.places.iter().map(|place| &messages[*place]);
        match way.how {
            How::InTurn => {
                let mut process = self.start(None, 1)?;
                for message in sent {
                    self.publish(message);
                    tokio::select! {
                        ended = process.ended() => ended?,
                        done = self.done() => done?,
                    }
                }
                process.stop().await?;
            }
            How::AtOnce => {
                sent.for_each(|message| self.publish(message));
                // In one process, copies of a message wait for each other.
                let (mut one, mut other) = (self.start(None, AT_ONCE)?, self.start(None, AT_ONCE)?);
                tokio::select! {
                    ended = one.ended() => ended?,
                    ended = other.ended() => ended?,
                    done = self.done() => done?,
                }
                one.stop().await?;
                other.stop().await?;
            }
            How::Crashing(point) => {
                for message in sent {
                    self.deliver(message.clone()).crash(point).once().await?;
                }
            }
        }
        Ok(self.outcomes().split_off(known))
    }

    /// Refuses to conclude anything from a message that became a dead letter.
    async fn all_live(&self, outcomes: &[Outcome]) -> Result<(), BoxError> {
        let dead = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Dead { reason, .. } => Some(*reason),
            _ => None,
        });
        let Some(reason) = dead else { return Ok(()) };
        let error = self.dead_letters().await?.into_iter().next().map(|row| row.error).unwrap_or_default();
        let handler = self.subject.handler.name;
        Err(format!("a message of the handler {handler:?} is a dead letter ({reason}): {error}").into())
    }
}
