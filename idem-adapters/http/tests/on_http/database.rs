//! Databases that are away, or do not answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use idem_conformance::Proxy;
use idem_conformance::store::{Setup, World};
use sqlx::Connection as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::join;
use tokio::net::TcpStream;

use super::postgres_world::PostgresWorld;
use super::service::{Service, effects, paid};
use super::sqlite_world::SqliteWorld;

/// Forwards until the server has answered after this is set. Its answer gets lost, and what it has done stands.
async fn until_silenced(mut client: TcpStream, mut server: TcpStream, is_silenced: Arc<AtomicBool>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let answers = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            if is_silenced.load(SeqCst) || to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        () = answers => {}
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_is_found_out_by_the_repeat() {
    let Some(world) = PostgresWorld::make().await else { return };
    effects(&world).await;
    let is_silenced = Arc::<AtomicBool>::default();
    let silenced = is_silenced.clone();
    let proxy =
        Proxy::passing(&world.url, move |client, server| until_silenced(client, server, silenced.clone())).await;
    let store = world.options(&proxy.url(&world.url), Setup::default()).connect().await.unwrap();
    let service = Service::of(&world, store, |requests| requests).await;
    let silence = async {
        service.entered().await;
        is_silenced.store(true, SeqCst);
        service.shop.gate.add_permits(1);
    };
    let (unknown, ()) = join!(service.order("k-1", "wait"), silence);
    unknown.is_problem(503);
    assert!(unknown.header("retry-after").is_some());
    is_silenced.store(false, SeqCst);
    let again = service.order("k-1", "wait").await;
    assert_eq!((again.status, again.is_replayed()), (201, true), "it was committed");
    assert_eq!((service.shop.calls(), paid(&world).await), (1, 1));
}

#[tokio::test]
async fn a_request_fails_while_the_database_is_away() {
    let Some(world) = PostgresWorld::make().await else { return };
    effects(&world).await;
    let proxy = Proxy::start(&world.url).await;
    let store = world.options(&proxy.url(&world.url), Setup::default()).connect().await.unwrap();
    let service = Service::of(&world, store, |requests| requests).await;
    assert_eq!(service.order("k-1", "").await.status, 201);
    proxy.refuse(true);
    for id in ["k-1", "k-2"] {
        let away = service.order(id, "").await;
        away.is_problem(503);
        assert!(away.header("retry-after").is_some());
    }
    assert_eq!(service.shop.calls(), 1, "nothing runs on a guess");
    proxy.refuse(false);
    assert!(service.order("k-1", "").await.is_replayed());
    assert_eq!(service.order("k-2", "").await.status, 201);
}

#[tokio::test]
async fn a_request_fails_while_the_file_is_away() {
    let Some(world) = SqliteWorld::make().await else { return };
    let service = Service::start(&world).await;
    assert_eq!(service.order("k-1", "").await.status, 201);
    // A handler that fails closes its connection, so the next one has to open the file.
    assert_eq!(service.order("k-2", "fail").await.status, 500);
    let file = world.url().trim_start_matches("sqlite://").to_owned();
    let elsewhere = format!("{file}.away");
    std::fs::rename(&file, &elsewhere).unwrap();
    for id in ["k-1", "k-2"] {
        let away = service.order(id, "").await;
        away.is_problem(503);
        assert!(away.header("retry-after").is_some());
    }
    assert_eq!(service.shop.calls(), 2, "nothing runs on a guess");
    std::fs::rename(&elsewhere, &file).unwrap();
    assert!(service.order("k-1", "").await.is_replayed());
    assert_eq!((service.order("k-2", "").await.status, paid(&world).await), (201, 2));
}

#[tokio::test]
async fn a_request_fails_while_another_process_writes_to_the_file() {
    let Some(world) = SqliteWorld::make().await else { return };
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.wait(Duration::from_millis(50))).await;
    assert_eq!(service.order("k-1", "").await.status, 201);
    let mut other = sqlx::SqliteConnection::connect(&world.url()).await.unwrap();
    let mut tx = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::raw_sql("DELETE FROM effects").execute(&mut *tx).await.unwrap();
    service.order("k-2", "").await.is_problem(503);
    tx.rollback().await.unwrap();
    assert_eq!((service.order("k-2", "").await.status, paid(&world).await), (201, 2));
}
