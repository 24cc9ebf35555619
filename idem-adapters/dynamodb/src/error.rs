//! The causes of failed requests. None contains a credential: the SDK's errors have none.

use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use idem_core::Error;
use idem_core::store::StoreError;
use tokio::time::timeout;

/// How long DynamoDB may take to answer, with the repetitions of the SDK.
const ANSWER: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A transaction has the item.
    Conflict,
    /// A table does not exist.
    Missing,
    /// The credentials are valid, and do not permit the action.
    Denied,
    /// The credentials are missing, wrong or expired.
    Credentials,
    /// DynamoDB has refused the request because of its content.
    Content,
    /// No answer came.
    Silence,
    /// Throttling, or a fault of the service. It may pass.
    Unavailable,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) text: String,
}

/// A request that failed, with the answer of DynamoDB if there was one.
pub(crate) struct Refusal<E> {
    pub(crate) failure: Failure,
    pub(crate) answer: Option<E>,
}

/// Waits for the answer to a request.
pub(crate) async fn answered<T, E>(request: impl Future<Output = Result<T, SdkError<E>>>) -> Result<T, Refusal<E>>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    match timeout(ANSWER, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let failure = Failure::new(&error);
            let answer = match error {
                SdkError::ServiceError(context) => Some(context.into_err()),
                _ => None,
            };
            Err(Refusal { failure, answer })
        }
        Err(_) => {
            let failure = Failure { cause: Cause::Silence, text: format!("no answer came within {ANSWER:?}") };
            Err(Refusal { failure, answer: None })
        }
    }
}

impl Failure {
    fn new<E>(error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        if let Some(answer) = error.as_service_error() {
            return Self::of(answer.code().unwrap_or("no code"), answer.message().unwrap_or_default());
        }
        // Their `Display` is one word, and the cause is in the sources.
        let (mut texts, mut source) = (Vec::new(), StdError::source(error));
        while let Some(error) = source {
            texts.push(error.to_string());
            source = error.source();
        }
        let text = if texts.is_empty() { error.to_string() } else { texts.join(": ") };
        let is_without = text.contains("credentials") || text.contains("identity");
        Self { cause: if is_without { Cause::Credentials } else { Cause::Silence }, text }
    }

    /// Reads the code and the message of an answer.
    pub(crate) fn of(code: &str, message: &str) -> Self {
        let text = if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
        Self { cause: cause(code), text }
    }

    /// Returns what it means for a worker.
    pub(crate) fn fault(self) -> StoreError {
        let text = self.text.into();
        match self.cause {
            Cause::Conflict => StoreError::Serialization(text),
            Cause::Content => StoreError::Message(text),
            Cause::Silence => StoreError::ConnectionLost(text),
            Cause::Missing | Cause::Denied | Cause::Credentials | Cause::Unavailable => StoreError::Unavailable(text),
        }
    }

    /// Returns the error of this action at this table.
    pub(crate) fn error(self, action: &str, table: &str) -> Error {
        let remedy = match self.cause {
            Cause::Missing => {
                return Error::Config(format!(
                    "the table `{table}` does not exist in this region and account: create it, \
                     `DynamoDb::connect(&config, \"{table}\").create_table()`"
                ));
            }
            Cause::Denied => {
                return Error::Config(format!(
                    "DynamoDB refuses {action} for the table `{table}`: allow it in the policy ({})",
                    self.text
                ));
            }
            Cause::Content => {
                return Error::Config(format!("DynamoDB refuses {action} for the table `{table}` ({})", self.text));
            }
            Cause::Credentials => {
                "the credentials are missing, wrong or expired: check the provider given to the SdkConfig"
            }
            Cause::Conflict | Cause::Silence | Cause::Unavailable => "check that DynamoDB can be reached from here",
        };
        Error::database(format!("{action} has failed for the table `{table}`: {remedy}"), self.text)
    }
}

fn cause(code: &str) -> Cause {
    match code {
        "TransactionConflict" | "TransactionConflictException" | "TransactionInProgressException" => Cause::Conflict,
        "ResourceNotFoundException" => Cause::Missing,
        "AccessDeniedException" => Cause::Denied,
        "ExpiredTokenException"
        | "IncompleteSignatureException"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "UnrecognizedClientException" => Cause::Credentials,
        "ConditionalCheckFailed"
        | "ConditionalCheckFailedException"
        | "ItemCollectionSizeLimitExceeded"
        | "ItemCollectionSizeLimitExceededException"
        | "ValidationError"
        | "ValidationException" => Cause::Content,
        _ => Cause::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_means_a_fault_of_the_message_or_of_dynamodb() {
        let fault = |code| Failure::of(code, "text").fault();
        for code in ["ProvisionedThroughputExceededException", "ThrottlingException", "InternalServerError"] {
            assert!(matches!(fault(code), StoreError::Unavailable(_)), "{code}");
        }
        for code in ["AccessDeniedException", "ResourceNotFoundException", "ExpiredTokenException"] {
            assert!(matches!(fault(code), StoreError::Unavailable(_)), "{code}");
        }
        assert!(matches!(fault("TransactionConflictException"), StoreError::Serialization(_)));
        assert!(matches!(fault("ValidationException"), StoreError::Message(_)));
    }
}
