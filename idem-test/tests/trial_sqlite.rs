//! Trials with a file of their own on SQLite.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::path::PathBuf;

use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Outcome, Sqlite};
use idem_test::{Crash, Trial};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

#[derive(Serialize, Deserialize)]
struct Paid {
    id: u32,
}

struct Book;

impl Handler for Book {
    const NAME: &'static str = "book";

    type Message = Paid;
    type Input = Paid;
    type Params = ();
    type Connection = SqliteConnection;

    fn key(paid: &Paid, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&paid.id)
    }

    async fn handle(paid: Paid, (): (), tx: &mut SqliteConnection) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO booked VALUES (?)").bind(paid.id).execute(tx).await?;
        Ok(())
    }
}

const TABLES: &str = "CREATE TABLE booked (id INTEGER NOT NULL)";
const BOOKED: &str = "SELECT count(*) FROM booked";

/// A trial, and its folder.
async fn trial() -> (Trial<Sqlite>, PathBuf) {
    let bench = Trial::sqlite().tables(TABLES);
    let shown = format!("{bench:?}");
    let folder = shown.split('"').find(|part| part.contains("idem_trial_")).unwrap().into();
    (bench.handler::<Book>().await.unwrap(), folder)
}

#[tokio::test]
async fn a_test_that_runs_again_with_the_same_id_processes_it_again() {
    for _ in 1..=2 {
        let (trial, folder) = trial().await;
        assert!(folder.is_dir());
        let outcomes = trial.deliver_json(&Paid { id: 7 }).unwrap().times(2).await.unwrap();
        assert_eq!(outcomes, [Outcome::Processed, Outcome::Duplicate]);
        assert_eq!(trial.number(BOOKED).await.unwrap(), 1);
        drop(trial);
        assert!(!folder.exists());
    }
}

#[tokio::test]
async fn a_test_that_panics_leaves_no_file_behind() {
    let (trial, folder) = trial().await;
    let test = tokio::spawn(async move {
        trial.deliver_json(&Paid { id: 7 }).unwrap().crash(Crash::InHandler).once().await.unwrap();
        assert_eq!(trial.outcomes(), [], "as a test fails");
    });
    assert!(test.await.unwrap_err().is_panic());
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_test_reads_its_tables_and_writes_none() {
    let (trial, _) = trial().await;
    let booked = trial.rolled_back(async |tx: &mut SqliteConnection| {
        Book::handle(Paid { id: 7 }, (), tx).await?;
        Ok(sqlx::query_scalar::<_, i64>("SELECT id FROM booked").fetch_all(tx).await?)
    });
    assert_eq!(booked.await.unwrap(), [7]);
    assert_eq!(trial.number("SELECT sum(id) FROM booked").await.unwrap(), 0, "NULL");
    assert_eq!(trial.number("SELECT id FROM booked").await.unwrap(), 0, "no row");
    assert!(trial.number("SELECT nothing FROM booked").await.is_err());
    assert_eq!(trial.deliver_json(&Paid { id: 7 }).unwrap().once().await.unwrap(), [Outcome::Processed]);
}

#[tokio::test]
async fn tables_that_cannot_be_created_are_an_error() {
    let Err(error) = Trial::sqlite().tables("CREATE TABEL booked ()").handler::<Book>().await else {
        panic!("it began")
    };
    assert!(format!("{error:?}").contains(".tables(..)") && format!("{error:?}").contains("TABEL"), "{error:?}");
}
