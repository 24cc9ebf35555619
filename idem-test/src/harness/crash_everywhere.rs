//! One effect of each message, wherever its process dies.

use idem_core::{BoxError, Store};

use super::crash_report::CrashReport;
use super::digest::Digest;
use super::observed::One;
use super::one_effect::ToPublication;
use super::phase::Phase;
use super::runs::Runs;
use super::search::Search;
use super::trial::Trial;

/// The most points of a phase, three times as many as a login to PostgreSQL has. A handler with more waits in a loop.
const MOST: usize = 300;

impl<S: Store> Trial<S> {
    /// Delivers a message for each point at which a process can die, lets its process die there, and checks that the
    /// message has one effect once another process has completed it. A point is before each poll of the handler, of each
    /// of idem's statements and of the ack: the process is dead in every await, also if COMMIT has been sent and not
    /// answered. One more is when the answer to COMMIT has arrived. Returns how many points there were, by [phase](Phase).
    ///
    /// `message` creates a new message from a number, as for [`has_one_effect`](Self::has_one_effect); all messages must
    /// have the same effect. `digest` reads the effects of all messages so far, see [`Digest`].
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Store};
    /// # use idem_test::{Publication, Trial};
    /// # use sqlx::SqliteConnection;
    /// # async fn test<S: Store>(trial: Trial<S>, mut db: SqliteConnection) -> Result<(), BoxError> {
    /// let paid = |number: u32| Publication::new(r#"{"cents": 2500}"#).message_id(format!("paid-{number}"));
    /// let balance = async || Ok(sqlx::query_scalar::<_, i64>("SELECT balance FROM account").fetch_one(&mut db).await?);
    /// let report = trial.crash_everywhere(paid, balance).await?;
    /// println!("{report}"); // 13 points, one effect each: 4 before the handler, 2 in the handler, ..
    /// # Ok(()) }
    /// ```
    ///
    /// The digest is read before the message, when its process is dead, and when the next one has completed it. It must
    /// change in one of these two steps, and in all by the same amount as by a message without a crash. An effect that a
    /// handler makes outside of its transaction is therefore found: it is there although the process died before the
    /// commit, and the next process makes it again.
    ///
    /// - An external call has points before it is sent, before each further poll, when its answer has arrived, and as that is
    ///   kept. With [`provider`](super::Bench::provider), each message also has to be charged as often as one without a
    ///   crash. The digest must not read the charges: one survives the death of its process, and the next process gets the
    ///   same answer by its key. No process waits for a lease or for `ask_after`, since the one before it is seen to be gone
    ///   with all that it had begun. Without `provider`, nothing is known about the effect of a call, and the report says
    ///   `charges unseen`. The provider is asked only about calls without a key, and no process dies in a question. No answer
    ///   is lost but by the death of its process: test `not_done` and `reconcile` by
    ///   [`Provider::fail`](crate::provider::Provider::fail) and [`forget`](crate::provider::Provider::forget).
    /// - With [`local`](super::Bench::local), each part of a pair is judged by itself: the handlers of local messages have
    ///   transactions of their own, so each handler needs its part of the digest.
    /// - With [`relay`](super::Bench::relay), a message of the outbox has points before the sink is asked to publish it, before
    ///   each further poll, when its confirm has arrived, and as it is deleted. Published messages are counted by their ids.
    ///
    /// Each process runs in a current-thread runtime, in which `tokio::task::block_in_place` panics. When it dies, all
    /// its futures are dropped, so destructors run, as they would not in a killed process. The database may still
    /// complete the statement that was sent before; the next process waits for that transaction to end. If an answer
    /// other than those above is there at once, its await is no point, so the number of points differs a little from run to
    /// run.
    ///
    /// # Errors
    /// Returns the first point at which the effect differs, with what was seen, for example that a message was charged
    /// twice; a message that became a dead letter, as one does whose call is `at_most_once` and has no `reconcile`, or was not
    /// completed within a minute; a phase without a point, or with more than 300; or any other failure.
    pub async fn crash_everywhere<M: ToPublication, D: Digest>(
        &self,
        message: impl FnMut(u32) -> M,
        digest: impl AsyncFnMut() -> Result<D, BoxError>,
    ) -> Result<CrashReport, BoxError> {
        let mut runs = Runs::new(self, message, digest);
        // The effect of the first message may differ, for instance if it creates a row that the others change.
        runs.run(None).await?;
        let known = self.outcomes().len();
        let one = runs.run(None).await?.one();
        if one.change.is_none() {
            return Err(self.no_effect(&self.outcomes()[known..]).await?.into());
        }
        self.subject.has_effects(&one.elsewhere)?;
        let mut report = CrashReport::new(self.subject.has_unseen_charges());
        for phase in self.subject.phases() {
            report.set(phase, crash_in(phase, &mut runs, &one).await?);
        }
        Ok(report)
    }
}

/// Lets a process die at each point of this phase. Returns how many points there were.
async fn crash_in<S, F, G, M, D>(phase: Phase, runs: &mut Runs<'_, S, F, G>, one: &One) -> Result<usize, BoxError>
where
    S: Store,
    F: FnMut(u32) -> M,
    G: AsyncFnMut() -> Result<D, BoxError>,
    M: ToPublication,
    D: Digest,
{
    let missed = match phase {
        Phase::InCommit => Some("its COMMIT and the ack"),
        Phase::InCall if runs.has_provider() => Some("its request and the answer"),
        _ => None,
    };
    let mut search = Search::new(phase, missed.is_some());
    while let Some(point) = search.next() {
        let observed = runs.run(Some(point)).await?;
        let died = observed.between.is_some();
        let at = if died { format!("the process died at {point}") } else { "no process died".to_owned() };
        observed.check(one).map_err(|seen| format!("{at}, and {seen}"))?;
        if !died {
            search.got_through();
            continue;
        }
        search.died(match phase {
            Phase::InCall => observed.elsewhere_between.is_charged(),
            _ => observed.had_effect(),
        });
        if search.points > MOST {
            return Err(
                format!("there are more than {MOST} points, the last one is {point}: does it wait in a loop?").into()
            );
        }
    }
    if search.points == 0 {
        return Err(format!("there was no point {phase}, so that nothing is known about a crash there").into());
    }
    if let Some(missed) = missed.filter(|_| !search.had_effect) {
        return Err(format!("no process died between {missed}, so that nothing is known about a crash there").into());
    }
    Ok(search.points)
}
