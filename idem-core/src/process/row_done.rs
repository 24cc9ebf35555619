//! The wait of an ordered delivery for the inbox row of its message. `runtime/rows` wakes it when the row has run here.

use crate::runtime::{Pipeline, jittered};
use crate::store::Identity;
use crate::{Acker, Store};

impl<S: Store> Pipeline<S> {
    /// Waits, keeping its place, until a message in the inbox is processed or dead. Returns `false` if the worker
    /// drains or the delivery is lost before that.
    ///
    /// This process or another one runs the row. It is checked whenever it has run here, and otherwise at each poll.
    pub(crate) async fn row_done<A: Acker>(&self, acker: &mut A, identity: &Identity) -> bool {
        let done = async {
            let watch = self.rows.watch(identity);
            loop {
                let mut ran = std::pin::pin!(watch.ran.notified());
                // Enabled now, so that a run which ends during the check is not missed.
                ran.as_mut().enable();
                let scheduled = {
                    let _look = self.rows.look.lock().await;
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
}
