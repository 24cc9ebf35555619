//! Deliveries that wait for their turn, or for the row that their message has become.

use std::time::Duration;

use crate::runtime::{Pipeline, Place, jittered, kept};
use crate::store::Identity;
use crate::{Acker, Store};

impl<S: Store> Pipeline<S> {
    /// Waits for the turn of a delivery in its lane. `false` where it will not come: the worker drains, or the delivery is
    /// no longer ours.
    pub(crate) async fn turn<A: Acker>(&self, acker: &mut A, place: &Place) -> bool {
        self.unless_over(acker, place.turn()).await
    }

    /// Waits, in its lane, until a message that is in the inbox is processed or dead. `false` where the worker drains before
    /// that, or the delivery is no longer ours.
    ///
    /// The row is run by whoever takes it, here or in another process. It is looked at whenever it has run here, and else
    /// at each poll.
    pub(crate) async fn row_done<A: Acker>(&self, acker: &mut A, identity: &Identity) -> bool {
        let done = async {
            let watch = self.rows.watch(identity);
            let mut due = false;
            loop {
                let mut ran = std::pin::pin!(watch.ran.notified());
                // From now on, so that a run which ends while the row is looked at is not missed.
                ran.as_mut().enable();
                let scheduled = {
                    let _look = self.rows.look.lock().await;
                    if !std::mem::replace(&mut due, true) {
                        self.make_due(identity).await;
                    }
                    self.store.is_scheduled(identity).await
                };
                match scheduled {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(fault) => drop(self.outage.hold_for(fault)),
                }
                tokio::select! {
                    () = ran => {}
                    () = tokio::time::sleep(jittered(self.settings.poll)) => {}
                }
                self.outage.over().await;
            }
        };
        self.unless_over(acker, done).await
    }

    pub(super) async fn unless_over<A: Acker>(&self, acker: &mut A, what: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.draining.cancelled() => false,
            () = what => true,
            () = kept(acker, LOOK) => false,
        }
    }
}

/// How often a delivery that waits is looked at, whether it is still ours.
const LOOK: Duration = Duration::from_secs(1);
