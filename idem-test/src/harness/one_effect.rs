//! One effect of each message, however it is delivered.

use idem_core::{BoxError, Error, Outcome, Reason, Store};

use crate::Publication;

use super::{Crash, Trial};

/// A message of [`Trial::has_one_effect`]: a [`Publication`], or a type that is sent as JSON.
pub trait ToPublication {
    /// Returns the message as it is published.
    ///
    /// # Errors
    /// It cannot be serialized as JSON.
    fn to_publication(&self) -> Result<Publication, BoxError>;
}

impl ToPublication for Publication {
    fn to_publication(&self) -> Result<Publication, BoxError> {
        Ok(self.clone())
    }
}

impl<M: serde::Serialize> ToPublication for M {
    fn to_publication(&self) -> Result<Publication, BoxError> {
        Ok(Publication::json(self)?)
    }
}

impl<S: Store> Trial<S> {
    /// Delivers messages in every way (once, ten times, five at once, in two processes, with a crash at each point) and
    /// checks that each message has the effect of a single delivery. `message` creates a new message for each way, from
    /// a number: a type that is sent as JSON, or a [`Publication`] with the headers and ids that the handler needs.
    /// `effect` reads a number from the test's own tables; each message must change it by the same amount.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Store};
    /// # use idem_test::{Publication, Trial};
    /// # async fn test<S: Store>(trial: Trial<S>, balance: impl AsyncFnMut() -> Result<i64, BoxError>) -> Result<(), BoxError> {
    /// let paid = |number: u32| Publication::new(r#"{"cents": 2500}"#).message_id(format!("paid-{number}"));
    /// trial.has_one_effect(paid, balance).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns the first way in which the effect differs, or any other failure.
    pub async fn has_one_effect<M: ToPublication>(
        &self,
        mut message: impl FnMut(u32) -> M,
        mut effect: impl AsyncFnMut() -> Result<i64, BoxError>,
    ) -> Result<(), BoxError> {
        let before = effect().await?;
        let outcomes = self.deliver(message(0).to_publication()?).once().await?;
        let one = effect().await? - before;
        if one == 0 {
            return Err(self.no_effect(&outcomes).await?.into());
        }
        let crashes = Crash::ALL.iter().copied().map(Some);
        let ways = [(10, 1, 1, None), (5, 5, 1, None), (6, 3, 2, None)].into_iter();
        let ways = ways.chain(crashes.flat_map(|crash| [(1, 1, 1, crash), (5, 5, 1, crash)]));
        for (number, (copies, concurrency, processes, crash)) in (1..).zip(ways) {
            let before = effect().await?;
            let sending = self.deliver(message(number).to_publication()?).processes(processes).maybe_crash(crash);
            sending.run(copies, concurrency).await?;
            let found = effect().await? - before;
            if found != one {
                return Err(format!(
                    "delivered {copies} times, {concurrency} at once, in {processes} processes, crash {crash:?}: the effect \
                     was {found}, and that of one message is {one}"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Tells why a message had no effect: it died, or its effect is elsewhere.
    pub(super) async fn no_effect(&self, outcomes: &[Outcome]) -> Result<String, Error> {
        let why = match (outcomes.last(), self.dead_letters().await?.first()) {
            (Some(Outcome::Dead { reason, .. }), Some(row)) => {
                let remedy = match reason {
                    Reason::UnknownType => ": give it `.deliver(..).event_type(..)`",
                    Reason::NoKey => {
                        ": give it what the key is made of, `.deliver(..).header(..)` or `.message_id(..)`"
                    }
                    _ => "",
                };
                format!("it is a dead letter ({reason}), {}{remedy}", row.error)
            }
            (Some(Outcome::Duplicate), _) => {
                "it is a duplicate of a message of an earlier test in this database: give each run fresh ids, or a \
                 database of its own, as `Trial::sqlite()` and `Trial::postgres()` do"
                    .to_owned()
            }
            _ => format!(
                "its outcomes are {outcomes:?}: see whether `effect` looks at the table that the handler writes"
            ),
        };
        Ok(format!("a message that was delivered once had no effect: {why}"))
    }
}
