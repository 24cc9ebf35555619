//! The error messages, and the causes of failed requests. None contains a credential: the SDK's errors have none.

use std::error::Error as StdError;
use std::fmt;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use idem_core::Error;

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The queue or the event bus does not exist.
    Missing,
    /// The credentials are valid, and do not permit the action.
    Denied,
    /// The credentials are missing, wrong or expired.
    Credentials,
    /// The service does not accept the time of the request.
    Clock,
    /// The service has refused the request because of its content.
    Content,
    /// Anything else: no answer, throttling, or a fault of the service. It may pass.
    Unavailable,
}

/// A request that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    text: String,
}

impl Failure {
    /// Reads an error of the SDK.
    pub(crate) fn new<E, R>(error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
        R: fmt::Debug,
    {
        let Some(answer) = error.as_service_error() else {
            // Their `Display` is one word, and the cause is in the sources.
            let (mut texts, mut source) = (Vec::new(), StdError::source(error));
            while let Some(error) = source {
                texts.push(error.to_string());
                source = error.source();
            }
            let text = if texts.is_empty() { error.to_string() } else { texts.join(": ") };
            let is_without = text.contains("credentials") || text.contains("identity");
            return Self { cause: if is_without { Cause::Credentials } else { Cause::Unavailable }, text };
        };
        let code = answer.code().unwrap_or("no code");
        Self::of(code, answer.message().unwrap_or_default())
    }

    /// Reads the code and the message of an answer, or of one of its entries.
    pub(crate) fn of(code: &str, message: &str) -> Self {
        let text = if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
        Self { cause: cause(code, message), text }
    }

    /// No answer came in time.
    pub(crate) fn silence() -> Self {
        Self { cause: Cause::Unavailable, text: "no answer in time".to_owned() }
    }

    /// The text without a remedy.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the error of a request for this action at this place. `missing` is the remedy if the place does not exist.
    pub(crate) fn error(&self, action: &str, place: &str, missing: &str) -> Error {
        let remedy = match self.cause {
            Cause::Missing => {
                return Error::Config(format!(
                    "{place} does not exist, or these credentials may not see it: {missing}"
                ));
            }
            Cause::Denied => {
                return Error::Config(format!("{place} refuses {action}: allow it in the policy ({})", self.text));
            }
            Cause::Credentials => {
                "the credentials are missing, wrong or expired: check the provider given to the SdkConfig"
            }
            Cause::Clock => "the service does not accept the time of the request: check the clock of this machine",
            Cause::Content | Cause::Unavailable => "check that the service can be reached from here",
        };
        Error::broker(format!("{action} has failed at {place}: {remedy}"), self.text.clone())
    }
}

fn cause(code: &str, message: &str) -> Cause {
    // With the protocol of queries, a code has a prefix.
    match code.rsplit('.').next().unwrap_or(code) {
        "QueueDoesNotExist" | "NonExistentQueue" | "QueueDeletedRecently" | "ResourceNotFoundException" => {
            Cause::Missing
        }
        "AccessDenied"
        | "AccessDeniedException"
        | "KmsAccessDenied"
        | "AuthorizationError"
        | "NotAuthorizedForSourceException"
        | "NotAuthorizedForDetailTypeException" => Cause::Denied,
        "RequestExpired" | "RequestTimeTooSkewed" => Cause::Clock,
        "InvalidSignatureException" | "SignatureDoesNotMatch"
            if message.contains("expired") || message.contains("not yet current") =>
        {
            Cause::Clock
        }
        "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "MissingAuthenticationToken"
        | "InvalidAccessKeyId"
        | "OptInRequired" => Cause::Credentials,
        "InvalidMessageContents"
        | "InvalidParameterValue"
        | "InvalidParameterValueException"
        | "InvalidAttributeValue"
        | "MissingParameter"
        | "BatchRequestTooLong"
        | "InvalidArgument"
        | "MalformedDetail"
        | "RedactionFailure"
        | "InvalidAccountIdException"
        | "ValidationException" => Cause::Content,
        _ => Cause::Unavailable,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_known_by_its_code() {
        for (code, message, expected) in [
            ("AWS.SimpleQueueService.NonExistentQueue", "", Cause::Missing),
            ("QueueDoesNotExist", "", Cause::Missing),
            ("AccessDeniedException", "User is not authorized to perform: sqs:receivemessage", Cause::Denied),
            ("InvalidSignatureException", "Signature expired: 20261201T000000Z is now earlier", Cause::Clock),
            ("InvalidSignatureException", "Signature not yet current: 20261201T000000Z is still later", Cause::Clock),
            ("InvalidSignatureException", "The request signature does not match", Cause::Credentials),
            ("ExpiredToken", "", Cause::Credentials),
            ("InvalidMessageContents", "", Cause::Content),
            ("MalformedDetail", "", Cause::Content),
            ("RedactionFailure", "", Cause::Content),
            ("NotAuthorizedForSourceException", "", Cause::Denied),
            ("ThrottlingException", "", Cause::Unavailable),
            ("InternalError", "", Cause::Unavailable),
        ] {
            assert_eq!(Failure::of(code, message).cause, expected, "{code}");
        }
    }

    #[test]
    fn a_missing_permission_is_named_by_its_action() {
        let error =
            Failure::of("AccessDenied", "no").error("sqs:DeleteMessage", "queue `orders` in eu-west-1", "create it");
        assert!(matches!(&error, Error::Config(text) if text.contains("refuses sqs:DeleteMessage")), "{error}");
    }
}
