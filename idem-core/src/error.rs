//! Errors of idem and of handlers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Any error, boxed: the error type of handlers and adapters.
///
/// ```
/// # use idem_core::BoxError;
/// fn cents(text: &str) -> Result<i64, BoxError> {
///     let cents: i64 = text.parse()?;
///     if cents < 0 { return Err(format!("{cents} is negative").into()) }
///     Ok(cents)
/// }
/// assert_eq!(cents("-5").map_err(|error| error.to_string()), Err("-5 is negative".to_owned()));
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error that keeps a worker or a store from starting, or that ends a worker. It never concerns a single message;
/// the result for a message is an [`Outcome`](crate::Outcome).
///
/// `Display` and `Debug` show the whole chain as text, each part once: the remedy is often in the source, and Rust
/// prints the `Debug` of an error that `main` returns.
///
/// ```
/// let refused = idem_core::Error::database("cannot connect to PostgreSQL at db:5432", "connection refused");
/// assert_eq!(refused.to_string(), "cannot connect to PostgreSQL at db:5432: connection refused");
/// assert_eq!(format!("{refused:?}"), refused.to_string());
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that would lose or repeat messages, or that cannot work. The text names the fix.
    #[error("{0}")]
    Config(String),
    /// The database cannot be used. The text names it without its password.
    #[error("{}", with_source(what, source))]
    #[non_exhaustive]
    Database {
        /// The operation that failed.
        what: String,
        /// The driver's error.
        source: BoxError,
    },
    /// The role of the database, or the file, does not permit this.
    #[error("{}", with_source(what, source))]
    #[non_exhaustive]
    Denied {
        /// The operation that was refused.
        what: String,
        /// The database's error.
        source: BoxError,
    },
    /// The broker cannot be used. The text names it without its password.
    #[error("{}", with_source(what, source))]
    #[non_exhaustive]
    Broker {
        /// The operation that failed.
        what: String,
        /// The client's error.
        source: BoxError,
    },
    /// A task of the worker panicked: a bug in idem, in a store or in a source, not caused by a message. The worker has
    /// drained and may be started again.
    #[error("the worker's task `{task}` panicked: {text}")]
    #[non_exhaustive]
    Panicked {
        /// The name of the task.
        task: &'static str,
        /// The panic message.
        text: String,
    },
}

impl Error {
    /// An error of a store: the operation that failed, and the driver's error.
    pub fn database(what: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Database { what: what.into(), source: source.into() }
    }

    /// An error of a source: the operation that failed, and the client's error.
    pub fn broker(what: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Broker { what: what.into(), source: source.into() }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self))
    }
}

/// An operation that failed, and why, which often names the remedy.
fn with_source(what: &str, source: &BoxError) -> String {
    let why = text(source.as_ref());
    if what.contains(&why) { what.to_owned() } else { format!("{what}: {why}") }
}

/// The maximum depth of a chain. An error may name itself as its source, and would block its thread forever.
const DEPTH: usize = 64;

/// The chain of an error, from the outermost to its root.
pub(crate) fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |&error| source(error)).take(DEPTH)
}

/// The source of an error. It is user code and may panic: the chain ends there.
fn source<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a (dyn std::error::Error + 'static)> {
    catch_unwind(AssertUnwindSafe(|| error.source())).unwrap_or_default()
}

/// The chain as one text, each part once, for the column `error`. It is escaped, so that no content can prevent the row
/// from being stored, and cut to 4,000 characters.
pub(crate) fn text(error: &(dyn std::error::Error + 'static)) -> String {
    // The `Display` implementation is user code and may panic.
    let text = catch_unwind(AssertUnwindSafe(|| joined(error)));
    text.unwrap_or_else(|_| "the error's own text panicked".to_owned())
}

fn joined(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for part in chain(error).map(ToString::to_string) {
        // An error may have shown its sources already.
        if text.contains(&part) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&part);
    }
    clean(&text)
}

/// Escapes control characters and cuts to 4,000 characters.
pub(crate) fn clean(text: &str) -> String {
    let escaped = |c: char| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().chars().take(4000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permanent;

    #[derive(Debug, thiserror::Error)]
    #[error("could not charge the card")]
    struct NotCharged(#[source] BoxError);

    #[test]
    fn a_chain_that_leads_back_to_itself_ends() {
        #[derive(Debug)]
        struct Loop;
        impl std::fmt::Display for Loop {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("again")
            }
        }
        impl std::error::Error for Loop {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(self)
            }
        }
        assert_eq!(text(&Loop), "again");
        assert_eq!(crate::advice::Advice::of(&Loop.into()), None);
    }

    #[test]
    fn the_text_of_an_error_says_each_part_once() {
        assert_eq!(text(permanent("no such order").as_ref()), "no such order");
        let wrapped: BoxError = NotCharged(permanent("no such order")).into();
        assert_eq!(text(wrapped.as_ref()), "could not charge the card: no such order");
    }

    #[test]
    fn an_error_of_idem_shows_its_source_once() {
        let error = Error::database("could not register", Error::database("no table", "run idem's migrations"));
        assert_eq!(error.to_string(), "could not register: no table: run idem's migrations");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!(Error::broker("refused: no login", "no login").to_string(), "refused: no login");
    }

    #[test]
    fn an_error_whose_text_panics_has_a_text() {
        #[derive(Debug)]
        struct Nasty;
        impl fmt::Display for Nasty {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("no text")
            }
        }
        impl std::error::Error for Nasty {}
        assert_eq!(text(&Nasty), "the error's own text panicked");
    }

    #[test]
    fn a_chain_ends_at_an_error_whose_source_panics() {
        #[derive(Debug, thiserror::Error)]
        #[error("no such order")]
        struct Nasty;
        #[derive(Debug)]
        struct Outer(Nasty);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                panic!("no source")
            }
        }
        assert_eq!(text(&Outer(Nasty)), "no such order");
        assert_eq!(crate::advice::Advice::of(&NotCharged(Outer(Nasty).into()).into()), None);
    }

    #[test]
    fn the_text_of_an_error_is_escaped_and_cut() {
        let nasty: BoxError = format!("nul \0, escape \x1b[31m, {}", "x".repeat(1_000_000)).into();
        let text = text(nasty.as_ref());
        assert!(text.starts_with("nul \\u{0}, escape \\u{1b}[31m, xxx"), "{}", &text[..40]);
        assert_eq!(text.chars().count(), 4000);
    }
}
