//! The steps of an operator, and what is left at the end.

use idem_core::operator::Operator;
use idem_core::store::{Replayed, Resolution, Row};
use idem_core::{Error, Key, Store};

use super::book::Trace;
use super::subject::Subject;

/// The name of an operator among the processes.
const OPERATOR: &str = "operator";

impl Trace {
    /// Replays a dead letter, as [`Operator::replay`] does.
    ///
    /// # Errors
    /// As that.
    pub async fn replay<S: Store>(&self, operator: &Operator<S>, row: &Row) -> Result<Replayed, Error> {
        let step = if calls(row) { "call-replayed" } else { "replayed" };
        let number = self.begin(step, row, "");
        let replayed = operator.replay(row.id).await?;
        self.end(number, replayed == Replayed::Due);
        Ok(replayed)
    }

    /// Discards a dead letter, as [`Operator::discard`] does.
    ///
    /// # Errors
    /// As that.
    pub async fn discard<S: Store>(&self, operator: &Operator<S>, row: &Row) -> Result<bool, Error> {
        let step = if calls(row) { "call-discarded" } else { "discarded" };
        let number = self.begin(step, row, "");
        let discarded = operator.discard(row.id).await?;
        self.end(number, discarded);
        Ok(discarded)
    }

    /// Resolves a dead letter whose call may have begun, as [`Operator::resolve`] does.
    ///
    /// # Errors
    /// As that. Or it has no key for a call.
    pub async fn resolve<S: Store>(
        &self,
        operator: &Operator<S>,
        row: &Row,
        resolution: Resolution,
    ) -> Result<bool, Error> {
        let provider_key = row.provider_key.ok_or_else(|| Error::Config("its handler makes no call".to_owned()))?;
        let (step, values) = match &resolution {
            Resolution::Answer(_) => ("resolved", "by=answer"),
            Resolution::CallAgain => ("resolved", "by=call"),
            _ => ("call-discarded", ""),
        };
        let number = self.begin(step, row, values);
        let resolved = operator.resolve(row.id, provider_key, resolution).await?;
        self.end(number, resolved);
        Ok(resolved)
    }

    /// Writes what the database has of a key when all workers have ended. `row`: `none`, `scheduled` or `dead`; `claim`:
    /// `none`, `undated` or `dated`.
    pub fn left(&self, key: &Key, row: &str, claim: &str) {
        let (of, values) = (Subject::of_key(key), format!("row={row} claim={claim}"));
        let mut book = self.book();
        let now = book.now();
        let number = book.begins(now, OPERATOR, "left", &of, &values);
        book.ends(number);
    }

    fn begin(&self, step: &str, row: &Row, values: &str) -> u64 {
        let of = Subject::new(&row.identity.key, &row.identity.fingerprint);
        let mut book = self.book();
        let now = book.now();
        book.begins(now, OPERATOR, step, &of, values)
    }

    fn end(&self, number: u64, done: bool) {
        let mut book = self.book();
        if done { book.ends(number) } else { book.is_nothing(number) }
    }
}

/// Whether a replay takes the row back to its call phase.
fn calls(row: &Row) -> bool {
    row.called_at.is_some() && row.answer.is_none()
}
