//! Calls in an outage of the database, beside an orphaned row of another one.

use std::time::Duration;

use idem_conformance::store::World;
use idem_test::provider::Fault;

use super::line::Line;
use super::long_outages::{Silent, orphan_alone};
use super::neighbours::{has_effect, one_process};
use super::paying::Paying;

/// Its date is written while the orphaned row runs. If the orphaned row ended the process in a call that follows, the call would
/// be in doubt.
pub async fn a_call_behind_a_question_is_made_beside_no_orphan<W: World>(world: W) {
    let Some(other) = world.another().await else { return };
    let (paying, neighbour) = (Paying::<W, false, true>::new(world).await, Line::new(other).await);
    let (settings, silent) = (one_process(), Silent::new());
    paying.publish("a", [Fault::LoseRequest]);
    paying.fails_once().await;
    let worker = paying.start_over_with(silent.hook("date_call", None), silent.shown(&settings));
    silent.reached().await;
    silent.go_away().await;
    let beside = orphan_alone(&neighbour, settings).await;
    silent.open();
    paying.row(|row| row.locked_by.is_none()).await;
    // There is no signal that it is not made.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(paying.counts("a").await, (0, 1, 0), "the first request was lost");
    neighbour.desk.go.send_replace(true);
    has_effect(&neighbour, "orphan").await;
    silent.come_back();
    paying.completed("a").await;
    worker.stop().await;
    beside.stop().await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
}
