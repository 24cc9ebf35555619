//! What a provider has in memory.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::reply::Reply;

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge {
    /// Its number, which is the body of the reply.
    pub number: usize,
    /// The key of the request.
    pub key: Option<String>,
    /// The body of the request.
    pub body: String,
}

#[derive(Debug)]
pub(super) struct State {
    life: Duration,
    plans: HashMap<String, VecDeque<Fault>>,
    pub(super) keys: HashMap<String, Known>,
    pub(super) ledger: Vec<Charge>,
    /// The key and the body of each request.
    pub(super) requests: Vec<(Option<String>, String)>,
}

/// A key that the provider remembers.
#[derive(Debug)]
pub(super) struct Known {
    since: Instant,
    body: String,
    /// `None` while its first request is in progress.
    reply: Option<Reply>,
}

/// A request in progress.
pub(super) struct Request {
    key: Option<String>,
    body: String,
    pub(super) fault: Option<Fault>,
}

/// How a request begins.
pub(super) enum Begun {
    Answered(Reply),
    Failed(Fault),
    Request(Request),
}

impl State {
    pub(super) fn new(life: Duration) -> Self {
        Self { life, plans: HashMap::new(), keys: HashMap::new(), ledger: Vec::new(), requests: Vec::new() }
    }

    pub(super) fn plan(&mut self, body: &str, faults: impl IntoIterator<Item = Fault>) {
        self.plans.entry(body.to_owned()).or_default().extend(faults);
    }

    pub(super) fn begin(&mut self, key: Option<&str>, body: &str) -> Begun {
        self.requests.push((key.map(ToOwned::to_owned), body.to_owned()));
        let fault = self.plans.get_mut(body).and_then(VecDeque::pop_front);
        match fault {
            Some(fault @ (Fault::LoseRequest | Fault::Panic)) => return Begun::Failed(fault),
            Some(Fault::Busy) => return Begun::Answered(Reply::new(429, "busy")),
            _ => {}
        }
        let life = self.life;
        self.keys.retain(|_, known| known.since.elapsed() < life);
        if let Some(known) = key.and_then(|key| self.keys.get(key)) {
            if known.body != body {
                return Begun::Answered(Reply::new(422, "the key belongs to another request"));
            }
            let reply = known.reply.clone();
            return match fault {
                Some(fault @ Fault::LoseAnswer) => Begun::Failed(fault),
                _ => Begun::Answered(reply.unwrap_or_else(|| Reply::new(409, "in progress"))),
            };
        }
        if let Some(key) = key {
            let known = Known { since: Instant::now(), body: body.to_owned(), reply: None };
            self.keys.insert(key.to_owned(), known);
        }
        let request = Request { key: key.map(ToOwned::to_owned), body: body.to_owned(), fault };
        // Its effect does not wait for an answer that never comes.
        if fault == Some(Fault::Hang) {
            self.end(&request);
        }
        Begun::Request(request)
    }

    /// Ends a request. `None`: its answer is lost.
    pub(super) fn end(&mut self, request: &Request) -> Option<Reply> {
        let Request { key, body, fault } = request;
        let reply = match fault {
            Some(Fault::Error) => Reply::new(500, "an error of the provider"),
            _ => {
                let number = self.ledger.len() + 1;
                self.ledger.push(Charge { number, key: key.clone(), body: body.clone() });
                Reply::new(200, number.to_string())
            }
        };
        if let Some(known) = key.as_ref().and_then(|key| self.keys.get_mut(key)) {
            known.reply = Some(reply.clone());
        }
        (*fault != Some(Fault::LoseAnswer)).then_some(reply)
    }

    /// Forgets a key whose first request ends without a reply.
    pub(super) fn leave(&mut self, key: Option<&str>) {
        let unanswered = key.filter(|key| self.keys.get(*key).is_some_and(|known| known.reply.is_none()));
        if let Some(key) = unanswered {
            self.keys.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Provider;
    use super::*;

    #[tokio::test]
    async fn a_key_is_answered_as_the_first_time_also_with_an_error() {
        let provider = Provider::new();
        provider.fail("a", [Fault::Error]);
        for _ in 0..2 {
            assert_eq!(provider.charge(Some("1"), "a").await.unwrap().status, 500);
        }
        assert_eq!(provider.charge(Some("2"), "a").await.unwrap(), Reply::new(200, "1"));
        assert_eq!(provider.charge(Some("2"), "b").await.unwrap().status, 422);
        assert_eq!((provider.charged("a"), provider.ledger().len(), provider.find("2").len()), (1, 1, 1));
    }

    #[tokio::test]
    async fn a_request_in_progress_is_a_conflict() {
        let provider = Provider::new();
        provider.fail("a", [Fault::Wait]);
        let first = tokio::spawn({
            let provider = provider.clone();
            async move { provider.charge(Some("1"), "a").await.unwrap().status }
        });
        provider.waits(1).await;
        assert_eq!(provider.charge(Some("1"), "a").await.unwrap().status, 409);
        provider.release();
        assert_eq!((first.await.unwrap(), provider.charged("a")), (200, 1));
    }

    #[tokio::test]
    async fn a_request_without_a_key_and_one_whose_key_is_over_are_new() {
        let provider = Provider::with_key_life(Duration::ZERO);
        for _ in 0..2 {
            provider.charge(Some("1"), "a").await.unwrap();
            provider.charge(None, "b").await.unwrap();
        }
        assert_eq!((provider.charged("a"), provider.charged("b")), (2, 2));
    }

    #[tokio::test]
    async fn a_key_is_known_for_as_long_as_it_lives() {
        let life = Duration::from_millis(20);
        let [short, long] = [life, Duration::from_secs(3600)].map(Provider::with_key_life);
        for provider in [&short, &long] {
            provider.charge(Some("1"), "a").await.unwrap();
        }
        tokio::time::sleep(2 * life).await;
        for provider in [&short, &long] {
            provider.charge(Some("1"), "a").await.unwrap();
        }
        assert_eq!((short.charged("a"), long.charged("a")), (2, 1));
    }
}
