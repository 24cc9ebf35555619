//! Logins: which ones a server accepts, and the errors for those that it rejects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::common;
use crate::common::server::Server;
use crate::common::subscribe_options;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idem_conformance::texts;
use idem_core::{Error, Source};
use idem_nats::{Credentials, Nats, Options};
use nkeys::KeyPair;

const SENTINEL: &str = "s3ntinel";

async fn accepted(options: Options) {
    let nats = options.connect().await.unwrap();
    let error = nats.stream("ORDERS").await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}

async fn refused(options: Options, secret: &str) {
    let error = options.connect().await.unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(!said.contains(secret), "{said}");
    assert!(said.contains("the server refuses the login"), "{said}");
}

#[tokio::test]
async fn a_password_lets_in_and_a_wrong_one_does_not() {
    let Some(server) = Server::start("jetstream: {}\nauthorization: { user: \"al@ice\", password: \"p/:w\" }") else {
        return;
    };
    let port = server.port;
    accepted(Nats::options(format!("nats://al%40ice:p%2F%3Aw@127.0.0.1:{port}"))).await;
    refused(Nats::options(format!("nats://al%40ice:{SENTINEL}@127.0.0.1:{port}")), SENTINEL).await;
    refused(Nats::options(server.url()), SENTINEL).await;
}

#[tokio::test]
async fn a_token_lets_in_and_a_wrong_one_does_not() {
    let Some(server) = Server::start("jetstream: {}\nauthorization: { token: \"t0ken\" }") else { return };
    accepted(Nats::options(format!("nats://t0ken@127.0.0.1:{}", server.port))).await;
    refused(Nats::options(format!("nats://{SENTINEL}@127.0.0.1:{}", server.port)), SENTINEL).await;
}

#[tokio::test]
async fn an_nkey_lets_in_and_another_one_does_not() {
    let (ours, other) = (KeyPair::new_user(), KeyPair::new_user());
    let config = format!("jetstream: {{}}\nauthorization: {{ users: [ {{ nkey: {} }} ] }}", ours.public_key());
    let Some(server) = Server::start(&config) else { return };
    accepted(Nats::options(server.url()).nkey(ours.seed().unwrap())).await;
    let seed = other.seed().unwrap();
    refused(Nats::options(server.url()).nkey(&seed), &seed).await;
}

#[tokio::test]
async fn a_file_of_credentials_lets_in_and_is_read_again_for_each_connection() {
    let account = KeyPair::new_account();
    let config = operated(&account);
    let Some(server) = Server::start(&config) else { return };
    let file = server.home.path().join("billing.creds");
    std::fs::write(&file, credentials(&account)).unwrap();
    accepted(Nats::options(server.url()).credentials_file(&file)).await;

    let stranger = credentials(&KeyPair::new_account());
    let seed = stranger.lines().find(|line| line.starts_with("SU")).unwrap();
    let nats = Nats::options(server.url()).credentials_file(&file).connect().await.unwrap();
    std::fs::write(&file, &stranger).unwrap();
    refused(Nats::options(server.url()).credentials_file(&file), seed).await;
    assert!(texts(&nats.stream("ORDERS").await.unwrap_err()).contains("refuses the login"));
}

#[tokio::test]
async fn credentials_are_fetched_for_each_connection() {
    let config = |token: &str| format!("jetstream: {{}}\nauthorization: {{ token: \"{token}\" }}");
    let Some(mut server) = Server::start(&config("first")) else { return };
    let (token, asked) = (Arc::new(Mutex::new("first".to_owned())), Arc::new(AtomicU32::new(0)));
    let (now, count) = (Arc::clone(&token), Arc::clone(&asked));
    let options = Nats::options(server.url()).credentials(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let token = now.lock().unwrap().clone();
        async move { Ok(Credentials::token(token)) }
    });
    let nats = options.connect().await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let client = async_nats::ConnectOptions::with_token("first".to_owned()).connect(server.url()).await.unwrap();
    let world =
        common::World { url: server.url(), stream: "ORDERS".to_owned(), jetstream: async_nats::jetstream::new(client) };
    world.make(|config| config.storage = async_nats::jetstream::stream::StorageType::File).await;
    world.publish("x").await;
    let mut stream = nats.stream("ORDERS").await.unwrap();
    stream.subscribe(subscribe_options(1)).await.unwrap();
    // The token is no longer valid, and a running worker subscribes again.
    server.stop(true);
    std::fs::write(server.home.path().join("nats.conf"), config("second")).unwrap();
    server.again();
    // Earlier messages may arrive until the end of the connection is noticed.
    while stream.next().await.is_ok() {}
    let said = texts(stream.subscribe(subscribe_options(1)).await.unwrap_err().as_ref());
    assert!(said.contains("the server refuses the login") && !said.contains("first"), "{said}");
    "second".clone_into(&mut token.lock().unwrap());
    stream.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(common::next(&mut stream).await.0.payload(), "x");
    stream.close().await;
}

#[tokio::test]
async fn credentials_may_be_a_password_an_nkey_or_a_jwt() {
    let ours = KeyPair::new_user();
    let users = format!("{{ user: u, password: \"{SENTINEL}\" }}, {{ nkey: {} }}", ours.public_key());
    let config = format!("jetstream: {{}}\nauthorization: {{ users: [ {users} ] }}");
    let Some(server) = Server::start(&config) else { return };
    accepted(Nats::options(server.url()).credentials(async || Ok(Credentials::password("u", SENTINEL)))).await;
    refused(Nats::options(server.url()).credentials(async || Ok(Credentials::password("v", SENTINEL))), SENTINEL).await;
    let seed = ours.seed().unwrap();
    let get = move || {
        let seed = seed.clone();
        async move { Ok(Credentials::nkey(seed)) }
    };
    accepted(Nats::options(server.url()).credentials(get)).await;

    let account = KeyPair::new_account();
    let Some(server) = Server::start(&operated(&account)) else { return };
    let accounts = Arc::new(account);
    let of = |account: Arc<KeyPair>| {
        move || {
            let (user, account) = (KeyPair::new_user(), Arc::clone(&account));
            async move { Ok(Credentials::jwt(user_jwt(&account, &user), user.seed()?)) }
        }
    };
    accepted(Nats::options(server.url()).credentials(of(accounts))).await;
    refused(Nats::options(server.url()).credentials(of(Arc::new(KeyPair::new_account()))), "SU").await;
}

#[tokio::test]
async fn credentials_that_cannot_be_fetched_are_a_connection_error() {
    let options = Nats::options("nats://127.0.0.1:1").credentials(async || Err("the vault is sealed".into()));
    let error = options.connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }), "{said}");
    assert!(said.contains(".credentials(..)") && said.contains("the vault is sealed"), "{said}");
    let options = Nats::options("nats://127.0.0.1:1").credentials(async || Ok(Credentials::nkey(SENTINEL)));
    let error = options.connect().await.unwrap_err();
    assert!(matches!(error, Error::Config(_)) && !texts(&error).contains(SENTINEL), "{error:?}");
}

#[tokio::test]
async fn an_invalid_credentials_file_is_refused_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("billing.creds");
    for content in [None, Some(SENTINEL)] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let error = Nats::options("nats://127.0.0.1:1").credentials_file(&file).connect().await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        let said = texts(&error);
        assert!(said.contains("billing.creds") && !said.contains(SENTINEL), "{said}");
    }
}

#[tokio::test]
async fn a_login_that_may_do_little_is_enough() {
    let config = "jetstream: {}\nauthorization: { users: [ { user: all, password: p }, { user: idem, password: p, \
                  permissions: { subscribe: [\"_INBOX_billing.>\"], publish: [\
                  \"$JS.API.STREAM.INFO.ORDERS\", \"$JS.API.CONSUMER.*.ORDERS.billing\", \
                  \"$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing\", \"$JS.ACK.ORDERS.billing.>\"] } } ] }";
    let Some(server) = Server::start(config) else { return };
    let all = async_nats::ConnectOptions::with_user_and_password("all".to_owned(), "p".to_owned());
    let jetstream = async_nats::jetstream::new(all.connect(server.url()).await.unwrap());
    let world = common::World { url: server.url(), stream: "ORDERS".to_owned(), jetstream };
    world.make(|_| {}).await;
    world.publish("x").await;
    let url = format!("nats://idem:p@127.0.0.1:{}", server.port);
    let nats = Nats::options(url).inbox_prefix("_INBOX_billing").connect().await.unwrap();
    let mut stream = nats.stream("ORDERS").await.unwrap();
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let (_, acker) = common::next(&mut stream).await;
    assert_eq!(idem_core::Acker::ack(acker).await.unwrap(), idem_core::Settled::Confirmed);
    stream.close().await;
}

const LIMITS: &str = "\"subs\":-1,\"data\":-1,\"payload\":-1,\"imports\":-1,\"exports\":-1,\"wildcards\":true,\"conn\":-1,\
                      \"leaf\":-1";

/// Limits of an account with JetStream.
const STORAGE: &str = ",\"mem_storage\":-1,\"disk_storage\":-1,\"streams\":-1,\"consumer\":-1";

/// Returns the configuration of a server with this account.
fn operated(account: &KeyPair) -> String {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let limits = |more: &str| format!("{{\"limits\":{{{LIMITS}{more}}},\"type\":\"account\",\"version\":2}}");
    let operator_jwt = jwt(&operator, &operator, "O", "{\"type\":\"operator\",\"version\":2}");
    let system_jwt = jwt(&operator, &system, "SYS", &limits(""));
    let account_jwt = jwt(&operator, account, "A", &limits(STORAGE));
    format!(
        "jetstream: {{}}\noperator: {operator_jwt}\nsystem_account: {0}\nresolver: MEMORY\nresolver_preload: {{ {0}: \
         {system_jwt}, {1}: {account_jwt} }}",
        system.public_key(),
        account.public_key(),
    )
}

/// Returns the content of a `.creds` file for a new user of this account.
fn credentials(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let jwt = user_jwt(account, &user);
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY \
         SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    )
}

fn user_jwt(account: &KeyPair, user: &KeyPair) -> String {
    jwt(account, user, "billing", "{\"type\":\"user\",\"version\":2,\"subs\":-1,\"data\":-1,\"payload\":-1}")
}

/// Returns a JWT like those of nsc.
fn jwt(issuer: &KeyPair, subject: &KeyPair, name: &str, nats: &str) -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let (issuer_key, subject) = (issuer.public_key(), subject.public_key());
    let claims = format!(
        "{{\"jti\":\"X\",\"iat\":{now},\"iss\":\"{issuer_key}\",\"name\":\"{name}\",\"sub\":\"{subject}\",\"nats\":{nats}}}"
    );
    let body = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(body.as_bytes()).unwrap());
    format!("{body}.{signature}")
}
