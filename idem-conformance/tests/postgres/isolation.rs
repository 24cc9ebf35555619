//! The isolation of handlers, beside the database's default.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use idem_conformance::captured;
use idem_conformance::store::{Setup, World};
use idem_core::store::postgres::Isolation;
use tracing::instrument::WithSubscriber;

use crate::world::PostgresWorld;

#[tokio::test]
async fn a_default_that_is_stricter_than_the_isolation_of_handlers_is_a_warning_with_the_remedy() {
    let Some(world) = PostgresWorld::make().await else { return };
    let and = if world.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{and}options=-c%20default_transaction_isolation%3Dserializable", world.url);
    for (chosen, is_reported) in
        [(None, true), (Some(Isolation::RepeatableRead), true), (Some(Isolation::Serializable), false)]
    {
        let options = world.options(&url, Setup::default());
        let options = if let Some(chosen) = chosen { options.isolation(chosen) } else { options };
        let (text, subscriber) = captured();
        options.connect().with_subscriber(subscriber).await.unwrap();
        assert_eq!(text.to_string().contains(".isolation(Isolation::Serializable)"), is_reported, "{chosen:?}: {text}");
    }
}
