//! Logins that are renewed: passwords that change, and OAuth tokens.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{World, next, options, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, Error, Source};
use idem_kafka::{Credentials, Kafka};

const SENTINEL: &str = "s3ntinel";

#[tokio::test]
async fn a_password_is_fetched_again_whenever_the_source_is_opened() {
    let Some(world) = World::new().await else { return };
    let Some(address) = world.login("PLAIN").await else { return };
    world.publish("x").await;
    let (password, asked) = (Arc::new(Mutex::new("idem")), Arc::new(AtomicU32::new(0)));
    let (now, count) = (Arc::clone(&password), Arc::clone(&asked));
    let options = options(&address).sasl_credentials(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let password = *now.lock().unwrap();
        async move { Ok(Credentials::new("idem", password)) }
    });
    let mut topic = world.topic_of(&options.connect().await.unwrap()).await;
    *password.lock().unwrap() = SENTINEL;
    let error = topic.subscribe(subscribe_options(1)).await.unwrap_err();
    let said = texts(error.as_ref());
    assert!(said.contains("check user, password") && !said.contains(SENTINEL), "{said}");
    *password.lock().unwrap() = "idem";
    let before = asked.load(Ordering::Relaxed);
    topic.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), before + 1, "once for all clients of a subscription");
    next(&mut topic).await.1.ack().await.unwrap();
    world.until_committed(0, 1).await;
}

#[tokio::test]
async fn a_password_that_cannot_be_fetched_is_a_connection_error() {
    let options = Kafka::options("127.0.0.1:1").sasl_credentials(async || Err("the vault is sealed".into()));
    let error = options.connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }), "{said}");
    assert!(said.contains(".sasl_credentials(..)") && said.contains("the vault is sealed"), "{said}");
}

#[cfg(feature = "ssl")]
mod oauth {
    use std::time::{Duration, SystemTime};

    use crate::common::LONG;
    use crate::common::login::token;
    use idem_core::ReplayWindow;
    use idem_kafka::Token;

    use super::*;

    #[tokio::test]
    async fn a_token_is_accepted_and_fetched_again_before_it_expires() {
        let Some(world) = World::new().await else { return };
        let Some(address) = world.login("OAUTHBEARER").await else { return };
        world.publish("a").await;
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let options = options(&address).sasl_oauthbearer(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok(token(Duration::from_secs(8))) }
        });
        let mut topic = world.topic_of(&options.connect().await.unwrap()).await;
        topic.subscribe(subscribe_options(4)).await.unwrap();
        // A separate client queries the retention, and logs in as well.
        assert_eq!(topic.replay_window(), ReplayWindow::Within(Duration::from_secs(7 * 86_400)));
        let first = asked.load(Ordering::Relaxed);
        next(&mut topic).await.1.ack().await.unwrap();
        let anew = async {
            while asked.load(Ordering::Relaxed) < first + 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(2 * LONG, anew).await.expect("no new token was asked for");
        world.publish("b").await;
        let (delivery, acker) = next(&mut topic).await;
        assert_eq!(delivery.payload(), "b");
        acker.ack().await.unwrap();
        world.until_committed(0, 2).await;
    }

    #[tokio::test]
    async fn a_token_that_briefly_cannot_be_fetched_ends_nothing() {
        let Some(world) = World::new().await else { return };
        let Some(address) = world.login("OAUTHBEARER").await else { return };
        let failed = Arc::new(AtomicU32::new(0));
        let (fails, count) = (Arc::new(Mutex::new(false)), Arc::clone(&failed));
        let now = Arc::clone(&fails);
        let options = options(&address).sasl_oauthbearer(move || {
            let fails = *now.lock().unwrap();
            count.fetch_add(fails.into(), Ordering::Relaxed);
            async move { if fails { Err("the vault is sealed".into()) } else { Ok(token(Duration::from_secs(30))) } }
        });
        let mut topic = world.topic_of(&options.connect().await.unwrap()).await;
        topic.subscribe(subscribe_options(4)).await.unwrap();
        *fails.lock().unwrap() = true;
        let refreshed = async {
            while failed.load(Ordering::Relaxed) == 0 {
                assert!(tokio::time::timeout(Duration::from_millis(50), topic.next()).await.is_err());
            }
        };
        tokio::time::timeout(2 * LONG, refreshed).await.expect("no new token was asked for");
        *fails.lock().unwrap() = false;
        world.publish("x").await;
        next(&mut topic).await.1.ack().await.unwrap();
        world.until_committed(0, 1).await;
    }

    #[tokio::test]
    async fn a_token_that_the_brokers_do_not_take_is_refused_and_not_shown() {
        let Some(world) = World::empty().await else { return };
        let Some(address) = world.login("OAUTHBEARER").await else { return };
        let later = SystemTime::now() + Duration::from_secs(600);
        let connect =
            Kafka::options(&address).sasl_oauthbearer(move || async move { Ok(Token::new(SENTINEL, "", later)) });
        let error = tokio::time::timeout(LONG, connect.connect()).await.expect("it waits for ever").unwrap_err();
        let said = texts(&error);
        assert!(matches!(error, Error::Broker { .. }), "{said}");
        assert!(said.contains(".sasl_oauthbearer(..)") && !said.contains(SENTINEL), "{said}");
    }

    #[tokio::test]
    async fn a_token_that_has_expired_or_cannot_be_fetched_is_a_connection_error() {
        let old = async || Ok(Token::new(SENTINEL, "", SystemTime::UNIX_EPOCH));
        let error = Kafka::options("127.0.0.1:1").sasl_oauthbearer(old).connect().await.unwrap_err();
        let said = texts(&error);
        assert!(said.contains("must not have expired") && !said.contains(SENTINEL), "{said}");
        let none = Kafka::options("127.0.0.1:1").sasl_oauthbearer(async || Err("the vault is sealed".into()));
        let said = texts(&none.connect().await.unwrap_err());
        assert!(said.contains(".sasl_oauthbearer(..)") && said.contains("the vault is sealed"), "{said}");
    }
}
