//! A handler that says `natural` takes no claims, and no other handler does without.

use idem::Fingerprint;
use idem::prelude::*;
use sqlx::SqliteConnection;

#[derive(serde::Deserialize)]
struct Changed {
    id: u64,
}

#[idempotent(key = id, natural)]
async fn natural(_: Changed, _: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    Ok(())
}

#[idempotent(natural, key = "id", name = "stored", event = "order.changed")]
async fn natural_first(_: Batch<Changed>, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

fn unchecked(_: &Delivery) -> Fingerprint {
    Fingerprint::none()
}

#[idempotent(key = id, fingerprint = unchecked, natural)]
async fn natural_unchecked(_: Changed, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = id)]
async fn claiming(_: Changed, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

macro_rules! handler {
    ($name:ident, $word:ident) => {
        #[idempotent(key = id, $word)]
        async fn $name(_: Changed, _: &mut SqliteConnection) -> Result<(), BoxError> {
            Ok(())
        }
    };
}

handler!(from_a_macro, natural);

const fn is_natural<H: Handler>() -> bool {
    H::NATURAL
}

#[test]
fn the_word_makes_a_handler_natural() {
    assert!(is_natural::<natural>() && is_natural::<natural_first>() && is_natural::<from_a_macro>());
    assert!(!is_natural::<claiming>());
    assert_eq!(natural_first::NAME, "stored");
}

/// Its rows are compared with copies.
#[test]
fn a_natural_handler_has_its_own_fingerprint() {
    let delivery = Delivery::new("orders", "{}");
    assert!(is_natural::<natural_unchecked>());
    assert_eq!(natural_unchecked::fingerprint(&delivery), Fingerprint::none());
    assert_ne!(natural::fingerprint(&delivery), Fingerprint::none());
}
