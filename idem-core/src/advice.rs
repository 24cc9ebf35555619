//! The advice that a handler may give with an error: never again, or not before.

use std::time::Duration;

use crate::BoxError;
use crate::error::chain;

/// Marks a handler's error as permanent: the message becomes a dead letter immediately, with reason `permanent`,
/// without further attempts. The transaction is rolled back as with any other error.
///
/// ```
/// # use idem_core::{permanent, BoxError};
/// fn check(amount: i64) -> Result<(), BoxError> {
///     if amount < 0 { return Err(permanent("a negative amount")) }
///     Ok(())
/// }
/// ```
///
/// In a function that returns `anyhow::Result`, `bail!(permanent(..))` returns it, since `?` takes no [`BoxError`] there;
/// `.context(..)` keeps the mark.
pub fn permanent(error: impl Into<BoxError>) -> BoxError {
    Box::new(Marked(Mark { error: error.into(), advice: Advice::Permanent }))
}

/// Marks a handler's error with the time before which a retry is of no use, such as the `Retry-After` of a service that
/// limits its clients. The next attempt starts after this delay, and the [retry policy](crate::RetryPolicy) decides the
/// rest: the attempt counts, the message is a dead letter after the last one, and where the policy has a longer
/// delay, that delay counts. The transaction is rolled back as with any other error.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::{retry_after, BoxError};
/// fn charged(status: u16, retry_after_header: Option<u64>) -> Result<(), BoxError> {
///     match (status, retry_after_header) {
///         (200, _) => Ok(()),
///         (429, Some(seconds)) => Err(retry_after(Duration::from_secs(seconds), "the payment service is busy")),
///         _ => Err(format!("the payment service answered {status}").into()),
///     }
/// }
/// ```
///
/// With an order, the later messages of its ordering key wait as long; a delay longer than the policy's
/// [`max_delay`](crate::RetryPolicy::max_delay) counts as that one. Without an order, a delay of more than 365 days
/// counts as 365 days. With a key-value store the delivery is unacked meanwhile, and a delay of more than 5 minutes counts as 5 minutes.
/// In an error with both marks, the outermost one counts.
pub fn retry_after(delay: Duration, error: impl Into<BoxError>) -> BoxError {
    Box::new(Marked(Mark { error: error.into(), advice: Advice::RetryAfter(delay.min(YEAR)) }))
}

/// The longest delay. It may be a number that another service has sent, and a database has no times without end.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The advice of a handler about its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// No attempt can succeed.
    Permanent,
    /// No attempt before this delay can succeed.
    RetryAfter(Duration),
}

impl Advice {
    /// The outermost mark in the chain of an error.
    pub(crate) fn of(error: &BoxError) -> Option<Self> {
        chain(error.as_ref()).find_map(|error| error.downcast_ref::<Mark>()).map(|mark| mark.advice)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Marked(#[source] Mark);

/// The mark is the *source* of the error that is returned, not that error itself. A transparent wrapper, such as
/// thiserror's, returns the source of the error that it wraps, and would otherwise hide the mark.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct Mark {
    #[source]
    error: BoxError,
    advice: Advice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum AppError {
        #[error(transparent)]
        Other(#[from] BoxError),
        #[error("could not charge the card")]
        Charge(#[source] BoxError),
    }

    #[test]
    fn advice_is_found_behind_a_users_own_error() {
        let hour = Duration::from_secs(3600);
        for (mark, advice) in [
            ((|| permanent("no such order")) as fn() -> BoxError, Advice::Permanent),
            (|| retry_after(Duration::from_secs(3600), "too many"), Advice::RetryAfter(hour)),
        ] {
            assert_eq!(Advice::of(&mark()), Some(advice));
            assert_eq!(Advice::of(&AppError::from(mark()).into()), Some(advice));
            assert_eq!(Advice::of(&AppError::Charge(mark()).into()), Some(advice));
        }
        assert_eq!(Advice::of(&AppError::Charge("no such order".into()).into()), None);
    }

    #[test]
    fn advice_is_found_behind_anyhow() {
        use anyhow::{Context, anyhow};

        let ways: [fn() -> anyhow::Error; 3] = [
            || anyhow!(permanent("no such order")),
            || anyhow::Error::from_boxed(permanent("no such order")),
            || AppError::Charge(permanent("no such order")).into(),
        ];
        for way in ways {
            assert_eq!(Advice::of(&way().into()), Some(Advice::Permanent));
            assert_eq!(Advice::of(&way().context("cannot charge").context("order 7").into()), Some(Advice::Permanent));
        }
        let result: anyhow::Result<()> = Err(anyhow!(permanent("no such order")));
        let error: BoxError = result.context("cannot charge").unwrap_err().into();
        assert_eq!(Advice::of(&error), Some(Advice::Permanent));
        assert_eq!(crate::error::text(error.as_ref()), "cannot charge: no such order");
        assert_eq!(Advice::of(&anyhow!("no such order").into()), None);
    }

    #[test]
    fn a_delay_is_at_most_a_year() {
        assert_eq!(Advice::of(&retry_after(Duration::MAX, "never")), Some(Advice::RetryAfter(YEAR)));
    }

    #[test]
    fn of_two_marks_the_outermost_counts() {
        let error = permanent(retry_after(Duration::ZERO, "too many"));
        assert_eq!(Advice::of(&error), Some(Advice::Permanent));
        assert_eq!(error.to_string(), "too many");
    }
}
