//! A world whose workers run in one of the modes of the suite.

use std::time::Duration;

use idem_core::{BoxError, Error};

use idem_conformance::store::{End, Features, Setup, World};

/// How many messages run together in the modes with batches.
const BATCH: usize = 16;

/// A world whose workers run in one of the modes of the suite.
// A mode is a value, so that each case is compiled once. Natural handlers are a type, since they say so by a constant.
#[derive(Debug)]
pub struct Mode<W, const NATURAL: bool = false> {
    world: W,
    inbox: bool,
    batch: usize,
}

/// A new world in each mode. Each prints a line and returns `None` if the database is not available and not required.
impl<W: World> Mode<W> {
    /// Each message runs as it is delivered, by itself.
    pub async fn single() -> Option<Self> {
        Self::of(false, 1).await
    }

    /// Messages are stored before they run.
    pub async fn in_inbox() -> Option<Self> {
        Self::of(true, 1).await
    }

    /// Messages run in batches.
    pub async fn in_batches() -> Option<Self> {
        Self::of(false, BATCH).await
    }

    /// Messages are stored before they run, and then run in batches.
    pub async fn in_inbox_batches() -> Option<Self> {
        Self::of(true, BATCH).await
    }
}

/// A new world in each mode of natural handlers.
impl<W: World> Mode<W, true> {
    /// The handlers are natural.
    pub async fn natural() -> Option<Self> {
        Self::of(false, 1).await
    }

    /// The handlers are natural, and their messages run in batches.
    pub async fn natural_batches() -> Option<Self> {
        Self::of(false, BATCH).await
    }
}

impl<W: World, const NATURAL: bool> Mode<W, NATURAL> {
    async fn of(inbox: bool, batch: usize) -> Option<Self> {
        W::make().await.map(|world| Self { world, inbox, batch })
    }
}

impl<W: World, const NATURAL: bool> World for Mode<W, NATURAL> {
    type Store = W::Store;
    type Connection = W::Connection;

    const FEATURES: Features = W::FEATURES;
    const NATURAL: bool = NATURAL;

    async fn make() -> Option<Self> {
        Self::of(false, 1).await
    }

    async fn another(&self) -> Option<Self> {
        Self::of(self.inbox, self.batch).await
    }

    fn inbox(&self) -> bool {
        self.inbox
    }

    fn batch(&self) -> usize {
        self.batch
    }

    async fn store(&self, setup: Setup) -> Result<W::Store, Error> {
        self.world.store(setup).await
    }

    fn own(&self, table: &str) -> String {
        self.world.own(table)
    }

    fn name(&self, table: &str) -> String {
        self.world.name(table)
    }

    async fn run(&self, sql: &str) {
        self.world.run(sql).await;
    }

    async fn number(&self, sql: &str) -> i64 {
        self.world.number(sql).await
    }

    async fn execute(tx: &mut W::Connection, sql: &str) -> Result<(), BoxError> {
        W::execute(tx, sql).await
    }

    async fn nested(tx: &mut W::Connection, sql: &str, end: End) -> Result<(), BoxError> {
        W::nested(tx, sql, end).await
    }

    async fn changes(tx: &mut W::Connection, sql: &str) -> Result<bool, BoxError> {
        W::changes(tx, sql).await
    }

    fn earlier(column: &str, by: Duration) -> String {
        W::earlier(column, by)
    }

    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String {
        self.world.refuse(what, table, key)
    }

    fn allow(&self, table: &str) -> String {
        self.world.allow(table)
    }

    async fn waiting(&self) -> Option<i64> {
        self.world.waiting().await
    }
}
