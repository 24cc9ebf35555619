//! The three ways to name a queue.

use aws_sdk_sqs::Client;
use idem_core::Error;

use crate::error::Failure;
use crate::requests::answered;

/// What an application calls a queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given<'a> {
    Url { url: &'a str, name: &'a str },
    Arn { region: &'a str, account: &'a str, name: &'a str },
    Name(&'a str),
}

impl<'a> Given<'a> {
    /// Parses it. Returns `None` if it can be none of the three.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        if text.starts_with("https://") || text.starts_with("http://") {
            let name = text.rsplit('/').next().filter(|name| is_name(name))?;
            return Some(Self::Url { url: text, name });
        }
        if let Some(rest) = text.strip_prefix("arn:") {
            let mut parts = rest.split(':');
            // The partition: `aws`, `aws-cn` and others.
            parts.next()?;
            let ("sqs", Some(region), Some(account), Some(name), None) =
                (parts.next()?, parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return None;
            };
            return is_name(name).then_some(Self::Arn { region, account, name });
        }
        is_name(text).then_some(Self::Name(text))
    }

    /// The region of the queue, if the text has one. A URL of a VPC endpoint or of another server has none.
    fn region(&self) -> Option<&'a str> {
        match self {
            Self::Url { url, .. } => {
                let host = url.split('/').nth(2)?;
                let host = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
                host.strip_prefix("sqs.").or_else(|| host.strip_suffix(".queue"))
            }
            Self::Arn { region, .. } => Some(region),
            Self::Name(_) => None,
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        match self {
            Self::Url { name, .. } | Self::Arn { name, .. } | Self::Name(name) => name,
        }
    }
}

/// Returns whether SQS allows this name: 80 letters, digits, `-` and `_`, and `.fifo` at the end.
fn is_name(name: &str) -> bool {
    let base = name.strip_suffix(".fifo").unwrap_or(name);
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !base.is_empty() && name.len() <= 80 && base.bytes().all(is_allowed)
}

/// Why there is no URL of a queue.
pub(crate) enum NoUrl {
    /// The text can name no queue.
    Invalid(String),
    Failed(Failure),
}

impl NoUrl {
    pub(crate) fn error(self, queue: &str, region: &str) -> Error {
        match self {
            Self::Invalid(text) => Error::Config(text),
            Self::Failed(failure) => failure.error("sqs:GetQueueUrl", &place(queue, region), &remedy(queue)),
        }
    }
}

/// Returns the URL and the name of a queue.
pub(crate) async fn find(client: &Client, queue: &str, region: &str) -> Result<(String, String), NoUrl> {
    let Some(given) = Given::parse(queue) else {
        return Err(NoUrl::Invalid(format!(
            "{queue:?} is not a queue: give its name (up to 80 letters, digits, - and _, with .fifo at the end of a FIFO \
             queue's), its URL or its ARN"
        )));
    };
    // The SDK would ask the region of its configuration for the queue of that name.
    if let Some(other) = given.region().filter(|other| *other != region) {
        return Err(NoUrl::Invalid(format!(
            "{queue} is in another region than the SdkConfig, which has {region}: give it a configuration of {other}"
        )));
    }
    let ask = match given {
        Given::Url { url, name } => return Ok((url.to_owned(), name.to_owned())),
        Given::Arn { account, name, .. } => client.get_queue_url().queue_name(name).queue_owner_aws_account_id(account),
        Given::Name(name) => client.get_queue_url().queue_name(name),
    };
    let answer = answered(ask.send()).await.map_err(NoUrl::Failed)?;
    match answer.queue_url {
        Some(url) => Ok((url, given.name().to_owned())),
        None => Err(NoUrl::Failed(Failure::of("QueueDoesNotExist", "the answer has no URL"))),
    }
}

/// A queue and its region, for errors.
pub(crate) fn place(queue: &str, region: &str) -> String {
    format!("queue `{queue}` in {region}")
}

/// The remedy for a queue that does not exist.
pub(crate) fn remedy(queue: &str) -> String {
    let kind = if queue.ends_with(".fifo") { " --attributes FifoQueue=true" } else { "" };
    format!("create it (aws sqs create-queue --queue-name {queue}{kind}), or check name, account and region")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_given_by_name_url_or_arn() {
        let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo";
        assert_eq!(Given::parse(url), Some(Given::Url { url, name: "orders.fifo" }));
        let arn = Given::Arn { region: "eu-west-1", account: "123456789012", name: "orders" };
        assert_eq!(Given::parse("arn:aws:sqs:eu-west-1:123456789012:orders"), Some(arn));
        assert_eq!(Given::parse("orders_2-x"), Some(Given::Name("orders_2-x")));
        let long = "x".repeat(81);
        for none in ["", ".fifo", "a.b", "a b", &long, "https://host/", "arn:aws:sns:r:1:orders", "arn:aws:sqs:r:1:a:b"]
        {
            assert_eq!(Given::parse(none), None, "{none}");
        }
    }

    #[test]
    fn the_region_of_a_queue_is_in_its_url() {
        for (host, region) in [
            ("sqs.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("eu-west-1.queue.amazonaws.com", Some("eu-west-1")),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("vpce-1.sqs.eu-west-1.vpce.amazonaws.com", None),
            ("127.0.0.1:9324", None),
        ] {
            assert_eq!(Given::parse(&format!("https://{host}/1/orders")).unwrap().region(), region, "{host}");
        }
    }
}
