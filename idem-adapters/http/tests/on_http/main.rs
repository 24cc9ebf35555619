//! Requests of a real HTTP client to a server with the layer, on each database. They are one program, since each would link axum and
//! the client again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

#[path = "../../../../idem-conformance/tests/worlds/postgres.rs"]
mod postgres_world;
#[path = "../../../../idem-conformance/tests/worlds/sqlite.rs"]
mod sqlite_world;

/// Runs each case on both databases.
macro_rules! on_each_database {
    ($($case:ident)*) => {
        mod postgres {
            use idem_conformance::store::World as _;
            $(#[tokio::test]
            async fn $case() {
                let Some(world) = crate::postgres_world::PostgresWorld::make().await else { return };
                super::$case(world).await;
            })*
        }
        mod sqlite {
            use idem_conformance::store::World as _;
            $(#[tokio::test]
            async fn $case() {
                let Some(world) = crate::sqlite_world::SqliteWorld::make().await else { return };
                super::$case(world).await;
            })*
        }
    };
}

mod bodies;
mod database;
mod endings;
mod keys;
mod kit;
mod local;
mod replies;
mod service;
mod waits;
