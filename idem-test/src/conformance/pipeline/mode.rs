//! The same world with workers in another mode.

use std::time::Duration;

use idem_core::{BoxError, Error, Latest};

use crate::conformance::store::{End, Features, Setup, World};

/// A world whose workers run with `.inbox()`, or with `.batch(..)`, or with both, or have natural handlers.
#[derive(Debug)]
pub struct Mode<W, const INBOX: bool, const BATCH: usize, const NATURAL: bool = false>(W);

/// Messages are stored before they run.
pub type InInbox<W> = Mode<W, true, 1>;

/// Messages run in batches.
pub type InBatches<W> = Mode<W, false, 16>;

/// Messages are stored before they run, and then run in batches.
pub type InInboxBatches<W> = Mode<W, true, 16>;

/// The handlers are natural.
pub type Natural<W> = Mode<W, false, 1, true>;

/// The handlers are natural, and their messages run in batches.
pub type NaturalBatches<W> = Mode<W, false, 16, true>;

impl<W: World, const INBOX: bool, const BATCH: usize, const NATURAL: bool> World for Mode<W, INBOX, BATCH, NATURAL> {
    type Store = W::Store;
    type Connection = W::Connection;

    const FEATURES: Features = W::FEATURES;
    const INBOX: bool = INBOX;
    const BATCH: usize = BATCH;
    const NATURAL: bool = NATURAL;

    async fn make() -> Option<Self> {
        W::make().await.map(Self)
    }

    async fn store(&self, setup: Setup) -> Result<W::Store, Error> {
        self.0.store(setup).await
    }

    fn own(&self, table: &str) -> String {
        self.0.own(table)
    }

    fn name(&self, table: &str) -> String {
        self.0.name(table)
    }

    async fn run(&self, sql: &str) {
        self.0.run(sql).await;
    }

    async fn number(&self, sql: &str) -> i64 {
        self.0.number(sql).await
    }

    async fn execute(tx: &mut W::Connection, sql: &str) -> Result<(), BoxError> {
        W::execute(tx, sql).await
    }

    async fn nested(tx: &mut W::Connection, sql: &str, end: End) -> Result<(), BoxError> {
        W::nested(tx, sql, end).await
    }

    async fn advance(latest: &Latest, tx: &mut W::Connection, entity: &str, version: i64) -> Result<bool, BoxError> {
        W::advance(latest, tx, entity, version).await
    }

    fn earlier(column: &str, by: Duration) -> String {
        W::earlier(column, by)
    }

    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String {
        self.0.refuse(what, table, key)
    }

    fn allow(&self, table: &str) -> String {
        self.0.allow(table)
    }

    async fn waiting(&self) -> Option<i64> {
        self.0.waiting().await
    }
}
