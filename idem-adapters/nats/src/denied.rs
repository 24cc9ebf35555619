//! Subjects to which the server refuses to publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::ServerError;
use tokio::sync::watch;

/// How many subjects are remembered.
const MOST: usize = 10_000;

/// How often the server has refused each subject on one connection. It does not answer such a message, and reports an
/// error that only names the subject.
#[derive(Debug, Clone, Default)]
pub(crate) struct Denied(Arc<watch::Sender<BTreeMap<String, u64>>>);

impl Denied {
    /// Reads an error of the server.
    pub(crate) fn hear(&self, error: &ServerError) {
        let ServerError::Other(text) = error else { return };
        let Some(subject) = subject(text) else { return };
        self.0.send_modify(|denied| {
            if denied.len() >= MOST {
                denied.clear();
            }
            *denied.entry(subject.to_owned()).or_default() += 1;
        });
    }

    /// Returns a future that ends once this subject is refused after the call of this function.
    pub(crate) fn watch(&self, subject: &str) -> impl Future<Output = ()> + use<> {
        let (mut seen, subject) = (self.0.subscribe(), subject.to_owned());
        let before = seen.borrow_and_update().get(&subject).copied();
        async move {
            let refused = |denied: &BTreeMap<String, u64>| {
                let now = denied.get(&subject).copied();
                now.is_some() && now != before
            };
            // The sender lives as long as the connection.
            if seen.wait_for(refused).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Parses `Permissions Violation for Publish to "orders.paid"`. Both cases of letters occur.
fn subject(text: &str) -> Option<&str> {
    const BEGIN: &str = "permissions violation for publish to \"";
    let rest =
        text.get(..BEGIN.len()).filter(|begin| begin.eq_ignore_ascii_case(BEGIN)).map(|_| &text[BEGIN.len()..])?;
    rest.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_refused_message_is_found() {
        assert_eq!(subject("Permissions Violation for Publish to \"orders.paid\""), Some("orders.paid"));
        assert_eq!(subject("permissions violation for publish to \"o\""), Some("o"));
        for other in ["", "Permissions Violation for Subscription to \"a\"", "permissions violation for publish to \"a"]
        {
            assert_eq!(subject(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_refusal_of_before_the_call_counts_for_nothing() {
        let denied = Denied::default();
        let refuse = || denied.hear(&ServerError::Other("Permissions Violation for Publish to \"a\"".to_owned()));
        refuse();
        let mut seen = std::pin::pin!(denied.watch("a"));
        let mut other = std::pin::pin!(denied.watch("b"));
        assert!(futures_util::poll!(seen.as_mut()).is_pending());
        refuse();
        assert!(futures_util::poll!(seen.as_mut()).is_ready());
        assert!(futures_util::poll!(other.as_mut()).is_pending());
    }
}
