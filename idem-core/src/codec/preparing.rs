//! A codec's preparation, whose failure affects only its message.

use super::PrepareError;
use crate::caught::caught;

/// Runs a preparation. A panic in it is the fault of its message; a panic while it is dropped is only logged.
pub(crate) async fn preparing(work: impl Future<Output = Result<(), PrepareError>> + Send) -> Result<(), PrepareError> {
    caught("the preparation of a codec", work).await.unwrap_or_else(|panic| {
        Err(PrepareError::undecodable(format!("the preparation of the codec panicked: {panic}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_the_fault_of_the_message() {
        let prepared = preparing(async { panic!("no such table") }).await;
        let Err(PrepareError::Undecodable(error)) = prepared else { panic!("{prepared:?}") };
        assert_eq!(error.to_string(), "the preparation of the codec panicked: no such table");
    }
}
