//! A codec's preparation, whose failure affects only its message.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::PrepareError;
use crate::caught::Caught;

/// The future of a preparation. A panic in it is the fault of its message; a panic while it is
/// dropped is only logged.
pub(crate) struct Preparing<'a>(Caught<'a, Result<(), PrepareError>>);

impl<'a> Preparing<'a> {
    pub(crate) fn new(work: impl Future<Output = Result<(), PrepareError>> + Send + 'a) -> Self {
        Self(Caught::new("the preparation of a codec", work))
    }
}

impl Future for Preparing<'_> {
    type Output = Result<(), PrepareError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|prepared| {
            prepared.unwrap_or_else(|panic| {
                Err(PrepareError::undecodable(format!("the preparation of the codec panicked: {panic}")))
            })
        })
    }
}

impl fmt::Debug for Preparing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Preparing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_the_fault_of_the_message() {
        let prepared = Preparing::new(async { panic!("no such table") }).await;
        let Err(PrepareError::Undecodable(error)) = prepared else { panic!("{prepared:?}") };
        assert_eq!(error.to_string(), "the preparation of the codec panicked: no such table");
    }
}
