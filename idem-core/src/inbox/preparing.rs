//! Rows whose codec has to fetch something before it can decode them.

use crate::runtime::Pipeline;
use crate::store::{Note, Row};
use crate::{Outcome, Reason, Store};

impl<S: Store> Pipeline<S> {
    /// Gives a row back, uncharged, while its codec prepares for it outside the slots: a registry that hangs must not
    /// delay other rows, or a suspect that waits until nothing runs. Each time the row is taken before its codec is
    /// prepared, it waits longer.
    pub(super) async fn leave_to_prepare_row(&self, row: &Row) -> Option<Outcome> {
        if let Some(why) = self.preparations.undecodable(row.id) {
            return self.reject(row, Reason::Undecodable, why.to_string()).await;
        }
        let (tries, due) = self.refusals.count(row.id);
        self.routes.meters(row.identity.handler).held();
        self.preparations.want(row, tries);
        self.record_result(row, &Note::GivenBack { due }).await;
        None
    }
}
