//! Calls in doubt that something else follows.

use std::time::Duration;

use idem_conformance::store::World;
use idem_test::provider::Fault;

use super::paying::Paying;
use super::payments::KEY_LIFE;
use super::settings::Settings;

const HOUR: Duration = Duration::from_secs(3600);

/// The call that the provider was too busy for had no effect, and the one before it may have had one: its key gets older.
pub async fn a_call_without_effect_ends_no_doubt_about_an_earlier_one<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer, Fault::Busy]);
    let worker = paying.start_with(Settings::late());
    paying.row(|row| row.attempts == 1).await;
    paying.time_passes(2 * HOUR).await;
    let row = paying.row(|row| row.attempts == 2).await;
    assert!(row.called_at.is_some(), "the first call is forgotten");
    paying.provider().forget();
    paying.time_passes(KEY_LIFE).await;
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 2, 1), 1));
}
