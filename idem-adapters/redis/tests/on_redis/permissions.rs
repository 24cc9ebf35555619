//! Logins that lack a permission. An error ends a script, and what it has written until then stays.

use std::time::Duration;

use idem_conformance::texts;
use idem_core::Fingerprint;
use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValue, KeyValueStore, Letter, LetterFilter, Resolve};
use idem_core::store::StoreError;
use idem_core::{Delivery, Reason};
use idem_redis::{Redis, RedisWrites};
use uuid::Uuid;

use crate::common::{Server, id, record};

const LONG: Duration = Duration::from_secs(600);

/// The commands of the steps.
const COMMANDS: [&str; 11] =
    ["time", "type", "hmget", "hset", "hdel", "del", "pexpire", "pttl", "persist", "sadd", "srem"];

/// A store with a login of its own.
struct Login {
    server: Server,
    redis: KeyValue<Redis>,
}

impl Login {
    async fn new() -> Option<Self> {
        let server = Server::run().await?;
        server.operate("", &["ACL", "SETUSER", "app", "on", ">s3cret", "+@all", "~*"]).await;
        let redis = Redis::connect(&Self::url(&server)).await.unwrap();
        Some(Self { server, redis })
    }

    fn url(server: &Server) -> String {
        format!("redis://app:s3cret@127.0.0.1:{}", server.port)
    }

    async fn rule(&self, rule: &str) {
        self.server.operate("", &["ACL", "SETUSER", "app", rule]).await;
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let client = redis::Client::open(self.server.url()).unwrap();
        command.query_async(&mut client.get_multiplexed_async_connection().await.unwrap()).await.unwrap()
    }

    async fn acquire(&self, id: &Id) -> Uuid {
        let token = Uuid::new_v4();
        let acquired = self.redis.store().acquire(id, Fingerprint::of(b"{}"), token, LONG, LONG).await.unwrap();
        assert!(matches!(acquired, Acquired::New { .. }), "{acquired:?}");
        token
    }

    async fn ends_in(&self, id: &Id) -> i64 {
        self.ask(redis::cmd("PTTL").arg(record(id))).await
    }

    async fn letters(&self, id: &Id) -> usize {
        self.redis.dead(&LetterFilter::new().consumer(&*id.consumer)).await.unwrap().len()
    }
}

fn letter(id: &Id) -> Letter {
    let delivery = Delivery::new("orders", &b"{}"[..]);
    let died_at = std::time::SystemTime::now();
    Letter::new(id.clone(), Fingerprint::of(b"{}"), Reason::Exhausted, "no", 3, died_at, delivery)
}

/// A step that says yes has done all of it, also when it is repeated.
#[tokio::test]
async fn a_step_without_a_permission_is_not_done_and_then_said_to_be() {
    let Some(login) = Login::new().await else { return };
    let store = login.redis.store();
    for command in COMMANDS {
        let [buried, completed, resolved] = [id(), id(), id()];
        let tokens = [login.acquire(&buried).await, login.acquire(&completed).await, login.acquire(&resolved).await];
        store.bury(&resolved, tokens[2], &letter(&resolved)).await.unwrap();
        let mut writes = RedisWrites::default();
        writes.incr_by(format!("n-{command}"), 1);
        for is_allowed in [false, false, true] {
            login.rule(&format!("{}{command}", if is_allowed { '+' } else { '-' })).await;
            match store.bury(&buried, tokens[0], &letter(&buried)).await {
                Ok(held) => assert_eq!((held, login.ends_in(&buried).await), (Held::Yes, -1), "bury without {command}"),
                Err(error) => assert!(!is_allowed, "{command}: {error:?}"),
            }
            match store.complete(&completed, tokens[1], LONG, &writes).await {
                Ok(Completed::Refused(_)) if !is_allowed => {}
                Ok(answer) => {
                    let count: i64 = login.ask(redis::cmd("GET").arg(format!("n-{command}"))).await;
                    assert_eq!((answer, count), (Completed::Yes, 1), "complete without {command}");
                    assert!(login.ends_in(&completed).await > 0, "complete without {command}");
                }
                Err(error) => assert!(!is_allowed, "{command}: {error:?}"),
            }
            if command != "hmget" || is_allowed {
                let is_resolved = store.resolve(&resolved, Resolve::Discard, LONG).await.is_ok();
                // The removal from the list is the last write.
                let listed = usize::from(!is_resolved && command != "srem");
                assert_eq!(login.letters(&resolved).await, listed, "resolve without {command}");
                if is_resolved {
                    assert!(login.ends_in(&resolved).await > 0, "resolve without {command}");
                }
            }
        }
        assert_eq!(login.letters(&buried).await, 1, "{command}");
    }
}

/// The text names what to add.
#[tokio::test]
async fn a_login_that_lacks_a_command_of_the_steps_does_not_start() {
    let Some(login) = Login::new().await else { return };
    for command in COMMANDS {
        login.rule(&format!("-{command}")).await;
        let text = texts(&Redis::connect(&Login::url(&login.server)).await.expect_err(command));
        assert!(text.contains(&format!("+{command}")) && !text.contains("s3cret"), "{text}");
        assert!(login.redis.store().check(LONG).await.is_err(), "an operator has changed it");
        login.rule(&format!("+{command}")).await;
    }
    login.redis.store().check(LONG).await.unwrap();
}

/// The login may not make the second write, and the first one is not made.
#[tokio::test]
async fn a_forbidden_command_is_found_before_anything_is_written() {
    let Some(login) = Login::new().await else { return };
    let (id, store) = (id(), login.redis.store());
    let token = login.acquire(&id).await;
    login.rule("-lpush").await;
    let mut writes = RedisWrites::default();
    writes.incr_by("n", 1).l_push("list", "x");
    let refused = store.complete(&id, token, LONG, &writes).await.unwrap();
    let Completed::Refused(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("LPUSH") && why.contains("list"), "{why}");
    assert!(!login.ask::<bool>(redis::cmd("EXISTS").arg("n")).await);
    login.rule("+lpush").await;
    assert_eq!(store.complete(&id, token, LONG, &writes).await.unwrap(), Completed::Yes);
}

/// One handler writes a key that the login may not write. The others of the worker go on.
#[tokio::test]
async fn a_forbidden_key_fails_its_message_and_a_forbidden_step_the_worker() {
    let Some(login) = Login::new().await else { return };
    let (id, store) = (id(), login.redis.store());
    let token = login.acquire(&id).await;
    for rule in ["resetkeys", "~idem:*", "~n"] {
        login.rule(rule).await;
    }
    let mut writes = RedisWrites::default();
    writes.incr_by("n", 1).incr_by("other", 1);
    let refused = store.complete(&id, token, LONG, &writes).await;
    assert!(matches!(refused, Ok(Completed::Refused(_))), "{refused:?}");
    assert!(!login.ask::<bool>(redis::cmd("EXISTS").arg("n")).await);
    login.rule("-evalsha").await;
    let refused = store.complete(&id, token, LONG, &writes).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}
